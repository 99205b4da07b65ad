// The node's side of the set-up exchange.
#pragma once
#include <mutex>

#include "fabric/fabric.h"
#include "fabric/verbs/exchange.h"

namespace pyrdma::fabric::verbs {

class Node;

/// A controller that many peers reach at once may hang up on a node. The node tries again.
inline constexpr Time kAttachTimeout = 30 * kSecond;

/// Opens a connection of `channel` and introduces the node. Throws Error as VerbsNode's constructor
/// does: at once where another attempt cannot help, for instance with a wrong token, and else after
/// `timeout`.
Link attach(const std::string& session_name, NodeId node, std::uint32_t nodes,
            const std::string& token, Channel channel, Welcome* welcome,
            Time timeout = kAttachTimeout);

class VerbsRendezvous final : public Rendezvous {
 public:
  VerbsRendezvous(Node& node, Link calls) : node_(node), calls_(std::move(calls)) {}
  /// Also throws Error(kExhausted) when the controller's table is full, Error(kUnavailable) when
  /// the controller is gone or has been silent for kSilence.
  void publish(std::string_view key, std::span<const std::byte> value) override;
  std::optional<std::vector<std::byte>> find(std::string_view key) override;
  /// Also throws Error(kUnavailable), naming the ended nodes, when nodes have ended and no node has
  /// published `key` in the half second since.
  std::vector<std::byte> await(std::string_view key, Time deadline) override;
  /// Tells the controller that this node ends on purpose. The peers' requests fail like those to a
  /// dead node.
  void leave();

 private:
  /// Returns the value, or sets `gone` to the nodes that have ended.
  std::optional<std::vector<std::byte>> ask_for(const Bytes& request, Time timeout,
                                                std::string* gone);
  Bytes call(const Bytes& request, Time timeout);
  Node& node_;
  std::mutex mutex_;
  Link calls_;
};

}  // namespace pyrdma::fabric::verbs
