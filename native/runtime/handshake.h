// The set-up of the connections between this node and one peer, in steps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "runtime/exchange.h"

namespace pyrdma::runtime {

/// Connects queue pairs of this node with queue pairs of one peer. The i-th queue pair that a node
/// adds is connected with the i-th queue pair that the peer adds under the same name. A node that
/// is its own peer connects each queue pair with itself. The queue pairs belong to the caller.
///
///   Handshake handshake(env, "name of the run and the attempt", peer);
///   handshake.add(*qp);  // for each queue pair
///   handshake.offer();
///   handshake.await(deadline);  // or find(), again and again, beside other work
///   handshake.connect();
class Handshake {
 public:
  /// Two nodes use a name once for each other.
  Handshake(Env& env, const std::string& name, NodeId peer)
      : env_(env), peer_(peer), exchange_(env, name, peer) {}
  void add(fabric::QueuePair& qp) { qps_.push_back(&qp); }
  /// Publishes the addresses of this node's queue pairs.
  void offer() const;
  /// Returns true if the peer has published its addresses by now. Cost: that of Rendezvous::find.
  bool find();
  /// Waits for the addresses of the peer. Throws Error(kTimeout), naming the peer, after
  /// `deadline`.
  void await(Time deadline);
  /// Returns the number of the peer's queue pairs. Requires their addresses.
  std::size_t offered() const { return theirs_.size(); }
  /// Connects the queue pairs; the peer's may not be connected yet. Requires the peer's addresses.
  /// Blocks for the NIC's time per queue pair. Throws Error(kInvalidArgument), naming both nodes,
  /// when the peer has another number of queue pairs.
  void connect() const;

 private:
  using Addresses = std::vector<fabric::QpAddress>;
  Addresses ours() const;

  Env& env_;
  NodeId peer_;
  Exchange exchange_;
  std::vector<fabric::QueuePair*> qps_;
  Addresses theirs_;
};

/// Names the incarnations that meet: "<of the lower node>-<of the higher node>", which is the same
/// text on both nodes.
std::string incarnation_pair(const Env& env, std::uint32_t ours, NodeId peer, std::uint32_t theirs);

}  // namespace pyrdma::runtime
