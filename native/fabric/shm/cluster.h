// The nodes share the memory of one machine. The initiator's CPU plays the NIC, so one-sided
// requests need no thread of the target. Three entry points:
//   Session     the controller's side of a run whose nodes are processes; it keeps the shared
//               control segment alive
//   ShmNode     one node, in its own process
//   ShmCluster  all nodes as threads of this process (tests, thread sanitizer); same interface
//               as sim::SimCluster
//
// No segment has a name in the file system: segments are memory files that vanish with the last
// process that maps them, however it ended.
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

/// The controller owns the Session until all nodes have ended. It hands name() and token() to the
/// node processes by a pipe or the environment; the token is a secret of this run.
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
  /// Returns the nodes that attached and whose process has ended without leaving.
  std::vector<NodeId> dead_nodes() const;
  /// Reports that the process of `node` has ended, whatever its progress. The node is dead for its
  /// peers at once, and another process may attach in its place as the next incarnation.
  void end(NodeId node);
  /// Counts the processes that took over `node` from an ended process.
  std::uint32_t incarnation(NodeId node) const;
  /// Returns the time of the run, as every Env::now() of the run does.
  Time now() const;
  /// Returns true once every node has attached.
  bool all_attached() const;
  /// Makes the blocking Env calls of all nodes throw Error("stopped"). Any thread and signal
  /// handlers may call it.
  void request_stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline std::unique_ptr<Session> create_session(std::uint32_t nodes, std::uint64_t seed = 1) {
  return std::make_unique<Session>(SessionOptions{nodes, seed});
}

/// ShmNode is one node in this process. A process may hold several nodes of several sessions.
class ShmNode {
 public:
  /// Attaches as node `node` of `nodes`. Throws Error(kUnavailable) when the session is gone or
  /// belongs to another user, Error(kInvalidArgument) for a wrong token, a wrong count, or a node
  /// that is taken. A node whose process has ended may be taken again: Env::incarnation() is then
  /// one more, nothing else is left of the node, and peers connect to it again.
  ShmNode(const std::string& session_name, NodeId node, std::uint32_t nodes,
          const std::string& token, const FaultOptions& faults = {});
  ~ShmNode();
  ShmNode(const ShmNode&) = delete;
  ShmNode& operator=(const ShmNode&) = delete;

  /// For the constructing thread and the threads that it spawns.
  Env& env();
  /// Counts the faults of this incarnation. No thread of the node may run meanwhile.
  const FaultCounters& fault_counters() const;
  /// Makes the blocking Env calls of this node throw Error("stopped"). Any thread and signal
  /// handlers may call it.
  void request_stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ShmOptions {
  std::uint32_t nodes = 2;  // 1..kMaxNodes
  std::uint64_t seed = 1;
  FaultOptions faults = {};  // the kinds of fabric/hooks; others throw
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
  /// node, which also stops the others. A killed node is not an error.
  void run(FunctionRef<void(Env&)> per_node);
  /// Ends node `node` for its peers as the end of its process would. The node's own blocking calls
  /// throw NodeKilled.
  void kill(NodeId node);
  /// Makes a running run() throw Error("stopped"). Any thread and signal handlers may call it.
  void request_stop();
  /// Takes back a request to stop. Returns whether there was one.
  bool forget_stop();
  Time now() const;
  /// No thread of the node may run meanwhile.
  const FaultCounters& fault_counters(NodeId node) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::shm
