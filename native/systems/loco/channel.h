// A channel's endpoint on one node (paper, sections 4.1 and 4.2): a name, regions of network
// memory, sub-channels, and what the endpoints of the same name on other nodes told.
//
// An endpoint allocates its regions, says which it expects of others, then joins: each peer gets a
// join message, checks it against its endpoint of that name, and answers with a connect message
// that says where the regions are. A peer without such an endpoint ignores the message; when it
// makes one later, its own join message brings this endpoint to ask again.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "systems/loco/control.h"
#include "systems/loco/manager.h"

namespace pyrdma::loco {

class Channel {
 public:
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel();

  /// The full name: parents before it, separated by '/'.
  const std::string& name() const { return name_; }
  Manager& manager() const { return manager_; }
  NodeId self() const { return manager_.self(); }
  /// The nodes that take part, ascending, this one among them.
  const std::vector<NodeId>& participants() const { return participants_; }
  /// True once every participant has joined and connected.
  bool ready() const { return awaited_.load(std::memory_order_acquire) == 0; }
  /// What two endpoints do not agree on, with both views; empty while all is well.
  std::string problem() const;
  /// " 3 4": the participants that have not joined and connected.
  std::string missing() const;

 protected:
  /// Between all nodes, or those of `participants`, which must hold this node. Throws
  /// Error(kInvalidArgument) for a name that is empty, too long, or holds '.'.
  Channel(Manager& manager, std::string name, std::vector<NodeId> participants = {});
  /// A sub-channel, between the participants of its parent.
  Channel(Channel& parent, std::string_view name);

  /// Allocates this node's region `name`, which its peers may reach. Stays where it is.
  const LocalRegion& add_region(std::string_view name, std::uint64_t bytes,
                                Placement placement = Placement::kHost);
  /// Says that `from`, or every peer, has a region of that name and size; returns its index.
  /// kNoNode: every peer.
  std::uint32_t expect_region(std::string_view name, std::uint64_t bytes,
                              NodeId from = fabric::kNoNode);
  /// Makes the endpoint known and sends the join messages; the last act of a constructor. Throws
  /// Error(kInvalidArgument) when the node has a channel of that name.
  void join();
  /// Runs when a peer's join message has been answered, once per peer, on whichever thread makes
  /// progress. May make sub-channels.
  virtual void joined(NodeId) {}
  /// Runs when a peer's regions are known, once per peer.
  virtual void connected(NodeId) {}

  /// Where the expected region `index` of `peer` is; of this node: its own. Requires that the peer
  /// has connected.
  const RemoteRegion& remote(NodeId peer, std::uint32_t index) const {
    return peers_[peer].regions[index];
  }
  std::uint32_t rank_of(NodeId node) const;

 private:
  friend class Manager;
  struct Expectation {
    std::string name;
    std::uint64_t bytes;
    NodeId from;
  };
  struct Peer {
    bool takes_part = false;
    std::atomic<bool> joined{false};
    std::atomic<bool> connected{false};
    std::array<RemoteRegion, kMaxRegions> regions;
    Peer() = default;
    Peer(const Peer&) {}  // only while the vector is made
  };
  struct OwnRegion {
    std::string name;
    LocalRegion region;
  };

  void check_name() const;
  ControlMessage message(ControlMessage::Kind kind) const;
  void send_join(NodeId peer);
  void handle(const ControlMessage& message);
  void handle_join(const ControlMessage& message);
  void handle_connect(const ControlMessage& message);
  void refuse(NodeId peer, const std::string& reason);
  void report(const std::string& problem);
  const OwnRegion* find_region(std::string_view name) const;

  Manager& manager_;
  std::string name_;
  std::vector<NodeId> participants_;
  std::vector<Peer> peers_;  // by node
  std::vector<OwnRegion> regions_;
  std::vector<Expectation> expectations_;
  std::atomic<std::uint32_t> awaited_{0};  // joins and connects to come
  mutable Mutex problem_mutex_;
  std::string problem_;
};

}  // namespace pyrdma::loco
