// Connects queue pairs of this node with those of its peers.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "runtime/exchange.h"

namespace pyrdma::runtime {

/// Reliable or unreliable connections between nodes. The i-th queue pair that a node adds for a
/// peer is connected with the i-th queue pair that the peer adds for the node. A queue pair to the
/// own node is connected with itself. The queue pairs belong to the caller and outlive the mesh.
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
  void add(NodeId peer, fabric::QueuePair& qp) { ends_[peer].push_back(&qp); }

  /// Publishes this node's addresses, waits for the addresses of the peers, and connects. Blocks
  /// for a handshake per peer and for the NIC's time per queue pair. Throws Error(kTimeout), naming
  /// the key of the peer, after `deadline`, and Error(kInvalidArgument) when a peer has another
  /// number of queue pairs for this node.
  void connect(Time deadline);
  /// Blocks until every node has called it; see node_barrier.
  void meet(Time timeout) const;

 private:
  Env& env_;
  std::string name_;
  std::map<NodeId, std::vector<fabric::QueuePair*>> ends_;
};

/// Returns the addresses of queue pairs, in their order.
std::vector<fabric::QpAddress> addresses_of(const std::vector<fabric::QueuePair*>& qps);

/// Connects each queue pair with the address at the same position. Throws Error(kInvalidArgument),
/// naming both nodes, when the numbers differ.
void connect_all(Env& env, NodeId peer, const std::vector<fabric::QueuePair*>& qps,
                 const std::vector<fabric::QpAddress>& addresses);

}  // namespace pyrdma::runtime
