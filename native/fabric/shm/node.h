// Node is one node in this process: its control segment, its view of the other nodes, its Env and
// its device.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "env/faults.h"
#include "env/thread/thread_env.h"
#include "fabric/fabric.h"
#include "fabric/shm/lock.h"
#include "fabric/shm/peer.h"
#include "fabric/shm/session_block.h"

namespace pyrdma::fabric::shm {

class Node;
class ShmDevice;

/// Waiter is a queue pair whose oldest request waits for the peer (no receive posted, no answer).
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// Retries the requests that are due. Returns true when none waits any more. Does nothing while
  /// another thread retries.
  virtual bool retry(Time now) = 0;
};

/// WaitingList holds the waiters of one node. Posts add them, pollers and the monitor retry them.
class WaitingList {
 public:
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  void add(Waiter& waiter);
  void remove(Waiter& waiter);
  void retry(Time now);

 private:
  std::mutex mutex_;
  std::vector<Waiter*> waiters_;
  std::atomic<std::size_t> count_{0};
};

class Node final : public ThreadHost {
 public:
  /// Takes the place `self` of the session. Throws Error(kInvalidArgument) when it is taken.
  Node(std::shared_ptr<Mapping> session, NodeId self, MappingTable& mappings,
       std::uint32_t threads_before, const FaultOptions& faults = {});
  ~Node() override;

  SessionBlock& session() const { return session_block(*session_); }
  NodeId self() const { return self_; }
  /// Returns the session's number of nodes, as it was when this node attached.
  std::uint32_t nodes() const { return nodes_; }
  std::uint32_t incarnation() const { return incarnation_; }
  /// Returns the word by which locks in shared memory know this node.
  std::uint32_t holder() const { return holder_word(self_, incarnation_); }
  Control& control() const { return *reinterpret_cast<Control*>(control_->data()); }
  std::uint64_t epoch() const { return control().header.epoch.load(std::memory_order_acquire); }
  /// Tells peers to reread their cached knowledge of this node.
  void change_epoch() { control().header.epoch.fetch_add(1, std::memory_order_acq_rel); }
  Peer& own_peer() { return *own_peer_; }
  /// Returns the present incarnation of `node` (below nodes()), or the last one. Any thread may
  /// call it.
  std::shared_ptr<Peer> peer(NodeId node);
  /// Reports that this incarnation of `node` has ended. Any thread may call it.
  void mark_gone(NodeId node, std::uint32_t incarnation);
  MappingTable& mappings() { return mappings_; }
  ThreadEnv& env() { return env_; }
  WaitingList& waiting() { return waiting_; }
  /// Sets the function that wakes the monitor when requests have begun to wait.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
  void wake_monitor() {
    if (wake_) wake_();
  }

  void stop() { stop_.store(true, std::memory_order_release); }
  void clear_stop() { stop_.store(false, std::memory_order_release); }
  /// Ends the node for its peers; its own threads end at their next blocking call.
  void kill();

  void on_slow_turn() override;
  bool crowded() const override;
  /// Counts the faults of this incarnation. No thread of the node may run meanwhile.
  const FaultCounters& fault_counters() const { return fault_counters_; }
  void thread_runs(int change) override { session().add_running(self_, change); }

 private:
  void attach_device();
  void leave(NodeState state);

  std::shared_ptr<Mapping> session_;
  NodeId self_;
  std::uint32_t nodes_;
  std::uint32_t incarnation_;
  MappingTable& mappings_;
  std::shared_ptr<Mapping> control_;
  std::shared_ptr<Peer> own_peer_;
  std::mutex peers_mutex_;
  std::vector<std::shared_ptr<Peer>> peers_;
  std::atomic<bool> stop_{false};
  WaitingList waiting_;
  std::function<void()> wake_;
  ThreadEnv env_;
  std::unique_ptr<ShmDevice> device_;
  FaultOptions faults_;
  FaultCounters fault_counters_;
  std::unique_ptr<FaultStream> fault_stream_;
  std::unique_ptr<Device> faulty_device_;  // null without faults
};

}  // namespace pyrdma::fabric::shm
