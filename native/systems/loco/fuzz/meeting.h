// A barrier of nodes whose parts take differently long.
#pragma once
#include "base/error.h"
#include "fuzz/scenario.h"
#include "systems/loco/barrier.h"

namespace pyrdma::loco {

/// Waits at the barrier, again after a timeout as long as all nodes answer and operations end, of
/// clients or of the set-up and the end. Who has little to do waits for the others, and their work
/// has no fixed limit.
inline void meet_at(Barrier& barrier, Caller& me, const fuzz::Outcome& outcome) {
  const auto ended_so_far = [&] {
    return outcome.ended + outcome.ok + outcome.fail + outcome.info;
  };
  bool is_over = false;
  while (!is_over) {
    const std::uint64_t ended = ended_so_far();
    try {
      barrier.wait(me);
      is_over = true;
    } catch (const Error& error) {
      const bool goes_on = ended_so_far() != ended && error.nodes().empty();
      if (error.code() != ErrorCode::kTimeout || !goes_on) throw;
    }
  }
}

}  // namespace pyrdma::loco
