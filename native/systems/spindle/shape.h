// The shape of a view: its members, its subgroups, and where each column of the shared state table
// lies in memory. Every member derives the same shape from the same view (section 2.3: the layout
// stays the same during a view).
//
// The table of a node has the rows of all members, one after the other:
//
//   | heartbeat, doorbell, asleep | control row | per subgroup: received, delivered, guard |
//
// then the slots of the subgroups of this node: for each sender `window` slots. A slot is a word
// that names the round and the size of its message, and the message (sections 2.2 and 2.3).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "env/env.h"

namespace pyrdma::spindle {

using Rank = std::uint32_t;  // place of a member in a view
inline constexpr std::uint32_t kMostMembers = 64;
inline constexpr std::uint32_t kMostSubgroups = 256;     // topics have numbers of 8 bits
inline constexpr std::uint32_t kMostMessage = 1U << 23;  // bytes; the header has 24 bits
inline constexpr std::uint32_t kMostWindow = 1U << 16;
inline constexpr std::uint32_t kNotHere = ~0U;
inline constexpr int kPercentBits = 7;  // of a heartbeat

/// A node at one start of it.
struct Member {
  NodeId node = 0;
  std::uint32_t incarnation = 0;
  bool operator==(const Member&) const = default;
  auto operator<=>(const Member&) const = default;
};

/// When messages of a subgroup reach the application.
enum class Order : std::uint8_t {
  kTotal,     // in one order at all members, once all members have them (atomic multicast)
  kUnordered  // on receipt, in the order of each sender
};

/// What the application asks of a subgroup. Members that are not in a view are left out there.
struct SubgroupSpec {
  std::vector<NodeId> members;         // empty: all members of the view
  std::vector<NodeId> senders;         // among the members; empty: all members
  std::uint32_t window = 100;          // slots of each sender
  std::uint32_t max_message = 10'240;  // bytes
  Order order = Order::kTotal;
};

/// A subgroup in one view.
struct SubgroupShape {
  std::vector<Rank> members, senders;  // ascending; the senders are among the members
  std::uint32_t window = 0, max_message = 0;
  Order order = Order::kTotal;

  /// Bytes of a slot: the message and 8 more, in whole words.
  std::uint64_t slot_bytes() const { return 8 + (std::uint64_t{max_message} + 7) / 8 * 8; }
  std::uint64_t ring_bytes() const { return window * slot_bytes(); }
  std::uint32_t member_index(Rank rank) const;  // kNotHere if it is no member
  std::uint32_t sender_index(Rank rank) const;
};

struct ViewShape {
  std::uint64_t id = 0;
  std::vector<Member> members;  // by rank: the oldest first
  std::vector<SubgroupShape> subgroups;

  /// Throws Error(kInvalidArgument), naming the subgroup, the value and the bound, for a spec that
  /// cannot be. A subgroup without a member in the view has no members.
  static ViewShape of(std::uint64_t id, std::vector<Member> members,
                      const std::vector<SubgroupSpec>& specs);
  std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  std::vector<NodeId> nodes() const;
  std::optional<Rank> rank_of(Member member) const;
  std::optional<Rank> rank_of_node(NodeId node) const;
};

/// Byte offsets in the table of one member.
class Layout {
 public:
  Layout(const ViewShape& shape, Rank owner);

  static constexpr std::uint64_t kHeartbeat = 0, kDoorbell = 8, kAsleep = 16;
  /// A counter, and in its lowest bits the share of time that upcalls take, in percent.
  std::uint64_t heartbeat(Rank row) const { return row * row_bytes_ + kHeartbeat; }
  std::uint64_t doorbell(Rank row) const { return row * row_bytes_ + kDoorbell; }
  std::uint64_t asleep(Rank row) const { return row * row_bytes_ + kAsleep; }
  std::uint64_t control(Rank row) const { return row * row_bytes_ + kControl; }
  std::uint64_t control_bytes() const { return control_bytes_; }
  /// Received, delivered and guard are beside each other. An unordered subgroup has, in the place
  /// of received and delivered, one counter per sender at consumed().
  std::uint64_t received(std::uint32_t subgroup, Rank row) const {
    return row * row_bytes_ + columns_[subgroup];
  }
  std::uint64_t delivered(std::uint32_t subgroup, Rank row) const {
    return received(subgroup, row) + 8;
  }
  std::uint64_t guard(std::uint32_t subgroup, Rank row) const {
    return received(subgroup, row) + 16;
  }
  std::uint64_t consumed(std::uint32_t subgroup, Rank row) const {
    return received(subgroup, row) + 24;
  }
  /// First slot of a sender, by its place among the senders. Only for subgroups of the owner.
  std::uint64_t ring(std::uint32_t subgroup, std::uint32_t sender) const {
    return rings_[subgroup] + sender * ring_bytes_[subgroup];
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::uint64_t kControl = 64;
  std::uint64_t control_bytes_ = 0, row_bytes_ = 0, bytes_ = 0;
  std::vector<std::uint64_t> columns_, rings_, ring_bytes_;  // by subgroup
};

/// Bytes of the longest control row of a view.
std::uint64_t most_control_bytes(const ViewShape& shape);

}  // namespace pyrdma::spindle
