// Connects this node with its peers: a handshake with each.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "env/env.h"
#include "fabric/fabric.h"
#include "runtime/handshake.h"

namespace pyrdma::runtime {

/// Reliable or unreliable connections between nodes; see Handshake. The queue pairs belong to the
/// caller and outlive the mesh.
///
///   Mesh mesh(env, "name of the run and the mesh");
///   mesh.add(peer, *qp);  // for each queue pair
///   mesh.connect(deadline);
///   ...                   // post receives
///   mesh.meet(timeout);   // no node sends before all can receive
class Mesh {
 public:
  /// Nodes whose meshes have the same name connect. A name is used once.
  Mesh(Env& env, std::string name) : env_(env), name_(std::move(name)) {}
  void add(NodeId peer, fabric::QueuePair& qp) {
    handshakes_.try_emplace(peer, env_, name_, peer).first->second.add(qp);
  }

  /// Makes the handshakes and blocks for each of them. Throws Error(kTimeout), naming all nodes
  /// that did not come, after `deadline`; otherwise throws as Handshake does.
  void connect(Time deadline);
  /// Blocks until every node has called it; see node_barrier.
  void meet(Time timeout) const;

 private:
  [[noreturn]] void throw_missing(const Error& error);
  Env& env_;
  std::string name_;
  std::map<NodeId, Handshake> handshakes_;
};

}  // namespace pyrdma::runtime
