// A barrier of nodes whose parts take differently long.
#pragma once
#include "base/error.h"
#include "fuzz/scenario.h"
#include "systems/loco/barrier.h"

namespace pyrdma::loco {

/// Waits at the barrier, again after a timeout as long as all nodes answer and operations end. Who
/// has little to do waits for the others, and their work has no fixed limit.
inline void meet_at(Barrier& barrier, Caller& me, const fuzz::Outcome& outcome) {
  bool is_over = false;
  while (!is_over) {
    const std::uint64_t ended = outcome.ended;
    try {
      barrier.wait(me);
      is_over = true;
    } catch (const Error& error) {
      const bool goes_on = outcome.ended != ended && error.nodes().empty();
      if (error.code() != ErrorCode::kTimeout || !goes_on) throw;
    }
  }
}

}  // namespace pyrdma::loco
