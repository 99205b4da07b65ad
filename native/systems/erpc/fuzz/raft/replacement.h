// Replacement takes a member that has lost its store out of the group, and brings a new one in, as
// the owner of a real group would: remove, then a new member with an empty group, add, assign.
#pragma once
#include "systems/erpc/fuzz/raft/world.h"

namespace pyrdma::erpc::raft {

class Replacement {
 public:
  /// The member is down, and its store is gone. The world outlives the object.
  Replacement(World& world, NodeId node) : world_(world), node_(node) {}
  NodeId node() const { return node_; }
  bool is_over() const { return stage_ == Stage::kOver; }
  /// Whether the node may run: before it is removed, a member without memory could vote again.
  bool may_run() const { return stage_ > Stage::kRemove; }
  /// Takes the next step, if the last one has ended and somebody leads.
  void go_on();

 private:
  enum class Stage : std::uint8_t { kRemove, kAdd, kAssign, kOver };
  void ended(Stage stage, Outcome outcome);

  World& world_;
  const NodeId node_;
  Stage stage_ = Stage::kRemove;
  /// The request under way; an answer to an older one is of no interest.
  std::shared_ptr<bool> open_;
  Time asked_ = 0;
};

}  // namespace pyrdma::erpc::raft
