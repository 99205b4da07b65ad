// Weak memory: what a NIC may do between executing a request and letting others see it. Each step
// is one that the verbs interface permits; README.md gives the source of each.
#pragma once
#include <cstdint>

#include "base/rng.h"
#include "env/sim/event_queue.h"
#include "fabric/sim/memory_model.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;
struct Region;

class WeakMemory {
 public:
  WeakMemory(Nic& nic, const MemoryModel& model, Rng draws);
  const MemoryModel& model() const { return model_; }
  Rng& draws() { return draws_; }

  // The source of a request.
  bool draws_late_source() { return happens(model_.late_source); }
  /// Reads the source, or some of it, as late as the completion allows. False when the message has
  /// never left.
  bool gather_late(Message& message);

  // Writes at the target.
  /// Whether a write may be placed otherwise than whole and at once.
  bool places_late() const;
  /// A write reaches memory: now, or piece by piece later.
  void place(Message& message, const Region& region, std::byte* to, Picos now);
  /// Makes visible what the initiator's queue pair has written.
  static void drain(QueuePairCore& initiator);
  void drain_before_read(QueuePairCore& initiator) const;
  /// From now on writes of one connection are placed in any order.
  void place_in_any_order();

  // Atomics at the target.
  /// True when an atomic's write, of `value`, follows its read late.
  bool splits_atomic(Message& message, const Region& region, std::byte* at, std::uint64_t value,
                     Picos now);
  /// Makes visible what is on its way to `bytes` at `at` by atomics.
  void settle_atomics(const std::byte* at, std::uint64_t bytes);
  /// An atomic's write-back begins, or with -1 ends, to be on its way.
  void count_split_atomic(int by) { split_atomics_ += by; }

  // Reads.
  /// Some of a read's lines are sampled at once, the others when it executes. Returns how much
  /// later that is.
  Picos sample_early(Message& message);
  /// Samples what sample_early() has left at `from`.
  void sample_rest(Message& message, const std::byte* from);
  /// Some of what a read or an atomic brings is in local memory before its completion. Returns how
  /// much later the completion comes.
  Picos land_early(const Message& message);

  /// The node crashes: whether a write on its way is torn.
  bool tears_at_crash();

 private:
  bool happens(double probability) { return probability > 0 && draws_.uniform() < probability; }
  void tear(const Message& message, std::byte* to);
  Nic& nic_;
  MemoryModel model_;
  bool orders_writes_;
  int split_atomics_ = 0;  // whose write-back is not visible yet
  Rng draws_;
};

}  // namespace pyrdma::fabric::sim
