#include "fabric/sim/message.h"

#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void Message::fire(Picos now) {
  switch (stage) {
    case Stage::kAtRack:
    case Stage::kAtSpine:
    case Stage::kAtLastRack:
      return sender->transmitter.cross_racks(*this, now);
    case Stage::kRequestArrives:
      return owner->responder.request_arrives(*this, now);
    case Stage::kRequestExecutes:
      return owner->responder.request_executes(*this, now);
    case Stage::kReadContinues:
      return owner->responses.continue_read(*this, now);
    case Stage::kResponseArrives:
      return owner->completer.response_arrives(*this, now);
    case Stage::kResponseCompletes:
      return owner->completer.response_completes(*this, now);
    case Stage::kLocalCompletes:
      return owner->completer.local_completes(*this, now);
  }
}

void Message::prefetch() const {
  const auto* at = reinterpret_cast<const char*>(this);
  __builtin_prefetch(at + 64);
  __builtin_prefetch(at + 128);
  owner->prefetch();
  initiator->prefetch();
}

void Message::copy_from(const Message& other) {
  stage = other.stage;
  status = other.status;
  owner = other.owner;
  sender = other.sender;
  lead = other.lead;
  placement = other.placement;
  wire_bytes = other.wire_bytes;
  packets = other.packets;
  ecn_marked = other.ecn_marked;
  dropped = other.dropped;
  header = other.header;
  chunk = other.chunk;
  operands = other.operands;
  if (!chunk.has_payload) return;
  reserve_payload();
  std::memcpy(payload(), other.payload(), chunk.length);
}

void Message::refuse(Nak why, Position at, std::uint32_t wait_us) {
  nak = why;
  header.sequence = at.sequence;
  header.signaled = false;
  chunk = {.offset = at.offset};
  rnr_wait_us = wait_us;
}

void MessagePool::grow() {
  storage_.push_back(std::make_unique<Message[]>(kBlock));
  for (std::size_t i = kBlock; i > 0; --i) free_.push_back(&storage_.back()[i - 1]);
}

Message& MessagePool::take(Nic& owner, QueuePairCore& initiator) {
  if (free_.empty()) [[unlikely]]
    grow();
  Message& message = *free_.back();
  free_.pop_back();
  if (!free_.empty()) __builtin_prefetch(free_.back(), 1);
  message.owner = &owner;
  message.initiator = &initiator;
  ++initiator.references;
  message.status = Status::kSuccess;
  message.late_source = message.meddled = message.waited = message.ecn_marked = message.dropped =
      false;
  message.nak = Nak::kNone;
  message.sampled = 0;
  return message;
}

void MessagePool::give_back(Message& message) {
  drop_reference(message.initiator);
  message.initiator = nullptr;
  free_.push_back(&message);
}

}  // namespace pyrdma::fabric::sim
