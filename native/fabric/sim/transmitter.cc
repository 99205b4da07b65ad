#include "fabric/sim/transmitter.h"

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

// Returns the time when the message's last byte reaches the receiver's port, if the port is idle.
Picos Transmitter::cross(const Nic& receiver, const Message& message, Picos ready,
                         std::uint64_t flow) {
  if (&receiver == &nic_) return ready;  // a loopback message does not leave the NIC
  Network& network = nic_.fabric().network;
  link_free_ = std::max(link_free_, ready) + network.wire_time(message.wire_bytes);
  return network.cross(nic_.port(), receiver.port(), link_free_, message.wire_bytes, flow);
}

void Transmitter::send_request(Message& message, Picos ready) {
  Nic& target = *message.owner;
  ++nic_.counters().packets;
  nic_.counters().wire_bytes += static_cast<std::uint64_t>(message.wire_bytes);
  message.stage = Message::Stage::kRequestArrives;
  message.sender = &nic_;
  const std::uint64_t flow = (std::uint64_t{message.header.source_number} << 32) ^ target.port();
  target.responder.expect(message, cross(target, message, ready, flow));
}

void Transmitter::send_response(Message& message, Picos ready, Picos now) {
  Nic& initiator = message.initiator->nic;
  nic_.counters().wire_bytes += static_cast<std::uint64_t>(message.wire_bytes);
  message.stage = Message::Stage::kResponseArrives;
  message.sender = &nic_;
  message.owner = &initiator;
  message.meddled = false;
  const std::uint64_t flow =
      (std::uint64_t{message.header.source_number} << 32) ^ initiator.port() ^ (1ULL << 31);
  initiator.completer.expect(message, cross(initiator, message, ready, flow), now);
}

void Transmitter::send_acknowledgement(Picos ready) {
  const Network& network = nic_.fabric().network;
  link_free_ = std::max(link_free_, ready) + network.wire_time(network.control().bytes);
}

void Transmitter::pause(Picos until) {
  if (until <= paused_until_) return;
  ++nic_.counters().paused;
  paused_until_ = until;
}

void Transmitter::storm(Picos until) {
  paused_until_ = until == 0 ? 0 : std::max(paused_until_, until);
  if (nic_.faults() != nullptr) nic_.faults()->stormed_until = paused_until_;
  if (until == 0) nic_.requester.resume(nic_.fabric().scheduler.clock());
}

void Transmitter::note_storm(Picos free) const {
  NicFaults* faults = nic_.faults();
  if (faults != nullptr && faults->stormed_until == free) faults->stream.reach(Fault::pause_storm);
}

}  // namespace pyrdma::fabric::sim
