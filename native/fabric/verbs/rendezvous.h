// The node's end of the set-up exchange.
#pragma once
#include <mutex>

#include "fabric/fabric.h"
#include "fabric/verbs/exchange.h"

namespace pyrdma::fabric::verbs {

class Node;

/// Opens a connection of `channel` and introduces the node. Throws Error as VerbsNode's constructor
/// does.
Link attach(const std::string& session_name, NodeId node, std::uint32_t nodes,
            const std::string& token, Channel channel, Welcome* welcome);

class VerbsRendezvous final : public Rendezvous {
 public:
  VerbsRendezvous(Node& node, Link calls) : node_(node), calls_(std::move(calls)) {}
  /// Also throws Error(kExhausted) when the controller's table is full, Error(kUnavailable) when
  /// the controller is gone or has been silent for kSilence.
  void publish(std::string_view key, std::span<const std::byte> value) override;
  /// Also throws Error(kUnavailable), naming them, when nodes have ended and nobody published `key`
  /// for half a second since.
  std::vector<std::byte> await(std::string_view key, Time deadline) override;
  /// A farewell: this node ends on purpose. The peers' requests fail like those to a dead one.
  void leave();

 private:
  Bytes call(const Bytes& request, Time timeout);
  Node& node_;
  std::mutex mutex_;
  Link calls_;
};

}  // namespace pyrdma::fabric::verbs
