#include "systems/loco/fuzz/fates.h"

#include <algorithm>

namespace pyrdma::loco {

bool Fates::any_dead() const { return std::ranges::find(died_, true) != died_.end(); }

bool Fates::all_reached(Stage stage) const {
  for (std::size_t node = 0; node < died_.size(); ++node) {
    if (stages_[node] < stage && !died_[node]) return false;
  }
  return true;
}

std::vector<NodeId> Fates::survivors() const {
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < died_.size(); ++node) {
    if (!died_[node]) nodes.push_back(node);
  }
  return nodes;
}

// A node that waits for a dead one holds up those that wait for it, until its own wait ends.
std::vector<std::string> Fates::wrong_errors() const {
  std::vector<bool> gone = died_;
  const auto is_right = [&](const Failure& failure) {
    return died_[failure.node] || std::ranges::any_of(failure.error.nodes(), [&](NodeId node) {
             return node < gone.size() && gone[node];
           });
  };
  for (std::size_t round = 0; round < died_.size(); ++round) {
    for (const Failure& failure : failures_)
      if (is_right(failure)) gone[failure.node] = true;
  }
  std::vector<std::string> texts;
  for (const Failure& failure : failures_) {
    if (!is_right(failure))
      texts.push_back("node " + std::to_string(failure.node) + ": " + failure.error.what());
  }
  return texts;
}

}  // namespace pyrdma::loco
