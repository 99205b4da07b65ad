// Node is a node's part in the litmus suite: its memory and its connections, made once for all
// tests.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "measure/litmus/layout.h"
#include "measure/params.h"

namespace pyrdma::measure::litmus {

inline constexpr std::uint32_t kInlineBytes = 16;
inline constexpr Time kLongestRun = 3600 * kSecond;

struct Connection {
  std::unique_ptr<fabric::CompletionQueue> sends, receives;
  std::unique_ptr<fabric::QueuePair> qp;
};

class Node {
 public:
  /// Blocks until all nodes are connected.
  Node(Env& env, const Params& params, std::span<const Layout> layouts);

  Env& env() { return env_; }
  fabric::MemoryRegion& region(bool relaxed) { return *regions_[relaxed]; }
  fabric::RemoteRegion remote(NodeId peer, bool relaxed) const {
    return peers_[peer].regions[relaxed];
  }
  /// Returns connection number `channel` of the tests between this node and `peer`.
  Connection& connection(NodeId peer, std::size_t channel) {
    return peers_[peer].connections[channel];
  }
  /// Returns the connection between node 0 and the `agent`-th agent of another node.
  Connection& control(NodeId peer, std::size_t agent) {
    return peers_[peer].connections[peers_[peer].channels + agent];
  }
  std::uint64_t* word(std::size_t offset, bool relaxed = false) {
    return reinterpret_cast<std::uint64_t*>(region(relaxed).data() + offset);
  }

  /// Blocks until the queue has given `count` completions. Throws Error for a failed one.
  void await(fabric::CompletionQueue& queue, std::uint32_t count, NodeId peer);
  void post(fabric::QueuePair& qp, const fabric::WorkRequest& request);
  /// Blocks until `ready` returns true, at most `limit`. With `only`, that Watch is notified of
  /// changes. Throws Error(kTimeout), naming `what`; also after fail().
  template <class Ready>
  void wait(const char* what, Ready&& ready, Watch* only = nullptr, Time limit = kWaitTimeout) {
    env_.poll_until([&] { return ready() || failed_.load(std::memory_order_relaxed); },
                    env_.now() + limit, only);
    if (!ready()) throw_waited(what, limit);
  }
  /// Ends the waits of the node's other threads.
  void fail() {
    failed_.store(true, std::memory_order_relaxed);
    env_.notify(commands_);
  }
  /// Node 0 notifies it of a new command for its agents.
  Watch& commands() { return commands_; }

 private:
  struct Peer {
    std::array<fabric::RemoteRegion, 2> regions{};
    std::vector<Connection> connections;
    std::size_t channels = 0;  // of tests; those of control follow
  };
  static constexpr Time kWaitTimeout = 60 * kSecond;
  [[noreturn]] void throw_waited(const char* what, Time limit) const;

  Env& env_;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::array<std::unique_ptr<fabric::MemoryRegion>, 2> regions_;
  std::vector<Peer> peers_;
  std::atomic<bool> failed_{false};
  Watch commands_;
};

}  // namespace pyrdma::measure::litmus
