// Nodes on real RDMA devices, through libibverbs. Three entry points, as in shm:
//   Session       the controller's side of a run whose nodes are processes, here or on other
//                 machines: a TCP server for the set-up exchange
//   VerbsNode     one node, in its own process
//   VerbsCluster  all nodes as threads of this process (tests, loopback)
// This header needs no header of rdma-core. A build without those has the same interface, and
// throws when a device is opened.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "env/thread/clock.h"
#include "fabric/verbs/choice.h"

namespace pyrdma::fabric::verbs {

inline constexpr std::uint32_t kMaxNodes = 4096;

struct SessionOptions {
  std::uint32_t nodes = 2;  // 1..kMaxNodes
  std::uint64_t seed = 1;
  std::string address = "127.0.0.1";     // address of this machine, as the nodes reach it
  Time greeting_timeout = 10 * kSecond;  // limit for a connected peer to show the token
  std::size_t table_bytes = std::size_t{256} << 20;  // limit of all keys and values together
  std::optional<Clock> clock = std::nullopt;  // of the run; by default a new one, from zero on
};

/// What a node knows of its machine where that is not the controller's: see Welcome.
struct Machine {
  std::uint32_t neighbours = 0;  // other nodes of the run on this machine
  Clock clock;                   // adjusted to the run's clock
};

/// The controller owns the Session until all nodes have ended. It hands name() and token() to the
/// node processes; the token is a secret of this run.
class Session {
 public:
  /// Throws Error(kInvalidArgument) for a bad node count or address, Error(kUnavailable) when it
  /// cannot listen.
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Returns `address:port`, for VerbsNode.
  const std::string& name() const;
  const std::string& token() const;
  std::uint32_t nodes() const;
  /// Returns the nodes that attached and whose connection ended without a leave message.
  std::vector<NodeId> dead_nodes() const;
  bool all_attached() const;
  /// Counts the times that `node` has attached again after the end of its process.
  std::uint32_t incarnation(NodeId node) const;
  /// Reports that a node's process has ended. Without the call, the session notices it by the
  /// node's connection.
  void end(NodeId node);
  /// Returns the time of the run.
  Time now() const;
  /// Makes the blocking Env calls of all nodes throw Error("stopped"). Any thread and signal
  /// handlers may call it.
  void request_stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// VerbsNode is one node in this process.
class VerbsNode {
 public:
  /// Attaches as node `node` of `nodes` and opens the device that `wish` names or whose port has
  /// its address. Tries for up to 30 s to reach a session that is crowded. Throws
  /// Error(kUnavailable) when the session or a device is absent, Error(kInvalidArgument) for a
  /// wrong token, a wrong count or a node that is taken.
  /// Without `machine` the session tells what the node knows of a machine that both share.
  VerbsNode(const std::string& session_name, NodeId node, std::uint32_t nodes,
            const std::string& token, const Wish& wish,
            const std::optional<Machine>& machine = std::nullopt);
  ~VerbsNode();
  VerbsNode(const VerbsNode&) = delete;
  VerbsNode& operator=(const VerbsNode&) = delete;

  /// For the constructing thread and the threads that it spawns.
  Env& env();
  /// Makes the blocking Env calls of this node throw Error("stopped"). Any thread and signal
  /// handlers may call it.
  void request_stop();
  /// Returns the device, port and GID in use, and the reason.
  const Choice& choice() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct VerbsOptions {
  std::uint32_t nodes = 2;  // 1..kMaxNodes
  std::uint64_t seed = 1;
  Wish wish;
};

class VerbsCluster {
 public:
  explicit VerbsCluster(const VerbsOptions& options);
  ~VerbsCluster();
  VerbsCluster(const VerbsCluster&) = delete;
  VerbsCluster& operator=(const VerbsCluster&) = delete;

  std::uint32_t nodes() const;
  Env& env(NodeId node);

  /// Runs `per_node` in one thread per node until all have returned. Rethrows the first error of a
  /// node, which also stops the others. A killed node is not an error.
  void run(FunctionRef<void(Env&)> per_node);
  /// Ends node `node` for its peers: its queue pairs stop answering. The node's own blocking calls
  /// throw NodeKilled.
  void kill(NodeId node);
  /// Makes a running run() throw Error("stopped"). Any thread and signal handlers may call it.
  void request_stop();
  /// Takes back a request to stop. Returns whether there was one.
  bool forget_stop();
  Time now();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::verbs
