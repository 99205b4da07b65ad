#include "fabric/sim/remote_access.h"

#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {

void return_old(Message& message, std::uint64_t value) {
  message.chunk.length = sizeof value;
  message.chunk.has_payload = true;
  std::memcpy(message.payload(), &value, sizeof value);
}

}  // namespace

const Region* RemoteAccess::accessible(const Message& message, const QueuePairCore& target,
                                       std::uint64_t bytes, std::uint32_t access) const {
  const Region* region = nic_.regions.find(message.header.rkey);
  if (region == nullptr || region->domain != target.domain || (region->access & access) == 0 ||
      (target.options.access & access) == 0)
    return nullptr;
  return region->covers(message.header.remote_addr, bytes) ? region : nullptr;
}

Status RemoteAccess::write(Message& message, const QueuePairCore& target, Picos now) {
  const RequestHeader& header = message.header;
  if (header.total == 0) return Status::kSuccess;  // the NIC does not check an empty write
  // The first packet carries the length of the whole message (IBA 9.4.3), so the NIC places no byte
  // of a bad message.
  const Region* region = accessible(message, target, header.total, kRemoteWrite);
  if (region == nullptr) return Status::kRemoteAccess;
  if (!region->on_device) nic_.placed(message.chunk.length, message.initiator->nic);
  std::byte* to = region->at(header.remote_addr + message.chunk.offset);
  if (nic_.weak_memory.places_late())
    nic_.weak_memory.place(message, *region, to, now);
  else
    std::memcpy(to, message.payload(), message.chunk.length);
  return Status::kSuccess;
}

Status RemoteAccess::read(Message& message, const QueuePairCore& target) {
  const RequestHeader& header = message.header;
  const bool touches_memory = header.total > 0;  // an empty read still drains earlier writes
  const Region* region = nullptr;
  if (touches_memory) {
    region = accessible(message, target, header.total, kRemoteRead);
    if (region == nullptr) return Status::kRemoteAccess;
  }
  nic_.weak_memory.drain_before_read(*message.initiator);
  if (!touches_memory || header.total > nic_.fabric().network.chunk_bytes())
    return Status::kSuccess;
  Chunk& chunk = message.chunk;
  chunk.length = header.total;
  chunk.has_payload = true;
  message.reserve_payload();
  const std::byte* from = region->at(header.remote_addr);
  nic_.weak_memory.settle_atomics(from, chunk.length);
  if (message.sampled == 0)
    std::memcpy(message.payload(), from, chunk.length);
  else
    nic_.weak_memory.sample_rest(message, from);
  return Status::kSuccess;
}

Status RemoteAccess::atomic(Message& message, const QueuePairCore& target, Picos now) {
  if (message.header.remote_addr % 8 != 0) return Status::kRemoteInvalidRequest;
  const Region* region = accessible(message, target, 8, kRemoteAtomic);
  if (region == nullptr) return Status::kRemoteAccess;
  nic_.weak_memory.drain(*message.initiator);
  const std::uint64_t old_value = execute_atomic(message, *region, now);
  // An initiator in the error state has flushed the request, and may use its slot again.
  if (!message.initiator->completer.has_completed(message.header.sequence))
    message.initiator->sends.set_result(message.header.sequence, old_value);
  return_old(message, old_value);
  return Status::kSuccess;
}

void RemoteAccess::repeat_atomic(Message& message) {
  return_old(message, message.initiator->sends.result(message.header.sequence));
}

// Returns the value that the atomic has found.
std::uint64_t RemoteAccess::execute_atomic(Message& message, const Region& region, Picos now) {
  std::byte* at = region.at(message.header.remote_addr);
  nic_.weak_memory.settle_atomics(at, 8);
  auto* word = reinterpret_cast<std::uint64_t*>(at);
  const std::uint64_t old_value = *word;
  std::uint64_t next = old_value;
  if (message.header.opcode == Opcode::kFetchAdd)
    next += message.operands.compare_add;
  else if (next == message.operands.compare_add)
    next = message.operands.swap;
  if (next != old_value && nic_.weak_memory.splits_atomic(message, region, at, next, now))
    return old_value;
  *word = next;
  nic_.touch();
  return old_value;
}

}  // namespace pyrdma::fabric::sim
