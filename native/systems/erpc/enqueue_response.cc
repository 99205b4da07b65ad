// Answers of the server (eRPC, sections 3.1 and 4.3). A short response uses the buffer that its
// slot has; section 4.3.
#include <cstring>
#include <string>

#include "base/error.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

[[gnu::flatten]] std::span<std::byte> RequestHandle::response(std::uint32_t bytes) {
  return endpoint_->response_of(*this, bytes);
}

[[gnu::flatten]] void RequestHandle::respond() { endpoint_->respond(*this); }

void RequestHandle::fail(std::string_view message) { endpoint_->fail(*this, message); }

void Endpoint::throw_answered(const RequestHandle& handle, const char* call) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(call) + " a second time for a request of type " +
                  std::to_string(handle.type_) +
                  ", which is answered already: answer each request once");
}

// Returns null if the session or the request is gone. A session with handlers that have not
// answered keeps its memory.
ServerSlot* Endpoint::slot_of(const RequestHandle& handle) {
  if (handle.session_->generation != handle.generation_) return nullptr;
  ServerSlot& slot = handle.session_->slots[handle.slot_];
  return slot.request_number == handle.request_number_ ? &slot : nullptr;
}

std::span<std::byte> Endpoint::response_of(RequestHandle& handle, std::uint32_t bytes) {
  ServerSlot* slot = slot_of(handle);
  if (slot == nullptr || slot->is_answered) [[unlikely]]
    throw_answered(handle, "response()");
  BufferPool& pool = handle.is_worker_ ? worker_buffers_ : buffers_;
  if (slot->response != nullptr && slot->response != slot->preallocated) {
    slot->response->pool().give_back(slot->response);
    slot->response = nullptr;
  }
  if (options_.preallocated_responses && bytes <= options_.preallocated_bytes) [[likely]] {
    // Most of ten thousand sessions never use their later slots: a slot gets its buffer at its
    // first request, and keeps it.
    if (slot->preallocated == nullptr) [[unlikely]]
      slot->preallocated = pool.take(options_.preallocated_bytes);
    slot->response = slot->preallocated;
    slot->response->resize(bytes);
  } else {
    slot->response = pool.take(bytes);
  }
  return slot->response->bytes();
}

void Endpoint::respond(RequestHandle& handle) {
  const Scope step(env_, scope::enqueue_response);
  ServerSlot* slot = slot_of(handle);
  if (slot == nullptr || slot->is_answered) [[unlikely]]
    throw_answered(handle, "respond()");
  if (slot->response == nullptr) response_of(handle, 0);
  slot->is_answered = true;
  if (handle.is_worker_)
    workers_->give_back(handle);
  else
    send_answer(*handle.session_, *slot);
}

void Endpoint::fail(RequestHandle& handle, std::string_view message) {
  const std::string_view text =
      message.empty() ? std::string_view("no message") : message.substr(0, payload_);
  std::memcpy(response_of(handle, static_cast<std::uint32_t>(text.size())).data(), text.data(),
              text.size());
  slot_of(handle)->is_refused = true;
  respond(handle);
}

void Endpoint::answer(const RequestHandle& handle) {
  send_answer(*handle.session_, handle.session_->slots[handle.slot_]);
}

void Endpoint::send_answer(ServerSession& session, ServerSlot& slot) {
  --session.running;
  slot.state = ServerState::kAnswered;
  slot.data = nullptr;
  if (slot.request != nullptr) {
    buffers_.give_back(slot.request);
    slot.request = nullptr;
  }
  if (session.state != SessionState::kConnected) {
    // The client is gone. The session ends with the last answer.
    ++counters_.late_answers;
    reached("erpc/answer_without_client");
    return;
  }
  slot.response_packets = packets_of(slot.response->size());
  if (slot.response_packets == 1) [[likely]]
    send_small_response(session, slot);
  else
    send_response(session, slot, 0);
}

PacketHeader Endpoint::header_of(const ServerSession& session, const ServerSlot& slot,
                                 std::uint32_t piece) {
  PacketHeader header;
  header.what = PacketHeader::make_what(PacketKind::kResponse, slot.request_packets - 1 + piece,
                                        slot.response->size(), slot.type);
  if (slot.is_congested) header.what |= PacketHeader::kCongestedBit;
  if (slot.is_refused) header.what |= PacketHeader::kRefusedBit;
  header.whose = session.peer | slot.request_number;
  return header;
}

// The only packet of a short response: its data are right behind its header.
void Endpoint::send_small_response(const ServerSession& session, const ServerSlot& slot) {
  const MsgBuffer& response = *slot.response;
  std::byte* place = response.header(0);
  header_of(session, slot, 0).store(place);
  transport_.send_joined(session.to, place, response.size(), response.lkey());
}

void Endpoint::send_response(ServerSession& session, ServerSlot& slot, std::uint32_t piece) {
  const MsgBuffer& response = *slot.response;
  std::byte* place = response.header(piece);
  header_of(session, slot, piece).store(place);
  transport_.send(session.to, place, response.lkey(),
                  response.data() + std::size_t{piece} * payload_,
                  piece_bytes(response.size(), piece), response.lkey());
}

void Endpoint::release_response(ServerSlot& slot) {
  if (slot.response != nullptr && slot.response != slot.preallocated)
    slot.response->pool().give_back(slot.response);
  slot.response = nullptr;
}

}  // namespace pyrdma::erpc
