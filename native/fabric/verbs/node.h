// Node is one node in this process: its place in the run, its Env, its device, and the thread that
// waits for events of the controller and the device.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "env/thread/thread_env.h"
#include "fabric/fabric.h"
#include "fabric/verbs/choice.h"
#include "fabric/verbs/cluster.h"
#include "fabric/verbs/rendezvous.h"

namespace pyrdma::fabric::verbs {

class Node;

/// NodeDevice is a device as its node uses it.
class NodeDevice : public Device {
 public:
  /// The descriptor is readable when the device has an event.
  virtual int event_descriptor() const = 0;
  /// Takes in the device's asynchronous events. Any thread may call it.
  virtual void take_events() = 0;
  /// Returns when the chosen port went down, or 0 while it is up.
  virtual Time port_down_since() const = 0;
  /// Makes all queue pairs stop answering.
  virtual void kill() = 0;
  virtual const Choice& choice() const = 0;
};

/// Opens the device that `wish` names. Throws Error(kUnavailable).
std::unique_ptr<NodeDevice> open_device(Node& node, const Wish& wish);

struct NodeOptions {
  std::string session;
  NodeId self = 0;
  std::uint32_t nodes = 1;
  std::string token;
  Wish wish;
  std::optional<Machine> machine = std::nullopt;
  /// Counts the threads of all nodes of this process that want a core; null: the node has its own
  /// count.
  std::atomic<int>* running = nullptr;
  /// Other nodes on this machine are other processes, each with a thread that wants a core.
  bool alone_in_process = true;
};

class Node final : public ThreadHost {
 public:
  explicit Node(const NodeOptions& options);
  ~Node() override;

  NodeId self() const { return options_.self; }
  std::uint32_t nodes() const { return options_.nodes; }
  ThreadEnv& env() { return *env_; }
  VerbsRendezvous& rendezvous() { return *rendezvous_; }
  NodeDevice& device() { return *device_; }

  void stop() { stop_.store(true, std::memory_order_release); }
  void clear_stop() { stop_.store(false, std::memory_order_release); }
  bool is_killed() const { return killed_.load(std::memory_order_acquire); }
  /// Ends the node for its peers; its own threads end at their next blocking call.
  void kill();

  void on_slow_turn() override;
  bool crowded() const override;
  void thread_runs(int change) override { running().fetch_add(change, std::memory_order_relaxed); }

 private:
  std::atomic<int>& running() const {
    return options_.running != nullptr ? *options_.running : own_running_;
  }
  void listen();

  NodeOptions options_;
  Welcome welcome_;
  mutable std::atomic<int> own_running_{0};
  int cores_ = 1;
  std::atomic<bool> stop_{false}, killed_{false}, ending_{false}, abandoned_{false};
  std::unique_ptr<VerbsRendezvous> rendezvous_;
  std::unique_ptr<ThreadEnv> env_;
  std::unique_ptr<NodeDevice> device_;
  Link events_;
  int wake_ = -1;
  std::thread listener_;
};

}  // namespace pyrdma::fabric::verbs
