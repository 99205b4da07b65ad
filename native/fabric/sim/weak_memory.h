// A NIC with weak memory may delay or split the effects of a request. The verbs interface permits
// each of these steps. README.md gives the source of each permission.
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

  // The following functions concern the source of a request.
  bool draws_late_source() { return happens(model_.late_source); }
  /// Reads the source, or parts of it, as late as the completion allows. Returns false when the
  /// message counts as never sent.
  bool gather_late(Message& message, Picos now);

  // The following functions concern writes at the target.
  /// Returns true when the NIC may place a write late or in pieces.
  bool places_late() const;
  /// Places a write in memory now, or piece by piece later.
  void place(Message& message, const Region& region, std::byte* to, Picos now);
  /// Makes all writes of the initiator's queue pair visible.
  static void drain(QueuePairCore& initiator);
  void drain_before_read(QueuePairCore& initiator) const;
  /// Makes all writes visible that queue pair `target` of this NIC has accepted.
  void settle(std::uint32_t target);
  /// From now on the NIC places the writes of one connection in any order.
  void place_in_any_order();

  // The following functions concern atomics at the target.
  /// Returns true when the atomic's write of `value` follows the atomic's read late.
  bool splits_atomic(Message& message, const Region& region, std::byte* at, std::uint64_t value,
                     Picos now);
  /// Makes the pending write-backs of atomics visible that overlap `bytes` bytes at `at`.
  void settle_atomics(const std::byte* at, std::uint64_t bytes);
  /// Counts the pending write-backs of atomics: 1 when one begins, -1 when one is visible or lost.
  void count_split_atomic(int by) { split_atomics_ += by; }

  // The following functions concern reads.
  /// Samples some words or lines of a read at once. The NIC samples the others when the read
  /// executes. Returns the delay of the execution.
  Picos sample_early(Message& message);
  /// Samples the words or lines at `from` that sample_early() has not sampled.
  void sample_rest(Message& message, const std::byte* from);
  /// Places some data of a read or an atomic in local memory before the completion. Returns the
  /// delay of the completion.
  Picos land_early(const Message& message);

  /// Returns true when the crash of the node tears a pending write.
  bool tears_at_crash();

 private:
  bool happens(double probability) { return probability > 0 && draws_.uniform() < probability; }
  void tear(const Message& message, std::byte* to);
  Nic& nic_;
  MemoryModel model_;
  bool orders_writes_;
  int split_atomics_ = 0;  // atomics with a pending write-back
  Rng draws_;
};

}  // namespace pyrdma::fabric::sim
