// Nodes on real RDMA devices, through libibverbs. Three entry points, as in shm:
//   Session       the controller's end of a run whose nodes are processes, here or on other
//                 machines: a TCP server for the set-up exchange
//   VerbsNode     one node, in its own process
//   VerbsCluster  all nodes as threads of this process (tests, loopback)
// This header needs no header of rdma-core. A build without those has everything here, and says so
// when a device is opened.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "fabric/verbs/choice.h"

namespace pyrdma::fabric::verbs {

inline constexpr std::uint32_t kMaxNodes = 256;

struct SessionOptions {
  std::uint32_t nodes = 2;  // 1..kMaxNodes
  std::uint64_t seed = 1;
  std::string address = "127.0.0.1";     // of this machine, as the nodes reach it
  Time greeting_timeout = 10 * kSecond;  // for who has connected, to show the token
};

/// Owned by the controller until all nodes have ended. name() and token() go to the node processes;
/// the token is a secret of this run.
class Session {
 public:
  /// Throws Error(kInvalidArgument) for a bad node count or address, Error(kUnavailable) when it
  /// cannot listen.
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// `address:port`, for VerbsNode.
  const std::string& name() const;
  const std::string& token() const;
  std::uint32_t nodes() const;
  /// Nodes that attached and whose connection ended without a farewell.
  std::vector<NodeId> dead_nodes() const;
  bool all_attached() const;
  /// How often `node` has attached again after its process had ended.
  std::uint32_t incarnation(NodeId node) const;
  /// Tells that a node's process has ended, which is otherwise noticed by its connection.
  void end(NodeId node);
  /// Time of the run.
  Time now() const;
  /// Makes the blocking Env calls of all nodes throw Error("stopped"). Safe from any thread and
  /// signal handlers.
  void request_stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One node, in this process.
class VerbsNode {
 public:
  /// Attaches as node `node` of `nodes` and opens the device that `wish` names or that carries its
  /// address. Throws Error(kUnavailable) when the session or a device is not there
  /// or the token is another's, Error(kInvalidArgument) for a wrong count or a node that is taken.
  VerbsNode(const std::string& session_name, NodeId node, std::uint32_t nodes,
            const std::string& token, const Wish& wish);
  ~VerbsNode();
  VerbsNode(const VerbsNode&) = delete;
  VerbsNode& operator=(const VerbsNode&) = delete;

  /// For the constructing thread and those that it spawns.
  Env& env();
  /// Makes this node's blocking Env calls throw Error("stopped"). Safe from any thread and signal
  /// handlers.
  void request_stop();
  /// Which device, port and GID are used, and why.
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
  /// node, which also stops the others; a killed node is no error.
  void run(FunctionRef<void(Env&)> per_node);
  /// Ends node `node` for its peers: its queue pairs stop answering; its own blocking calls throw
  /// NodeKilled.
  void kill(NodeId node);
  /// Makes a running run() throw Error("stopped"). Safe from any thread and from signal handlers.
  void request_stop();
  Time now();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::verbs
