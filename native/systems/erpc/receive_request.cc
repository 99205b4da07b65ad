// Packets of clients at the server (eRPC, sections 5.1 and 5.3). The server is passive: each packet
// that it sends answers one of a client. It runs the handler of a request once, and drops what is
// not the next packet of the slot's request, or the first one of the next request.
#include <cstring>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

ServerSession* Endpoint::server_session_of(const Packet& packet) {
  const std::uint32_t index = packet.header.session();
  ServerSession* session = index < servers_.size() ? servers_[index].get() : nullptr;
  if (session == nullptr || session->state != SessionState::kConnected ||
      (session->generation != packet.header.generation() && !bugs_.has(Bug::kGenerationIgnored)) ||
      (session->source != packet.source && !bugs_.has(Bug::kSenderNotChecked))) [[unlikely]] {
    ++counters_.unknown_session;
    reached("erpc/unknown_session");
    return nullptr;
  }
  session->heard = packet.arrived;
  session->unanswered = 0;
  return session;
}

[[gnu::flatten]] void Endpoint::receive_request(const Packet& packet) {
  const Scope step(env_, scope::receive_request);
  ServerSession* session = server_session_of(packet);
  if (session == nullptr) [[unlikely]]
    return;
  const std::uint64_t request = packet.header.request();
  ServerSlot& slot = session->slots[request & (options_.slots - 1)];
  if (request == after(slot.request_number) ||
      (bugs_.has(Bug::kExecutesAgain) && request == slot.request_number &&
       slot.state == ServerState::kAnswered) ||
      (bugs_.has(Bug::kOlderRequestTaken) && request < slot.request_number &&
       slot.state == ServerState::kAnswered)) [[likely]] {
    begin_request(*session, slot, packet);
    return;
  }
  if (request != slot.request_number || slot.state == ServerState::kIdle) {
    ++counters_.stale;
    reached("erpc/older_request");
    return;
  }
  const std::uint32_t number = packet.header.packet();
  if (packet.header.size() != slot.size || number >= slot.request_packets) {
    ++counters_.lies;
  } else if (number < slot.received) {
    repeat_answer(*session, slot, number);
  } else if (number > slot.received && !bugs_.has(Bug::kOrderIgnored)) {
    ++counters_.reordered;
    reached("erpc/request_out_of_order");
  } else {
    take_piece(*session, slot, packet);
  }
}

void Endpoint::begin_request(ServerSession& session, ServerSlot& slot, const Packet& packet) {
  const PacketHeader& header = packet.header;
  const std::uint32_t size = header.size();
  if (header.packet() != 0) [[unlikely]] {
    ++counters_.reordered;
    reached("erpc/request_out_of_order");
    return;
  }
  // A client begins the next request of a slot after the response to the last one.
  if (slot.state == ServerState::kReceiving || slot.state == ServerState::kRunning ||
      size > options_.max_message || packet.bytes != piece_bytes(size, 0)) [[unlikely]] {
    ++counters_.lies;
    return;
  }
  release_response(slot);
  slot.request_number = header.request();
  slot.is_answered = slot.is_refused = false;
  slot.is_congested = packet.is_congested;
  slot.type = header.type();
  slot.size = size;
  slot.response_packets = 0;
  const TypeEntry& entry = handlers_[slot.type];
  if (size <= payload_ && entry.is_in_place) [[likely]] {
    slot.request_packets = slot.received = 1;
    slot.data = packet.data;
    RequestHandle handle = begin_handler(session, slot);
    entry.handler(handle);
    return;
  }
  slot.request_packets = packets_of(size);
  slot.received = 0;
  slot.state = ServerState::kReceiving;
  slot.request = buffers_.take(size);
  slot.data = slot.request->data();
  take_piece(session, slot, packet);
}

void Endpoint::take_piece(ServerSession& session, ServerSlot& slot, const Packet& packet) {
  const std::uint32_t number = packet.header.packet();
  if (packet.bytes != piece_bytes(slot.size, number)) [[unlikely]] {
    ++counters_.lies;
    return;
  }
  if (packet.bytes != 0 && options_.request_copies) {
    env_.charge_copy(packet.bytes, slot.request->footprint());
    std::memcpy(slot.request->data() + std::size_t{number} * payload_, packet.data, packet.bytes);
  }
  ++slot.received;
  slot.is_congested = packet.is_congested;
  if (slot.received == slot.request_packets)
    run_handler(session, slot);
  else
    return_credit(session, slot, number);
}

RequestHandle Endpoint::begin_handler(ServerSession& session, ServerSlot& slot) {
  slot.state = ServerState::kRunning;
  ++session.running;
  ++counters_.handled;
  RequestHandle handle;
  handle.endpoint_ = this;
  handle.data_ = slot.data;
  handle.size_ = slot.size;
  handle.session_ = &session;
  handle.generation_ = session.generation;
  handle.client_node_ = session.address.node;
  handle.request_number_ = slot.request_number;
  handle.slot_ = static_cast<std::uint8_t>(slot.request_number & (options_.slots - 1));
  handle.type_ = slot.type;
  return handle;
}

void Endpoint::run_handler(ServerSession& session, ServerSlot& slot) {
  RequestHandle handle = begin_handler(session, slot);
  const TypeEntry& entry = handlers_[slot.type];
  if (entry.handler == nullptr) [[unlikely]] {
    reached("erpc/no_handler");
    slot.is_refused = true;
    handle.response(0);
    handle.respond();
  } else if (entry.where == RunIn::kWorker) {
    workers_->hand_over(handle);
  } else {
    entry.handler(handle);
  }
}

void Endpoint::return_credit(ServerSession& session, const ServerSlot& slot, std::uint32_t packet) {
  PacketHeader header;
  header.what = PacketHeader::make_what(PacketKind::kCreditReturn, packet, slot.size, slot.type);
  if (slot.is_congested) header.what |= PacketHeader::kCongestedBit;
  header.whose = session.peer | slot.request_number;
  transport_.send_control(session.to, header);
}

void Endpoint::receive_response_request(const Packet& packet) {
  const Scope step(env_, scope::receive_request);
  ServerSession* session = server_session_of(packet);
  if (session == nullptr) [[unlikely]]
    return;
  ServerSlot& slot = session->slots[packet.header.request() & (options_.slots - 1)];
  if (packet.header.request() != slot.request_number || slot.state != ServerState::kAnswered) {
    ++counters_.stale;
    reached("erpc/older_request");
    return;
  }
  const std::uint32_t number = packet.header.packet();
  const std::uint32_t piece = number + 1 - slot.request_packets;
  if (number < slot.request_packets || piece >= slot.response_packets) {
    ++counters_.lies;
  } else if (number < slot.received) {
    repeat_answer(*session, slot, number);
  } else if (number > slot.received && !bugs_.has(Bug::kOrderIgnored)) {
    ++counters_.reordered;
    reached("erpc/response_request_out_of_order");
  } else {
    ++slot.received;
    slot.is_congested = packet.is_congested;
    send_response(*session, slot, piece);
  }
}

// The client has sent a packet again: it may have missed the answer.
void Endpoint::repeat_answer(ServerSession& session, ServerSlot& slot, std::uint32_t packet) {
  ++counters_.stale;
  reached("erpc/packet_again");
  if (packet + 1 < slot.request_packets) {
    return_credit(session, slot, packet);
    return;
  }
  if (slot.state != ServerState::kAnswered) return;  // the answer will come
  send_response(session, slot, packet + 1 - slot.request_packets);
  // The next request of this slot uses the buffer again, and it may come before the NIC has read
  // this copy.
  if (!bugs_.has(Bug::kNoDrainAtServer)) transport_.drain();
}

}  // namespace pyrdma::erpc
