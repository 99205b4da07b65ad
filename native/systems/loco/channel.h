// A channel's endpoint on one node (paper, sections 4.1 and 4.2): a name, regions of network
// memory, sub-channels, and the regions that endpoints of the same name on other nodes have
// announced.
//
// An endpoint allocates its regions, declares the regions that it expects of others, then joins: it
// sends a join message to each peer. The peer checks the message against its endpoint of that name,
// and answers with a connect message that says where its regions are. A peer without such an
// endpoint ignores the message. When the peer makes the endpoint later, its own join message makes
// this endpoint send its join again.
//
// A node may destroy an endpoint and make it again while a peer still has its old one. The i-th
// endpoint of a name and of its participants meets the i-th endpoints on the other nodes. Every
// message carries the number of its endpoint, the generation, and a checksum of the participants;
// an endpoint ignores messages that differ in either. So a peer with an older endpoint acts like a
// peer without one. A peer whose endpoint of the name has other participants may make the wanted
// one later; it says so (kNotYet), and a timeout repeats it.
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

  /// Returns the full name, which starts with the names of the parents, separated by '/'.
  const std::string& name() const { return name_; }
  Manager& manager() const { return manager_; }
  NodeId self() const { return manager_.self(); }
  /// Returns how many endpoints of this name and these participants the node has made so far, with
  /// this one. A sub-channel has the generation of its parent.
  std::uint32_t generation() const { return generation_; }
  /// Returns the nodes that take part, ascending; this node is among them.
  const std::vector<NodeId>& participants() const { return participants_; }
  /// Returns true once every participant has joined and connected.
  bool ready() const { return awaited_.load(std::memory_order_acquire) == 0; }
  /// Throws Error(kInvalidArgument) for a disagreement between two endpoints, with the view of both
  /// and the peer to blame. `at_timeout`: also for one that the peer's next endpoint could end.
  void check_problem(bool at_timeout = false) const;
  /// Returns the participants that have not joined and connected.
  std::vector<NodeId> missing() const;

 protected:
  /// Connects all nodes, or the nodes of `participants`, which must include this node. Throws
  /// Error(kInvalidArgument) for a name that is empty, too long, or contains '.'.
  Channel(Manager& manager, std::string name, std::vector<NodeId> participants = {})
      : Channel(manager, std::move(name), std::move(participants), nullptr) {}
  /// A sub-channel between the participants of its parent.
  Channel(Channel& parent, std::string_view name);

  /// Allocates this node's region `name`, which never moves. `peers` are the rights of peers, an or
  /// of fabric::kRemoteWrite, kRemoteRead and kRemoteAtomic.
  const LocalRegion& add_region(std::string_view name, std::uint64_t bytes, std::uint32_t peers,
                                Placement placement = Placement::kHost);
  /// Declares that `from` has a region of this name and size (kNoNode: that every peer has one).
  /// Returns the index of the expectation.
  std::uint32_t expect_region(std::string_view name, std::uint64_t bytes,
                              NodeId from = fabric::kNoNode);
  /// Registers the endpoint and sends the join messages. Another thread may then call virtual
  /// functions, so the constructor of the most derived class calls it last. Throws
  /// Error(kInvalidArgument) when the node already has a channel of that name.
  void join();
  /// Who calls it: the constructor that gets this, or that of a class derived from it.
  enum class Joins : std::uint8_t { kHere, kDerived };
  /// Runs once per peer after this node has answered the peer's join message, on the thread that
  /// makes progress. May make sub-channels.
  virtual void joined(NodeId) {}
  /// Runs once per peer when the peer's regions are known.
  virtual void connected(NodeId) {}
  /// Runs when this node has lost its connections to a participant; they stay lost. On the thread
  /// that makes progress; must not block.
  virtual void lost(NodeId) {}

  /// Returns the place of the expected region `index` of `peer`; for this node, its own region.
  /// Requires that the peer has connected.
  const RemoteRegion& remote(NodeId peer, std::uint32_t index) const {
    return peers_[peer].regions[index];
  }
  std::uint32_t rank_of(NodeId node) const;
  /// Declares a number that all endpoints of the channel must have given alike, such as an option.
  /// Those that differ are refused, with both numbers.
  void agree(std::string_view option, std::uint64_t value);
  /// The same for a node with a role. Throws Error(kInvalidArgument) unless it is a participant.
  void assign(std::string_view role, NodeId node);
  void require_participant(std::string_view role, NodeId node) const;

 private:
  friend class Manager;
  struct Expectation {
    std::string name;
    std::uint64_t bytes;
    NodeId from;
  };
  struct Agreed {
    std::string option;
    std::uint64_t value;
  };
  struct Peer {
    bool takes_part = false;
    std::atomic<bool> joined{false};
    std::atomic<bool> connected{false};
    std::array<RemoteRegion, kMaxRegions> regions;
    Peer() = default;
    Peer(const Peer&) {}  // called only while the vector is made
  };
  struct OwnRegion {
    std::string name;
    LocalRegion region;
  };

  Channel(Manager& manager, std::string name, std::vector<NodeId> participants,
          const Channel* parent);
  void check_name() const;
  ControlMessage message(ControlMessage::Kind kind) const;
  void send_join(NodeId peer);
  void handle(const ControlMessage& message);
  void handle_join(const ControlMessage& message);
  void handle_connect(const ControlMessage& message);
  void refuse(const ControlMessage& message, const std::string& reason,
              ControlMessage::Kind kind = ControlMessage::kRefuse);
  void report(NodeId peer, const std::string& problem, bool may_pass = false);
  void forget_passed(NodeId peer);
  const OwnRegion* find_region(std::string_view name) const;
  bool agrees(const ControlMessage& join);

  Manager& manager_;
  std::string name_;
  std::vector<NodeId> participants_;
  std::uint64_t participants_sum_;  // their checksum, for messages
  std::uint32_t generation_;
  std::vector<Peer> peers_;  // by node
  std::vector<OwnRegion> regions_;
  std::vector<Expectation> expectations_;
  std::vector<Agreed> agreed_;
  std::atomic<std::uint32_t> awaited_{0};  // joins and connects still to come
  mutable Mutex problem_mutex_;
  std::string problem_;
  NodeId problem_peer_ = 0;
  bool problem_may_pass_ = false;
};

}  // namespace pyrdma::loco
