// Credit returns and responses at the client (eRPC, sections 5.1 and 5.3). The only acceptable
// packet is the answer to the oldest packet under way of its request; every other one is dropped.
#include <algorithm>
#include <cstring>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

[[gnu::flatten]] void Endpoint::receive_answer(const Packet& packet) {
  const Scope step(env_, scope::receive_response);
  const PacketHeader& header = packet.header;
  const std::uint32_t index = header.session();
  ClientSession* session = index < clients_.size() ? clients_[index].get() : nullptr;
  if (session == nullptr || session->state != SessionState::kConnected ||
      (session->generation != header.generation() && !bugs_.has(Bug::kGenerationIgnored)) ||
      (session->source != packet.source && !bugs_.has(Bug::kSenderNotChecked))) [[unlikely]] {
    ++counters_.unknown_session;
    reached("erpc/unknown_session");
    return;
  }
  session->heard = packet.arrived;
  session->unanswered = 0;
  ClientSlot& slot = session->slots[header.request() & (options_.slots - 1)];
  if (!slot.is_active || (slot.request_number != header.request() &&
                          !bugs_.has(Bug::kOlderResponseTaken))) [[unlikely]] {
    ++counters_.stale;
    reached("erpc/answer_of_older_request");
    return;
  }
  if (is_small_response(slot, packet)) [[likely]] {
    take_small_response(*session, slot, packet);
    return;
  }
  const std::uint32_t number = header.packet();
  if (number != slot.received && !bugs_.has(Bug::kOrderIgnored)) [[unlikely]] {
    if (number < slot.received) {
      ++counters_.stale;
      reached("erpc/answer_again");
    } else {
      ++counters_.reordered;
      reached("erpc/answer_out_of_order");
    }
    return;
  }
  if (slot.received >= slot.sent) [[unlikely]] {
    // The request was rolled back, and the packet is not sent again yet.
    ++counters_.stale;
    reached("erpc/answer_after_rollback");
    return;
  }
  const bool is_response = header.kind() == PacketKind::kResponse;
  if (is_response != (slot.received + 1 >= slot.request_packets)) [[unlikely]] {
    ++counters_.lies;
    return;
  }
  if (is_response) {
    take_response(*session, slot, packet);
    return;
  }
  measure(*session, slot, packet);
  ++slot.received;
  ++session->credits;
  slot.progress = packet.arrived;
  slot.retransmissions = 0;
  send_next(slot);
}

// Most RPCs have one packet each way. Such an answer passes the tests of the general path with
// fewer instructions: one comparison tests the kind, the number of the packet and that it is no
// refusal.
bool Endpoint::is_small_response(const ClientSlot& slot, const Packet& packet) const {
  constexpr std::uint64_t kTested =
      PacketHeader::make_what(PacketKind{7}, PacketHeader::kMaxPacket, 0, 0) |
      PacketHeader::kRefusedBit;
  constexpr std::uint64_t kWanted = PacketHeader::make_what(PacketKind::kResponse, 0, 0, 0);
  const std::uint32_t size = packet.header.size();
  return (packet.header.what & kTested) == kWanted && slot.request_packets == 1 && slot.sent == 1 &&
         slot.received == 0 && slot.in_wheel == 0 && size == packet.bytes && size <= small_ &&
         size <= slot.call.response->capacity() && bugs_.none();
}

void Endpoint::take_small_response(ClientSession& session, ClientSlot& slot, const Packet& packet) {
  measure(session, slot, packet);
  ++session.credits;
  MsgBuffer& response = *slot.call.response;
  response.resize(packet.bytes);
  if (packet.bytes != 0) {
    env_.charge_copy(packet.bytes);
    copy_piece(response.data(), packet.data, packet.bytes);
  }
  if (session.stalled_slots != 0) [[unlikely]]
    send_stalled(session);
  finish(slot, Outcome::kOk);
}

void Endpoint::take_response(ClientSession& session, ClientSlot& slot, const Packet& packet) {
  const PacketHeader& header = packet.header;
  MsgBuffer& response = *slot.call.response;
  const std::uint32_t size = header.size();
  const bool is_first = slot.received + 1 == slot.request_packets;
  std::uint32_t packets = slot.response_packets;
  Outcome outcome = Outcome::kOk;
  if (is_first) {
    packets = packets_of(size);
    if (header.refused()) {
      outcome = size == 0 ? Outcome::kNoHandler : Outcome::kFailed;
      packets = 1;
    } else if (size > response.capacity() && !bugs_.has(Bug::kSizeTrusted)) {
      outcome = Outcome::kResponseSize;
      packets = 1;
      reached("erpc/response_too_long");
    }
  } else if (size != slot.response_size) [[unlikely]] {
    ++counters_.lies;
    return;
  }
  const std::uint32_t piece = slot.received + 1 - slot.request_packets;
  if (size > options_.max_message || packet.bytes != piece_bytes(size, piece)) [[unlikely]] {
    ++counters_.lies;
    return;
  }
  const bool is_last = piece + 1 == packets;
  if (is_last && slot.in_wheel != 0 && !bugs_.has(Bug::kWheelIgnored)) [[unlikely]] {
    ++counters_.in_wheel;
    reached("erpc/response_while_in_wheel");
    return;
  }
  measure(session, slot, packet);
  ++slot.received;
  if (!is_last || !bugs_.has(Bug::kCreditNotReturned)) ++session.credits;
  slot.progress = packet.arrived;
  slot.retransmissions = 0;
  if (outcome == Outcome::kFailed) [[unlikely]] {
    const std::uint32_t shown = std::min({packet.bytes, size, response.capacity()});
    response.resize(shown);
    if (shown != 0) std::memcpy(response.data(), packet.data, shown);
  } else if (outcome == Outcome::kOk) [[likely]] {
    if (is_first) {
      slot.response_size = size;
      slot.response_packets = packets;
      if (size <= response.capacity()) response.resize(size);
    }
    std::size_t begin = std::size_t{piece} * payload_;
    if (bugs_.has(Bug::kPieceByResponseSize) && slot.response_packets > 1)
      begin = std::size_t{slot.received % slot.response_packets} * payload_;
    if (packet.bytes != 0 && begin + packet.bytes <= response.capacity()) {
      env_.charge_copy(packet.bytes, response.footprint());
      std::memcpy(response.data() + begin, packet.data, packet.bytes);
    }
  }
  if (!is_last) [[unlikely]] {
    send_next(slot);
    return;
  }
  const bool is_late = bugs_.has(Bug::kOwnSlotFirst);
  if (session.stalled_slots != 0 && !is_late) [[unlikely]]
    send_stalled(session);
  finish(slot, outcome);
  if (is_late) send_stalled(session);
}

// A packet and the copies of it that wait in the wheel leave that before the packets `credits`
// later, which have the same place: so the place has the time of the last copy until the answer
// comes. But the answer to a packet that was sent twice may be that to either copy, so nobody knows
// its round trip (Karn's rule; RFC 6298, section 3).
void Endpoint::measure(ClientSession& session, ClientSlot& slot, const Packet& packet) {
  const Time rtt = packet.arrived - sent_at(slot, slot.received);
  if (options_.adaptive_timeout) {
    if (static_cast<std::uint64_t>(rtt) < ClientSlot::kSentAgain / 2) [[likely]]
      session.round_trip.take(rtt);
    else if (rtt > 0)
      session.round_trip.keep(slot.retransmissions);
  }
  if (session.rate.skips(rtt) && probe_ == nullptr) [[likely]]
    return;
  update_rate(session, rtt, packet);
}

void Endpoint::update_rate(ClientSession& session, Time rtt, const Packet& packet) {
  // The rate takes the time since the last copy, as in the public program: where every packet is
  // sent again before its answer, the rate must learn of it.
  const bool is_known = rtt < ClientSlot::kSentAgain / 2;
  if (!is_known) rtt -= ClientSlot::kSentAgain;
  // The clock may be read between the batches: a packet's stamp can be later than its answer's.
  if (rtt < 0) return;
  if (probe_ != nullptr && is_known) probe_(rtt);
  if (session.rate.skips(rtt)) return;
  const Scope step(env_, scope::rate_update);
  if (session.rate.answered(rtt, packet.arrived,
                            packet.is_congested || packet.header.congested())) {
    ++counters_.rate_updates;
  }
}

}  // namespace pyrdma::erpc
