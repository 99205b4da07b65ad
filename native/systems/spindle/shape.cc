#include "systems/spindle/shape.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace pyrdma::spindle {

namespace {

std::uint32_t index_in(const std::vector<Rank>& ranks, Rank rank) {
  const auto found = std::ranges::lower_bound(ranks, rank);
  if (found == ranks.end() || *found != rank) return kNotHere;
  return static_cast<std::uint32_t>(found - ranks.begin());
}

void check_bound(std::uint32_t subgroup, const char* what, std::uint64_t value,
                 std::uint64_t most) {
  if (value >= 1 && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, "subgroup " + std::to_string(subgroup) + ": " + what +
                                               " is " + std::to_string(value) + "; give 1 to " +
                                               std::to_string(most));
}

std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

std::uint32_t SubgroupShape::member_index(Rank rank) const { return index_in(members, rank); }
std::uint32_t SubgroupShape::sender_index(Rank rank) const { return index_in(senders, rank); }

std::vector<NodeId> ViewShape::nodes() const {
  std::vector<NodeId> nodes;
  for (const Member& member : members) nodes.push_back(member.node);
  return nodes;
}

std::optional<Rank> ViewShape::rank_of(Member member) const {
  const auto found = std::ranges::find(members, member);
  if (found == members.end()) return std::nullopt;
  return static_cast<Rank>(found - members.begin());
}

std::optional<Rank> ViewShape::rank_of_node(NodeId node) const {
  const auto found = std::ranges::find(members, node, &Member::node);
  if (found == members.end()) return std::nullopt;
  return static_cast<Rank>(found - members.begin());
}

ViewShape ViewShape::of(std::uint64_t id, std::vector<Member> members,
                        const std::vector<SubgroupSpec>& specs) {
  ViewShape shape;
  shape.id = id;
  shape.members = std::move(members);
  if (shape.members.empty() || shape.members.size() > kMostMembers) {
    throw Error(ErrorCode::kInvalidArgument, "a view of " + std::to_string(shape.members.size()) +
                                                 " members; give 1 to " +
                                                 std::to_string(kMostMembers));
  }
  if (specs.size() > kMostSubgroups) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(specs.size()) + " subgroups; give at most " +
                    std::to_string(kMostSubgroups) + ": topics have numbers of 8 bits");
  }
  for (std::uint32_t g = 0; g < specs.size(); ++g) {
    const SubgroupSpec& spec = specs[g];
    check_bound(g, "window", spec.window, kMostWindow);
    check_bound(g, "max_message", spec.max_message, kMostMessage);
    SubgroupShape& subgroup = shape.subgroups.emplace_back();
    subgroup.window = spec.window;
    subgroup.max_message = spec.max_message;
    subgroup.order = spec.order;
    for (Rank rank = 0; rank < shape.size(); ++rank) {
      const NodeId node = shape.members[rank].node;
      const auto is_named = [node](const std::vector<NodeId>& nodes) {
        return nodes.empty() || std::ranges::find(nodes, node) != nodes.end();
      };
      if (!is_named(spec.members)) continue;
      subgroup.members.push_back(rank);
      if (is_named(spec.senders)) subgroup.senders.push_back(rank);
    }
    for (const NodeId sender : spec.senders) {
      if (!spec.members.empty() && std::ranges::find(spec.members, sender) == spec.members.end()) {
        throw Error(ErrorCode::kInvalidArgument, "subgroup " + std::to_string(g) + ": sender " +
                                                     std::to_string(sender) +
                                                     " is no member; add it to the members");
      }
    }
  }
  return shape;
}

Layout::Layout(const ViewShape& shape, Rank owner) {
  control_bytes_ = most_control_bytes(shape);
  std::uint64_t at = kControl + control_bytes_;
  for (const SubgroupShape& subgroup : shape.subgroups) {
    columns_.push_back(at);
    at += 24;
    if (subgroup.order == Order::kUnordered) at += 8 * subgroup.senders.size();
  }
  row_bytes_ = lines(at);
  bytes_ = row_bytes_ * shape.size();
  for (const SubgroupShape& subgroup : shape.subgroups) {
    rings_.push_back(bytes_);
    ring_bytes_.push_back(subgroup.ring_bytes());
    if (subgroup.member_index(owner) != kNotHere)
      bytes_ += lines(subgroup.ring_bytes() * subgroup.senders.size());
  }
}

}  // namespace pyrdma::spindle
