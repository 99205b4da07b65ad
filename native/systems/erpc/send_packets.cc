// Packets of the client: the pieces of the request, then one packet for each further piece of the
// response (eRPC, section 5.1). Each takes a credit (4.3.1), and goes when the session's rate
// allows (5.2).
//
// The paper names no order among the requests of a session. Here those that wait for a credit take
// turns, a packet each: a returned credit goes to the next one, and not to the request that it came
// from, to its continuation or to the backlog. So a request waits for as many packets as the
// session has slots, however long the others are. Between two packets a session either has no
// credit or no request that waits for one, so a new request that finds a credit passes nobody.
#include <algorithm>
#include <bit>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

// Sends up to `most` packets. The slot waits for a further turn with the rest.
void Endpoint::send_packets(ClientSlot& slot, std::uint32_t most) {
  ClientSession& session = *slot.session;
  session.stalled_slots &= ~(1ULL << slot.index);
  // The pieces of the response may be asked for once the first one has said how many there are.
  const std::uint32_t last = slot.response_packets == 0
                                 ? slot.request_packets
                                 : slot.request_packets + slot.response_packets - 1;
  if (slot.sent >= last) return;
  if (last > 1 && slot.sent_at == nullptr) [[unlikely]]
    slot.sent_at = std::make_unique<Time[]>(options_.credits);
  for (; slot.sent < last; --most) {
    if (session.credits == 0 || most == 0) {
      session.stalled_slots |= 1ULL << slot.index;
      if (session.credits == 0) reached("erpc/no_credits");
      return;
    }
    --session.credits;
    const std::uint32_t packet = slot.sent++;
    // A packet goes directly only behind no packet that waits: packets keep their order.
    if (session.rate.is_direct() && session.in_wheel == 0)
      transmit(slot, packet);
    else
      pace(slot, packet);
  }
}

// A credit of this slot has come back.
void Endpoint::send_next(ClientSlot& slot) {
  ClientSession& session = *slot.session;
  const bool is_alone = (session.stalled_slots & ~(1ULL << slot.index)) == 0;
  send_packets(slot, is_alone || bugs_.has(Bug::kOwnSlotFirst) ? kAllPackets : 0);
  if (!is_alone) send_stalled(session);
}

void Endpoint::send_stalled(ClientSession& session) {
  while (session.stalled_slots != 0 && session.credits != 0) {
    const std::uint64_t later = session.stalled_slots & ~1ULL << session.turn;
    session.turn =
        static_cast<std::uint8_t>(std::countr_zero(later != 0 ? later : session.stalled_slots));
    send_packets(session.slots[session.turn], bugs_.has(Bug::kOwnSlotFirst) ? kAllPackets : 1);
  }
}

void Endpoint::pace(ClientSlot& slot, std::uint32_t packet) {
  const Scope step(env_, scope::pace);
  ClientSession& session = *slot.session;
  const Time now = stamp();
  if (session.rate.is_direct()) reached("erpc/behind_wheel");
  std::uint32_t bytes = kHeaderBytes;
  if (packet < slot.request_packets) bytes += piece_bytes(slot.call.request->size(), packet);
  const Time at = session.rate.reserve(bytes, now);
  wheel_.insert({session.index, packet, slot.request_number, session.number}, at, now);
  is_due_earlier_ = true;
  ++slot.in_wheel;
  ++session.in_wheel;
  ++counters_.paced;
  slot.progress = now;
}

void Endpoint::send_due(Time now) {
  wheel_.reap(now, [this](const WheelEntry& entry) {
    const Scope step(env_, scope::leave_wheel);
    ClientSession& session = *clients_[entry.session];
    if (session.number != entry.session_number || session.state == SessionState::kFree) return;
    --session.in_wheel;
    ClientSlot& slot = session.slots[entry.request_number % options_.slots];
    // The packet of a request that has ended holds no buffer: it names the request.
    if (!slot.is_active || slot.request_number != entry.request_number || slot.in_wheel == 0) {
      if (bugs_.has(Bug::kWheelIgnored) && entry.packet < slot.request_packets)
        transmit(slot, entry.packet);
      reached("erpc/ended_in_wheel");
      return;
    }
    --slot.in_wheel;
    transmit(slot, entry.packet);
  });
}

bool Endpoint::credits_are_used() const {
  return std::ranges::none_of(clients_, [](const auto& session) {
    return session->state == SessionState::kConnected && session->credits != 0 &&
           session->stalled_slots != 0;
  });
}

bool Endpoint::wheel_counts_fit() const {
  std::size_t counted = 0;
  for (const auto& session : clients_) {
    if (session->state == SessionState::kFree) continue;
    std::uint32_t waiting = 0;
    for (const ClientSlot& slot : session->slots) {
      if (!slot.is_active) continue;
      const std::uint32_t pieces = std::max(slot.response_packets, 1U);
      if (slot.in_wheel > slot.request_packets + pieces - 1) return false;
      // Those that wait are the last ones.
      if (counters_.retransmissions == 0 && slot.sent_once + slot.in_wheel > slot.sent)
        return false;
      waiting += slot.in_wheel;
    }
    if (waiting > session->in_wheel) return false;
    counted += session->in_wheel;
  }
  return counted <= wheel_.size();
}

// The only packet of a short request: its data are right behind its header.
void Endpoint::transmit_small(ClientSession& session, ClientSlot& slot) {
  const MsgBuffer& request = *slot.call.request;
  const std::uint32_t size = request.size();
  sent_at(slot, 0) = slot.progress = stamp();
  slot.sent_once = 1;
  PacketHeader header;
  header.what = PacketHeader::make_what(PacketKind::kRequest, 0, size, slot.call.type);
  header.whose = session.peer | slot.request_number;
  std::byte* place = request.header(0);
  header.store(place);
  transport_.send_joined(session.to, place, size, request.lkey());
}

void Endpoint::transmit(ClientSlot& slot, std::uint32_t packet) {
  const Scope step(env_, scope::transmit);
  const ClientSession& session = *slot.session;
  const MsgBuffer& request = *slot.call.request;
  sent_at(slot, packet) = slot.progress = stamp();
  if (packet < slot.sent_once) {
    has_sent_again_ = true;
    if (!bugs_.has(Bug::kCopiesMeasured)) sent_at(slot, packet) -= ClientSlot::kSentAgain;
  } else {
    slot.sent_once = packet + 1;
  }
  PacketHeader header;
  header.whose = session.peer | slot.request_number;
  if (packet < slot.request_packets) [[likely]] {
    header.what =
        PacketHeader::make_what(PacketKind::kRequest, packet, request.size(), slot.call.type);
    std::byte* place = request.header(packet);
    header.store(place);
    transport_.send(session.to, place, request.lkey(),
                    request.data() + std::size_t{packet} * payload_,
                    piece_bytes(request.size(), packet), request.lkey());
  } else {
    header.what = PacketHeader::make_what(PacketKind::kResponseRequest, packet, slot.response_size,
                                          slot.call.type);
    transport_.send_control(session.to, header);
  }
  // The transport has posted the batch before this packet: the next batch has its own stamp.
}

}  // namespace pyrdma::erpc
