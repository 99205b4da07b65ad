// Weak memory: what a NIC may do between executing a request and letting others see it. Each step
// is one that the verbs interface permits; fabric/sim/README.md gives the source of each.
#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr Picos kLongestGap = 300 * kPicosPerNano;  // between two looks at memory
}  // namespace

// A write reaches memory: now, or piece by piece later.
void Nic::place_weakly(Message& message, const Region& region, std::byte* to, Picos now) {
  QueuePairCore& qp = *message.initiator;
  const bool announces = message.opcode == Opcode::kWriteImm && message.last;
  if (qp.crashed && !announces && faults_ != nullptr && faults_->stream.fire(Fault::torn_crash)) {
    // The sender died while the message was leaving: any of its lines may be there (F14), on a NIC
    // that keeps order the first packets only.
    faults_->stream.reach(Fault::torn_crash);
    ++qp.epoch;  // nothing leaves after it
    Rng& rng = faults_->stream.stream(Fault::torn_crash);
    const Pieces pieces(to, message.length, memory_.is_weak() ? kCacheLine : std::uint64_t{1024});
    const std::uint64_t mask =
        memory_.is_weak() ? rng() : (1ULL << rng.below(std::min(pieces.count, 63u))) - 1;
    return pieces.copy(to, message.payload(), mask);
  }
  if (region.on_device) {  // nothing is late there, and what is on its way to the host not hurried
    settle_atomics(to, message.length);
    std::memcpy(to, message.payload(), message.length);
    if (announces) drain(qp);
    return;
  }
  const bool ordered = orders_writes_ && (region.access & kRelaxedOrdering) == 0;
  if (!orders_writes_ && !qp.placements.empty()) fabric_.count_reached(Fault::placement_reorder);
  if (!announces && draws(memory_.late_placement)) {
    fabric_.count_fired(Fault::late_placement);
    return qp.placements.add(*this, region, to, message.large, message.small, message.length, now,
                             ordered, false);
  }
  if (ordered || announces) drain(qp);
  settle_atomics(to, message.length);
  std::memcpy(to, message.payload(), message.length);
}

void Nic::drain(QueuePairCore& initiator) {
  if (!initiator.placements.empty()) initiator.placements.drain();
}

void Nic::settle_atomics(const std::byte* at, std::uint64_t bytes) {
  if (split_atomics == 0) return;
  for (PlacementQueue* queue : fabric_.placing) queue->settle_atomics(*this, at, bytes);
}

// Some of a read's lines are sampled at once, the others when it executes. Returns how much later
// that is. Nothing of this queue pair is under way, so that no earlier write is missed.
Picos Nic::sample_early(Message& message, const QueuePairCore& qp) {
  if (message.total <= 8 || message.total > fabric_.network.chunk_bytes() ||
      message.epoch != qp.epoch || message.sequence != qp.expected || !draws(memory_.torn_read))
    return 0;
  const QueuePairCore* target = find_target(message);
  if (target == nullptr) return 0;
  const Region* region =
      accessible(message, *target, message.remote_addr, message.total, kRemoteRead);
  if (region == nullptr || region->synthetic) return 0;
  if (memory_.mutation != MemoryMutation::kReadsDoNotDrain) drain(*message.initiator);
  fabric_.count_fired(Fault::torn_read);
  message.length = message.total;
  message.reserve_payload();
  const std::byte* from = region->data + (message.remote_addr - region->addr);
  settle_atomics(from, message.length);
  message.sampled = memory_draws_();
  Pieces(from, message.length, least_unit(message.length))
      .copy(message.payload(), from, message.sampled);
  return static_cast<Picos>(memory_draws_.below(kLongestGap));
}

// Some of what a read or an atomic brings is in local memory before its completion. Returns how
// much later the completion comes.
Picos Nic::land_early(const QueuePairCore& qp, Message& message) {
  if (qp.destroyed || qp.state != QpState::kReadyToSend || message.epoch != qp.epoch ||
      message.sequence < qp.completed || message.status != Status::kSuccess ||
      !qp.entry(message.sequence).needs_data_back())
    return 0;
  if (scatter(qp, message.sequence, message, memory_draws_() & (~0ULL >> 1))) touch();
  return static_cast<Picos>(memory_draws_.below(kLongestGap));
}

bool Nic::tears_at_crash() {
  if (faults_ == nullptr || !faults_->stream.fire(Fault::torn_crash)) return false;
  faults_->stream.reach(Fault::torn_crash);
  return true;
}

}  // namespace pyrdma::fabric::sim
