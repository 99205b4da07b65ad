// Which backup a primary asks for a replica. Tailwind leaves the choice to the store (section
// 3.3.1); RAMCloud takes the best of five random ones. With groups a server's replicas lie at the
// servers of its group: it then has as many connections as the group has members, whatever the size
// of the cluster, and few sets of servers hold all replicas of a segment.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

/// Groups of neighbouring nodes; the last one takes the rest. Who is up does not change them.
class Groups {
 public:
  /// Nodes 0 to `servers` - 1 have servers.
  Groups(NodeId servers, std::uint32_t replicas)
      : size_(replicas + 1), servers_(servers), groups_(std::max(servers / size_, NodeId{1})) {}
  NodeId of(NodeId node) const { return std::min(node / size_, groups_ - 1); }
  /// All members of the node's group are among `nodes`.
  bool are_among(const std::set<NodeId>& nodes, NodeId node) const {
    const NodeId group = of(node);
    for (NodeId member = group * size_; member < servers_ && of(member) == group; ++member)
      if (!nodes.contains(member)) return false;
    return true;
  }

 private:
  NodeId size_, servers_, groups_;
};

/// Returns a server of `candidates`, or none if it is empty. `servers`: nodes 0 to servers - 1 have
/// them; `held`: replicas of this primary by server.
inline const ServerId* choose_backup(Placement placement, ServerId self, NodeId servers,
                                     const std::vector<ServerId>& candidates,
                                     const std::map<ServerId, std::uint32_t>& held,
                                     std::uint32_t replicas, Rng& rng) {
  if (candidates.empty()) return nullptr;
  const auto any = [&] { return &candidates[rng.below(candidates.size())]; };
  if (placement == Placement::kRandom) return any();
  if (placement == Placement::kBestOfFive) {
    const auto count = [&](const ServerId* id) {
      const auto at = held.find(*id);
      return at == held.end() ? 0 : at->second;
    };
    const ServerId* best = any();
    for (int draw = 1; draw < 5; ++draw) {
      const ServerId* other = any();
      if (count(other) < count(best)) best = other;
    }
    return best;
  }
  const Groups groups(servers, replicas);
  std::vector<const ServerId*> near;
  for (const ServerId& each : candidates)
    if (groups.of(each.node) == groups.of(self.node)) near.push_back(&each);
  return near.empty() ? any() : near[rng.below(near.size())];
}

}  // namespace pyrdma::tailwind
