// Which locks a run with crashes has certainly left free.
#pragma once
#include <algorithm>
#include <map>
#include <utility>

#include "systems/loco/fuzz/fates.h"

namespace pyrdma::loco {

/// Shows which locks are certainly free at the end of a run with crashes. Nobody alive knows
/// whether the release of a dead node has arrived, unless a later operation had the lock after it.
class LockUse {
 public:
  void begun(NodeId node, std::uint64_t lock) { ++open_[{lock, node}]; }
  /// The operation began at `since`, and has ended without an error.
  void ended(NodeId node, std::uint64_t lock, Time since, Time now) {
    --open_[{lock, node}];
    last_end_[{lock, node}] = now;
    last_begin_[lock] = std::max(last_begin_[lock], since);
  }
  bool is_free(std::uint64_t lock, const Fates& fates) const {
    for (auto each = open_.lower_bound({lock, 0}); each != open_.end() && each->first.first == lock;
         ++each) {
      if (each->second != 0) return false;
      const bool dead = fates.is_dead(each->first.second);
      if (dead && last_end_.at(each->first) >= last_begin_.at(lock)) return false;
    }
    return true;
  }

 private:
  using Place = std::pair<std::uint64_t, NodeId>;
  std::map<Place, std::uint32_t> open_;
  std::map<Place, Time> last_end_;
  std::map<std::uint64_t, Time> last_begin_;  // of operations that have ended
};

}  // namespace pyrdma::loco
