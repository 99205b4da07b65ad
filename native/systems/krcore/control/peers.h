// How to reach the services of other nodes: the life of each node, and the port of that life. Both
// are what the rendezvous tells. A datagram only claims them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/krcore/options.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

/// Any thread may use it. Control path, but for the look at a handle, which takes a lock.
class Peers {
 public:
  /// The services of one name meet.
  Peers(Env& env, fabric::ProtectionDomain& domain, const Options& options);

  /// Tells the others this life's port, before the first datagram leaves it.
  void publish(const fabric::QpAddress& port);
  /// Waits for the first life of each other node, and looks for later ones.
  void await_all();
  /// Looks for the next life of a node; returns whether there is one.
  bool find_next(NodeId node);
  /// A table or a message of the node names this life of it.
  void learn(NodeId node, std::uint32_t life);
  /// Tells whether a datagram is of the node and the life that it names, and that life the newest.
  /// It comes from its `port`. A life that is new here is looked up.
  bool is_genuine(const ControlMessage& message);

  struct Peer {
    std::shared_ptr<fabric::AddressHandle> handle;  // null of a life that had no port
    fabric::QpAddress port;
    std::uint32_t life = 0;  // its incarnation
    bool is_known = false;
  };
  /// Returns what is known of a node.
  Peer of(NodeId node);
  std::uint32_t life_of(NodeId node);
  /// Null for a life that ended before it had a port. A handle lives as long as this object.
  const fabric::AddressHandle* handle_of(NodeId node);
  /// A message of the next life may be the first that this node sees of it.
  const fabric::AddressHandle* handle_of_sender(NodeId node);

 private:
  bool find(NodeId node, std::uint32_t life);
  void know(NodeId node, std::uint32_t life, const fabric::QpAddress& port);
  std::string key_of(NodeId node, std::uint32_t life) const;
  Env& env_;
  fabric::ProtectionDomain& domain_;
  const std::string name_;
  const Bugs bugs_;
  Mutex mutex_;
  std::vector<Peer> peers_;
  std::vector<std::shared_ptr<fabric::AddressHandle>> old_handles_;  // requests may name them
};

}  // namespace pyrdma::krcore
