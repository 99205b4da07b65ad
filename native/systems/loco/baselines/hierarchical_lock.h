// A model of Sherman's hierarchical locks (Wang et al., SIGMOD 2022): a table of test-and-set locks
// in the memory of the NICs, and a queue per lock on each node.
//
// The threads of a node queue in order of arrival. Only the first thread of the queue tries to get
// the global lock. A thread that releases the lock hands it to the next thread of its node's queue,
// without the network, a bounded number of times in a row. Then it releases the global lock for
// other nodes. The nodes do not queue: the global lock is not fair.
#pragma once
#include <atomic>
#include <memory>
#include <span>

#include "systems/loco/baselines/test_and_set_lock.h"

namespace pyrdma::loco {

struct HierarchicalOptions {
  bool local_queues = true;          // false: each thread tries to get the global lock
  Grant grant = Grant::kTestAndSet;  // of the global lock
  // Most hand-overs to threads of one node in a row. The public implementation lets 8 threads have
  // a lock in a row.
  std::uint32_t max_handovers = 7;
  std::uint32_t first_place = 0;  // in the queues of a node, for tests: they count modulo 2^32
};

class HierarchicalLocks;

/// An acquisition in progress, like AcquireOp of ticket_lock.h: a started acquisition is polled
/// until it holds the lock. If it is dropped before, also after its error, its caller goes on with
/// it (Caller::finish_later): it waits for its place in the node's queue, gives back what it has
/// got of the lock, and lets the next thread continue. After another error than Error(kTimeout) the
/// next thread continues at once.
class HierarchicalOp {
 public:
  HierarchicalOp() = default;
  HierarchicalOp(HierarchicalOp&&) noexcept = default;
  HierarchicalOp& operator=(HierarchicalOp&& other) noexcept {
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~HierarchicalOp() {
    if (stage_ != Stage::kNone && stage_ != Stage::kHeld) [[unlikely]]
      drop();
  }
  /// Returns true once the caller holds the lock. Never blocks. Throws as TestAndSetOp::poll()
  /// does, and Error(kTimeout) when earlier threads in the node's queue take longer than the
  /// manager's wait_timeout.
  bool poll();
  bool held() const { return stage_ == Stage::kHeld; }
  /// Returns true if a thread of this node handed the lock over. Requires held().
  bool handed_over() const { return handed_over_; }
  /// Returns the place in the node's queue; places of one lock are served one after the other.
  std::uint32_t place() const { return place_; }

 private:
  friend class HierarchicalLocks;
  enum class Stage : std::uint8_t { kNone, kQueue, kGlobal, kHeld };
  HierarchicalOp(HierarchicalLocks& locks, Caller& me, std::uint64_t index);
  bool enter();
  bool take_global();
  void pass_turn();
  class Dropped;
  [[gnu::cold]] void drop();

  HierarchicalLocks* locks_ = nullptr;
  Caller* me_ = nullptr;
  std::uint64_t index_ = 0;
  std::uint32_t place_ = 0;
  MovedValue<Stage> stage_;
  bool handed_over_ = false, overdue_ = false;
  Time deadline_ = 0;
  TestAndSetOp global_;
};

/// Lock i is at participant i modulo the number of participants, in the memory of its NIC.
class HierarchicalLocks : public Channel {
 public:
  HierarchicalLocks(Channel& parent, std::string_view name, std::uint64_t count,
                    const HierarchicalOptions& options = {});
  HierarchicalLocks(Manager& manager, std::string name, std::uint64_t count,
                    const HierarchicalOptions& options = {});
  ~HierarchicalLocks() override;

  std::uint64_t count() const { return global_.count(); }
  NodeId host_of(std::uint64_t i) const { return global_.host_of(i); }
  [[nodiscard]] HierarchicalOp start_acquire(Caller& me, std::uint64_t i) { return {*this, me, i}; }

  // A release has two steps, because the next thread uses other queue pairs: the next thread must
  // not begin before the writes of this thread are placed.

  /// Posts `before`, requests to the lock's host. Posts the unlock of the global lock after them,
  /// with the same doorbell, unless the lock will be handed over. Returns an ended key when there
  /// is nothing to post. The caller keeps the buffers of `before` until the key is complete.
  AckKey start_release(Caller& me, std::uint64_t i, std::span<fabric::WorkRequest> before);
  /// Lets the next thread of this node's queue continue. The caller calls it once the key is
  /// complete.
  void end_release(std::uint64_t i);

 private:
  friend class HierarchicalOp;
  /// The state of a lock for the threads of this node. The thread whose place is served owns it.
  /// Without local queues nothing orders the node's threads, and nobody uses it.
  struct alignas(kCacheLine) Local {
    std::atomic<std::uint32_t> next{0}, serving{0};  // places in the node's queue
    bool has_global = false;                         // the node holds the global lock
    std::uint32_t acquirer = 0;                      // caller that took it, as its word says
    std::uint32_t handovers = 0;                     // since the node took the lock
  };

  void make();
  HierarchicalOptions options_;
  TestAndSetLocks global_;
  std::unique_ptr<Local[]> locals_;
};

}  // namespace pyrdma::loco
