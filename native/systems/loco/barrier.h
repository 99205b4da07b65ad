// A barrier between all participants (paper, figure 1a). Each participant counts its arrivals in
// its row of a table, pushes the row to all others, and waits until every row has reached its
// count.
#pragma once
#include <vector>

#include "systems/loco/scopes.h"
#include "systems/loco/sst.h"

namespace pyrdma::loco {

class Barrier : public Channel {
 public:
  /// `rounds` is the number of rounds that count as over, for tests: it counts modulo 2^64.
  Barrier(Manager& manager, std::string name, std::vector<NodeId> participants = {},
          std::uint64_t rounds = 0)
      : Channel(manager, std::move(name), std::move(participants)),
        table_(*this, "sst", rounds),
        count_(rounds) {
    join();
  }
  Barrier(Channel& parent, std::string_view name) : Channel(parent, name), table_(*this, "sst") {
    join();
  }

  /// Blocks until every participant has called it equally often. After the barrier, operations that
  /// any participant did before it, from any thread, are visible to all (global fence). One caller
  /// of the node at a time. Throws Error(kTimeout), naming nodes that do not answer, after
  /// wait_timeout, and Error(kUnavailable), before it counts, when a write or an atomic of this
  /// node has been lost that no barrier of this caller has reported yet. A call after an error goes
  /// on with the same round: this node has arrived at it once.
  void wait(Caller& me) {
    const Scope all(me.env(), scope::barrier);
    enter(me);
    for (std::uint32_t rank = 0; rank < table_.rows(); ++rank) {
      const Scope one(me.env(), scope::barrier_row);
      const auto arrived = [&] { return has_arrived(rank); };
      if (!arrived()) me.wait_until(arrived, "arrival of all participants at a barrier");
    }
    leave();
  }

  // The steps of wait(), for a thread that does other things between them.
  /// Arrives. Blocks for the fence alone.
  void enter(Caller& me) {
    if (manager().bugs().fence_global(me) != fabric::Status::kSuccess) throw_broken(me);
    table_.store_mine(count_ + 1);
    table_.push_broadcast(me);
  }
  /// Returns the participants that have not arrived.
  std::vector<NodeId> awaited() {
    std::vector<NodeId> nodes;
    for (const NodeId node : participants()) {
      if (!has_arrived(rank_of(node))) nodes.push_back(node);
    }
    return nodes;
  }
  /// Ends the round, once everybody has arrived.
  void leave() { ++count_; }

 private:
  bool has_arrived(std::uint32_t rank) {
    return static_cast<std::int64_t>(*table_.row(rank).try_load() - count_) > 0;
  }
  [[noreturn]] void throw_broken(Caller& me) const;
  Sst<std::uint64_t> table_;
  std::uint64_t count_ = 0;  // rounds that are over
};

}  // namespace pyrdma::loco
