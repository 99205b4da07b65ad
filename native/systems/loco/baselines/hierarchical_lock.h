// A model of Sherman's hierarchical locks (Wang et al., SIGMOD 2022): a table of test-and-set locks
// in the memory of the NICs, and on each node a queue per lock.
//
// A node's threads queue in the order in which they come, and only the first of the queue tries for
// the global lock. A thread that gives the lock back hands it to the next of its node's queue,
// without the network, a bounded number of times in a row; then it sets the global lock free for
// other nodes. The nodes do not queue: the global lock is not fair.
#pragma once
#include <atomic>
#include <memory>
#include <span>

#include "systems/loco/baselines/test_and_set_lock.h"

namespace pyrdma::loco {

struct HierarchicalOptions {
  bool local_queues = true;  // false: each thread tries for the global lock by itself
  // To threads of one node in a row. The public implementation lets 8 threads have a lock in a row.
  std::uint32_t max_handovers = 7;
};

class HierarchicalLocks;

/// An acquisition under way; as AcquireOp of ticket_lock.h: once started it is polled until it
/// holds.
class HierarchicalOp {
 public:
  HierarchicalOp() = default;
  /// True once the caller holds the lock. Never blocks. Throws as TestAndSetOp::poll() does, and
  /// Error(kTimeout) when the threads before it in the node's queue take longer than the manager's
  /// wait_timeout.
  bool poll();
  bool held() const { return stage_ == Stage::kHeld; }
  /// Whether a thread of this node handed the lock over. Requires held().
  bool handed_over() const { return handed_over_; }
  /// The place in the node's queue: those of one lock are served one after the other.
  std::uint32_t place() const { return place_; }

 private:
  friend class HierarchicalLocks;
  enum class Stage : std::uint8_t { kQueue, kGlobal, kHeld };
  HierarchicalOp(HierarchicalLocks& locks, Caller& me, std::uint64_t index);
  bool enter();

  HierarchicalLocks* locks_ = nullptr;
  Caller* me_ = nullptr;
  std::uint64_t index_ = 0;
  std::uint32_t place_ = 0;
  Stage stage_ = Stage::kQueue;
  bool handed_over_ = false;
  Time deadline_ = 0;
  TestAndSetOp global_;
};

/// Lock i is at participant i modulo their number, in the memory of its NIC.
class HierarchicalLocks : public Channel {
 public:
  HierarchicalLocks(Channel& parent, std::string_view name, std::uint64_t count,
                    const HierarchicalOptions& options = {});
  HierarchicalLocks(Manager& manager, std::string name, std::uint64_t count,
                    const HierarchicalOptions& options = {});

  std::uint64_t count() const { return global_.count(); }
  NodeId host_of(std::uint64_t i) const { return global_.host_of(i); }
  [[nodiscard]] HierarchicalOp start_acquire(Caller& me, std::uint64_t i) { return {*this, me, i}; }

  // A release has two steps, since the next thread uses other queue pairs: it must not begin before
  // what this one wrote is there.

  /// Posts `before`, requests to the lock's host, and behind them, with the same doorbell, the
  /// unlock of the global lock, unless the lock will be handed over. Returns an ended key when
  /// there is nothing to post. The caller keeps the buffers of `before` until the key is done.
  AckKey start_release(Caller& me, std::uint64_t i, std::span<fabric::WorkRequest> before);
  /// Lets the next thread of this node's queue go on; called once the key is done.
  void end_release(std::uint64_t i);

 private:
  friend class HierarchicalOp;
  /// A lock as the threads of this node see it; owned by the one whose place is served.
  struct alignas(kCacheLine) Local {
    std::atomic<std::uint32_t> next{0}, serving{0};  // places in the node's queue
    bool has_global = false;                         // the node holds the global lock
    std::uint32_t handovers = 0;                     // since it was taken
  };

  HierarchicalOptions options_;
  TestAndSetLocks global_;
  std::unique_ptr<Local[]> locals_;
};

}  // namespace pyrdma::loco
