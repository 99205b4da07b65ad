// Meetings of all nodes of a run while the group's predicates go on.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/exchange.h"
#include "systems/spindle/group.h"

namespace pyrdma::spindle {

class GroupMeeting {
 public:
  /// `name` names the meetings of a run; each node has one object of the name.
  GroupMeeting(Group& group, std::string name) : group_(group), name_(std::move(name)) {}

  /// Blocks until every node has called it as often, and then until a time that node 0 chooses,
  /// some milliseconds later: so all nodes begin at once. Throws Error(kTimeout), naming a node
  /// that did not come. Cost: node 0 looks for each node, the others for node 0.
  void wait(Time timeout) {
    Env& env = group_.env();
    const std::string round = name_ + '/' + std::to_string(round_++) + '/';
    const Time deadline = env.now() + timeout;
    if (env.node() == 0) {
      for (NodeId node = 1; node < env.nodes(); ++node)
        await(round + std::to_string(node), node, deadline);
      const Time leave = env.now() + kSettle;
      env.device().rendezvous().publish_value(round + "all", leave);
      group_.pause_until(leave);
    } else {
      env.device().rendezvous().publish_value(round + std::to_string(env.node()), Time{0});
      const Time leave = await(round + "all", 0, deadline);
      // The clocks of two hosts may differ.
      group_.pause_until(env.now() + std::clamp<Time>(leave - env.now(), 0, kSettle));
    }
  }

 private:
  static constexpr Time kLook = 20 * kMicrosecond;   // between two look-ups
  static constexpr Time kSettle = 4 * kMillisecond;  // more than a look-up that finds its key

  Time await(const std::string& key, NodeId node, Time deadline) {
    Env& env = group_.env();
    while (true) {
      if (const auto found = env.device().rendezvous().find(key)) {
        Time value = 0;
        if (found->size() != sizeof value) runtime::throw_piece(key, found->size(), sizeof value);
        std::memcpy(&value, found->data(), sizeof value);
        return value;
      }
      if (env.now() >= deadline) {
        throw Error(ErrorCode::kTimeout, "node " + std::to_string(env.node()) +
                                             " waited for node " + std::to_string(node) +
                                             "; does that node run the same program?")
            .blaming({node});
      }
      group_.pause_until(env.now() + kLook);
    }
  }

  Group& group_;
  const std::string name_;
  std::uint32_t round_ = 0;
};

}  // namespace pyrdma::spindle
