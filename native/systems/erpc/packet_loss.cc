// Go-back-N (eRPC, section 5.3). A request without progress for the retransmission timeout is
// rolled back to its last answered packet: the credits of the later ones come back, and they are
// sent again. Only the client rolls back.
#include <algorithm>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

void Endpoint::activate(ClientSlot& slot) {
  slot.is_active = true;
  slot.next = first_active_;
  slot.previous = nullptr;
  if (first_active_ != nullptr) first_active_->previous = &slot;
  first_active_ = &slot;
  ++active_;
}

void Endpoint::deactivate(ClientSlot& slot) {
  slot.is_active = false;
  (slot.previous != nullptr ? slot.previous->next : first_active_) = slot.next;
  if (slot.next != nullptr) slot.next->previous = slot.previous;
  --active_;
}

// The wheel drops the answers to earlier copies (appendix C). With a timeout below the round-trip
// time every answer meets the next copy there, and the request never ends. With growing timeouts it
// does: the timeout doubles after each kPatient copies without an answer.
Time Endpoint::timeout_of(const ClientSlot& slot) const {
  constexpr std::uint32_t kPatient = 8, kMostDoublings = 10;
  Time longest = options_.retransmission_timeout;
  if (options_.growing_timeouts)
    longest <<= std::min(slot.retransmissions / kPatient, kMostDoublings);
  if (!options_.adaptive_timeout) return longest;
  return slot.session->round_trip.timeout(slot.retransmissions, options_.least_timeout, longest);
}

// A retransmission neither ends a request nor begins one, so the list stays as it is.
void Endpoint::scan_for_losses(Time now) {
  for (ClientSlot* slot = first_active_; slot != nullptr; slot = slot->next) {
    // A request that waits for a credit has nothing under way. One with packets in the wheel has
    // not sent them yet (appendix C).
    if (slot->sent == slot->received || now - slot->progress <= timeout_of(*slot)) continue;
    if (slot->in_wheel != 0) {
      reached("erpc/timeout_in_wheel");
      continue;
    }
    retransmit(*slot, now);
  }
}

// The answer to the first copy of a packet may come before the NIC has read the second one; the
// continuation then gives the buffer away (section 4.2.2). So this comes before the continuation,
// also if the second copy has left the wheel or waited for a credit meanwhile.
void Endpoint::drain_copies() {
  has_sent_again_ = false;
  if (!bugs_.has(Bug::kNoDrainAtClient)) transport_.drain();
}

void Endpoint::retransmit(ClientSlot& slot, Time now) {
  ClientSession& session = *slot.session;
  ++counters_.retransmissions;
  ++slot.retransmissions;
  reached("erpc/retransmission");
  const std::uint32_t rolled_back = slot.sent - slot.received;
  if (!bugs_.has(Bug::kCreditsLost)) session.credits += rolled_back;
  if (bugs_.has(Bug::kCreditsDoubled)) session.credits += rolled_back;
  slot.sent = slot.received;
  slot.progress = now;
  send_packets(slot);
}

}  // namespace pyrdma::erpc
