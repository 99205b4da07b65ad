// What a run of the Tailwind scenario may have lost, and the history that is judged all the same.
//
// A loss gives a key back a value that it had before, or none. So the history that is judged has,
// for each value that clients see again, a write whose outcome is unknown: it may take effect at
// any time after the loss, or never. All else must be linearizable. A value that nobody wrote, one
// older than what was durable, and a change of a key that the loss does not concern are violations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "check/history.h"

namespace pyrdma::tailwind::scenario {

/// Keys may have lost their newest changes.
struct Loss {
  std::size_t event = 0;  // of the history: the loss comes before it
  std::set<std::int64_t> keys;
  /// What had ended by then is durable. -1: nothing was, and keys may be gone.
  Time durable = -1;
};

/// Returns `history` with the writes that make up for the losses, which ascend. Operations that
/// were open at a loss may have happened twice, so a removal or a failure of these has an unknown
/// outcome. Costs the number of losses times that of the events.
check::History with_losses(const check::History& history, const std::vector<Loss>& losses);

}  // namespace pyrdma::tailwind::scenario
