#include "fabric/sim/weak_memory.h"

#include <algorithm>
#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
WeakMemory::WeakMemory(Nic& nic, const MemoryModel& model, Rng draws)
    : nic_(nic),
      model_(model),
      orders_writes_(model.mutation != MemoryMutation::kUnorderedWrites),
      draws_(draws) {
  draws_.fold_into(nic.fabric().scheduler.fingerprint_fold());
  if (model_.mutation == MemoryMutation::kNoDelay)
    model_.late_placement = model_.late_source = model_.torn_read = model_.split_atomic = 0;
}

bool WeakMemory::gather_late(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  message.late_source = false;
  // The request is already complete or void. The message counts as never sent.
  if (qp.destroyed || qp.retransmit.is_void(message.header.epoch) ||
      qp.completer.has_completed(message.header.sequence))
    return false;
  const std::uint64_t mask = draws_.below(2) == 0 ? ~0ULL : draws_();
  nic_.fabric().count_fired(Fault::late_source);
  if (!qp.nic.dma.gather(message, mask)) {  // the requester will find that the region is gone
    qp.nic.retransmitter.go_back(qp, message.position(), now);
    return false;
  }
  nic_.count_reached(Fault::late_source);
  return true;
}

bool WeakMemory::places_late() const { return model_.is_weak() || nic_.faults() != nullptr; }

void WeakMemory::place(Message& message, const Region& region, std::byte* to, Picos now) {
  QueuePairCore& qp = *message.initiator;
  const std::uint32_t length = message.chunk.length;
  const bool announces = message.header.opcode == Opcode::kWriteImm && message.chunk.last;
  NicFaults* faults = nic_.faults();
  if (qp.crashed && !announces && faults != nullptr && faults->stream.fire(Fault::torn_crash))
    return tear(message, to);
  // A write to the NIC's own memory is never late. Only a write with an immediate drains late
  // writes to host memory.
  if (region.on_device) {
    settle_atomics(to, length);
    std::memcpy(to, message.payload(), length);
    if (announces) drain(qp);
    return;
  }
  const bool ordered = orders_writes_ && (region.access & kRelaxedOrdering) == 0;
  if (!orders_writes_ && !qp.placements.empty()) nic_.count_reached(Fault::placement_reorder);
  if (!announces && happens(model_.late_placement)) {
    nic_.fabric().count_fired(Fault::late_placement);
    return qp.placements.add(nic_, region, to, message.large, message.small, length, now, ordered,
                             false, message.header.remote_qpn);
  }
  if (ordered || announces) drain(qp);
  settle_atomics(to, length);
  std::memcpy(to, message.payload(), length);
}

// The sender crashed while the message was leaving (F14). On a weak NIC, any cache lines of the
// message may be in memory. On a strong NIC, only the first packets may be in memory.
void WeakMemory::tear(const Message& message, std::byte* to) {
  FaultStream& stream = nic_.faults()->stream;
  stream.reach(Fault::torn_crash);
  message.initiator->retransmit.void_all();  // no later message leaves
  Rng& rng = stream.stream(Fault::torn_crash);
  const bool weak = model_.is_weak();
  const Pieces pieces(to, message.chunk.length, weak ? kCacheLine : std::uint64_t{1024});
  const std::uint64_t mask = weak ? rng() : (1ULL << rng.below(std::min(pieces.count, 63u))) - 1;
  pieces.copy(to, message.payload(), mask);
}

void WeakMemory::drain(QueuePairCore& initiator) {
  if (!initiator.placements.empty()) initiator.placements.drain();
}

void WeakMemory::drain_before_read(QueuePairCore& initiator) const {
  if (model_.mutation != MemoryMutation::kReadsDoNotDrain) drain(initiator);
}

void WeakMemory::place_in_any_order() {
  if (!model_.is_weak()) {
    model_.max_delay_ns = MemoryModel::weak().max_delay_ns;
    model_.late_placement = MemoryModel::weak().late_placement;
  }
  orders_writes_ = false;
}

bool WeakMemory::splits_atomic(Message& message, const Region& region, std::byte* at,
                               std::uint64_t value, Picos now) {
  if (!happens(model_.split_atomic)) return false;
  std::memcpy(message.small, &value, sizeof value);
  message.initiator->placements.add(nic_, region, at, message.large, message.small, sizeof value,
                                    now, true, true, message.header.remote_qpn);
  return true;
}

void WeakMemory::settle(std::uint32_t target) {
  for (PlacementQueue* queue : nic_.fabric().placing) queue->settle(nic_, target);
}

void WeakMemory::settle_atomics(const std::byte* at, std::uint64_t bytes) {
  if (split_atomics_ == 0) return;
  for (PlacementQueue* queue : nic_.fabric().placing) queue->settle_atomics(nic_, at, bytes);
}

// No earlier request of this queue pair is under way, so the early sample misses no earlier write.
Picos WeakMemory::sample_early(Message& message) {
  const RequestHeader& header = message.header;
  QueuePairCore& qp = *message.initiator;
  if (header.total <= 8 || header.total > nic_.fabric().network.chunk_bytes() ||
      qp.retransmit.is_void(header.epoch) || message.position() != qp.responder.expected() ||
      !happens(model_.torn_read))
    return 0;
  const QueuePairCore* target = nic_.responder.find_target(message);
  if (target == nullptr) return 0;
  const Region* region = nic_.remote_access.accessible(message, *target, header.total, kRemoteRead);
  if (region == nullptr) return 0;
  drain_before_read(qp);
  nic_.fabric().count_fired(Fault::torn_read);
  const std::uint32_t length = message.chunk.length = header.total;
  message.reserve_payload();
  const std::byte* from = region->at(header.remote_addr);
  settle_atomics(from, length);
  message.sampled = draws_();
  Pieces(from, length, least_unit(length)).copy(message.payload(), from, message.sampled);
  return static_cast<Picos>(draws_.below(static_cast<std::uint64_t>(to_picos(model_.read_gap_ns))));
}

void WeakMemory::sample_rest(Message& message, const std::byte* from) {
  const std::uint32_t length = message.chunk.length;
  Pieces(from, length, least_unit(length)).copy(message.payload(), from, ~message.sampled);
  if (std::memcmp(message.payload(), from, length) != 0) nic_.count_reached(Fault::torn_read);
}

Picos WeakMemory::land_early(const Message& message) {
  const QueuePairCore& qp = *message.initiator;
  const RequestHeader& header = message.header;
  if (!message.chunk.has_payload || !happens(model_.late_placement)) return 0;
  if (qp.destroyed || qp.state != QpState::kReadyToSend || qp.retransmit.is_void(header.epoch) ||
      qp.completer.has_completed(header.sequence) || message.status != Status::kSuccess ||
      !qp.sends[header.sequence].needs_data_back())
    return 0;
  if (nic_.dma.scatter(message, draws_() & (~0ULL >> 1))) nic_.touch();
  return static_cast<Picos>(draws_.below(static_cast<std::uint64_t>(to_picos(model_.read_gap_ns))));
}

bool WeakMemory::tears_at_crash() {
  NicFaults* faults = nic_.faults();
  if (faults == nullptr || !faults->stream.fire(Fault::torn_crash)) return false;
  faults->stream.reach(Fault::torn_crash);
  return true;
}

}  // namespace pyrdma::fabric::sim
