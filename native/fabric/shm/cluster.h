// Nodes that share the memory of one machine. The initiator's CPU plays the NIC, so one-sided
// requests need nothing of the target's threads. Three entry points:
//   Session     the controller's end of a run whose nodes are processes: keeps the shared control
//               segment alive
//   ShmNode     one node, in its own process
//   ShmCluster  all nodes as threads of this process (tests, thread sanitizer); same face as
//               sim::SimCluster
//
// Nothing here has a name in the file system: segments are memory files that die with the last
// process that maps them, whatever killed it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "env/faults.h"

namespace pyrdma::fabric::shm {

inline constexpr std::uint32_t kMaxNodes = 256;

struct SessionOptions {
  std::uint32_t nodes = 2;  // 1..kMaxNodes
  std::uint64_t seed = 1;
};

/// Owned by the controller until all nodes have ended. name() and token() go to the node processes
/// by a pipe or the environment; the token is a secret of this run.
class Session {
 public:
  /// Throws Error(kInvalidArgument) for a bad node count, Error(kUnavailable) when the system has
  /// no memory files.
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::string& name() const;
  const std::string& token() const;
  std::uint32_t nodes() const;
  /// Nodes that attached and whose process has ended without leaving.
  std::vector<NodeId> dead_nodes() const;
  /// The controller knows that the process of `node` has ended, however far it had come: it is
  /// dead for its peers at once, and another process may attach in its place, as the next
  /// incarnation.
  void end(NodeId node);
  /// How often `node` has been taken over from an ended process.
  std::uint32_t incarnation(NodeId node) const;
  /// Time of the run, as all Env::now() of it.
  Time now() const;
  /// True once every node has attached.
  bool all_attached() const;
  /// Makes the blocking Env calls of all nodes throw Error("stopped"). Safe from any thread and
  /// signal handlers.
  void request_stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline std::unique_ptr<Session> create_session(std::uint32_t nodes, std::uint64_t seed = 1) {
  return std::make_unique<Session>(SessionOptions{nodes, seed});
}

/// One node, in this process. A process may hold several nodes of several sessions.
class ShmNode {
 public:
  /// Attaches as node `node` of `nodes`. Throws Error(kUnavailable) when the session is gone or
  /// belongs to somebody else, Error(kInvalidArgument) for a wrong token, count, or a node that is
  /// taken. A node whose process has ended may be taken again: Env::incarnation() is one more then,
  /// nothing else is left of it, and peers connect to it anew.
  ShmNode(const std::string& session_name, NodeId node, std::uint32_t nodes,
          const std::string& token, const FaultOptions& faults = {});
  ~ShmNode();
  ShmNode(const ShmNode&) = delete;
  ShmNode& operator=(const ShmNode&) = delete;

  /// For the constructing thread and those that it spawns.
  Env& env();
  /// Of this incarnation. Not while the node's threads run.
  const FaultCounters& fault_counters() const;
  /// Makes this node's blocking Env calls throw Error("stopped"). Safe from any thread and signal
  /// handlers.
  void request_stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ShmOptions {
  std::uint32_t nodes = 2;  // 1..kMaxNodes
  std::uint64_t seed = 1;
  FaultOptions faults = {};  // of the kinds in fabric/hooks; others throw
};

class ShmCluster {
 public:
  explicit ShmCluster(const ShmOptions& options);
  ~ShmCluster();
  ShmCluster(const ShmCluster&) = delete;
  ShmCluster& operator=(const ShmCluster&) = delete;

  std::uint32_t nodes() const;
  Env& env(NodeId node);

  /// Runs `per_node` in one thread per node until all have returned. Rethrows the first error of a
  /// node, which also stops the others; a killed node is no error.
  void run(FunctionRef<void(Env&)> per_node);
  /// Ends node `node` for its peers, as if its process were gone; its own blocking calls throw
  /// NodeKilled.
  void kill(NodeId node);
  /// Makes a running run() throw Error("stopped"). Safe from any thread and from signal handlers.
  void request_stop();
  Time now() const;
  /// Not while the node's threads run.
  const FaultCounters& fault_counters(NodeId node) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::shm
