// The order of the writes of several callers of a node to the same places.
//
// Writes of one caller to a peer are placed in order, because they share a queue pair. Writes of
// two callers have no order, even if one thread posts them one after the other: the earlier write
// may be placed last, and then stays. So the first write of another caller waits until those before
// it are placed. If some of those are lost, their connection is too: none of them comes any more.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "runtime/caller.h"
#include "systems/loco/names.h"

namespace pyrdma::loco {

/// The caller whose turn it is to write. One thread at a time uses it.
class WriterTurn {
 public:
  /// Returns true once the writes of the caller before to all of `peers` but this node are placed;
  /// the turn is then that of `me`. Otherwise the call is made again. Never blocks, but may wait
  /// for room for a request. Cost: a comparison; after a change of the caller a read of no bytes
  /// for each peer whose last request was a write.
  bool take(Caller& me, std::span<const NodeId> peers) {
    if (last_ == &me && placed_.empty()) [[likely]]
      return true;
    return change(me, peers);
  }

 private:
  [[gnu::noinline]] bool change(Caller& me, std::span<const NodeId> peers) {
    if (last_ != nullptr && placed_.empty()) mark(me, peers);
    if (!std::ranges::all_of(placed_, &Mark::reached)) return false;
    placed_.clear();
    last_ = &me;
    return true;
  }
  void mark(Caller& me, std::span<const NodeId> peers) {
    std::vector<Mark> placed;
    AckKey key;
    for (const NodeId peer : peers) {
      if (peer != me.env().node()) placed.push_back(me.order_of(*last_, peer, key));
    }
    placed_ = std::move(placed);  // an error above leaves the turn as it was
  }
  Caller* last_ = nullptr;
  std::vector<Mark> placed_;  // reached when the writes of last_ are placed
};

}  // namespace pyrdma::loco
