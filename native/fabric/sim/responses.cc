#include "fabric/sim/responses.h"

#include <algorithm>
#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr Picos kReadAhead =
    1000 * kPicosPerNano;  // a long read runs this far ahead of the link and PCIe
}

void Responses::answer(Message& message, Picos ready, Picos now) {
  ResponsesState& state = message.initiator->responses;
  if (state.long_read_ != nullptr) {
    message.next_behind = nullptr;
    (state.first_behind_ == nullptr ? state.first_behind_ : state.last_behind_->next_behind) =
        &message;
    state.last_behind_ = &message;
    return;
  }
  const bool long_read = message.header.opcode == Opcode::kRead &&
                         message.status == Status::kSuccess && message.nak == Nak::kNone &&
                         message.header.total > nic_.fabric().network.chunk_bytes();
  if (!long_read) return respond(message, ready, now);
  state.long_read_ = &message;
  continue_read(message, now);
}

void Responses::abandon(QueuePairCore& qp) {
  ResponsesState& state = qp.responses;
  state.long_read_ = nullptr;  // its event is still to come
  while (state.first_behind_ != nullptr) {
    Message& next = *state.first_behind_;
    state.first_behind_ = next.next_behind;
    nic_.release(next);
  }
}

void Responses::respond(Message& message, Picos ready, Picos now) {
  const Network& network = nic_.fabric().network;
  const bool data = message.status == Status::kSuccess && message.chunk.length > 0 &&
                    is_one_of(message.header.opcode, kReturning);
  const Network::WireSize wire = data ? network.connected(message.chunk.length) : network.control();
  message.wire_bytes = wire.bytes;
  message.packets = wire.packets;
  nic_.transmitter.send_response(message, now, ready);
}

void Responses::end_long_read(QueuePairCore& qp, Picos now) {
  ResponsesState& state = qp.responses;
  state.long_read_ = nullptr;
  while (state.first_behind_ != nullptr && state.long_read_ == nullptr) {
    Message& next = *state.first_behind_;
    state.first_behind_ = next.next_behind;
    Nic& responder = *next.owner;
    if (responder.dead())
      responder.retransmitter.lost(next, now);
    else
      responder.responses.answer(next, now, now);
  }
}

// Makes the next chunk of a long read, and samples the memory now.
Message& Responses::make_chunk(const Message& read, QueuePairCore& target) {
  const RequestHeader& header = read.header;
  Message& piece = nic_.fabric().pool.take(nic_, *read.initiator);
  piece.header = header;
  const std::uint32_t offset = read.chunk.offset;
  Chunk& chunk = piece.chunk;
  chunk.offset = offset;
  chunk.length = std::min(header.total - offset, nic_.fabric().network.chunk_bytes());
  chunk.first = offset == 0;
  chunk.last = offset + chunk.length == header.total;
  const Region* region = nic_.remote_access.accessible(read, target, header.total, kRemoteRead);
  if (region == nullptr) {  // deregistered meanwhile
    piece.status = Status::kRemoteAccess;
    if (target.options.transport == Transport::kRc) target.enter_error();
    return piece;
  }
  chunk.has_payload = true;
  piece.reserve_payload();
  const std::byte* from = region->at(header.remote_addr + offset);
  nic_.weak_memory.settle_atomics(from, chunk.length);
  std::memcpy(piece.payload(), from, chunk.length);
  return piece;
}

// Fetches a chunk from the host's memory. Returns the time at which the chunk can begin to leave.
Picos Responses::fetch(const Message& piece, Picos now) {
  const Region* region = nic_.regions.find(piece.header.rkey);
  if (region == nullptr || region->on_device) return now;
  const std::uint32_t length = piece.chunk.length;
  return nic_.pcie.read(now, now, length, nic_.fabric().network.wire_time(length));
}

void Responses::continue_read(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (qp.responses.long_read_ != &message) return nic_.release(message);
  QueuePairCore* target = nic_.dead() ? nullptr : nic_.responder.find_target(message);
  if (target == nullptr) {  // it answers no more
    ++qp.references;        // keeps the queue pair until its other messages are gone, too
    nic_.retransmitter.lost(message, now);
    end_long_read(qp, now);
    return drop_reference(&qp);
  }
  Message& piece = make_chunk(message, *target);
  message.chunk.offset += piece.chunk.length;
  const bool done = piece.chunk.last || piece.status != Status::kSuccess;
  const Picos fetched = fetch(piece, now);
  respond(piece, fetched, now);
  if (done) {
    end_long_read(qp, now);
    return nic_.release(message);
  }
  message.stage = Message::Stage::kReadContinues;
  const Picos ahead = std::max(fetched, nic_.transmitter.free_at()) - kReadAhead;
  nic_.fabric().scheduler.schedule(message, std::max(now, ahead));
}

}  // namespace pyrdma::fabric::sim
