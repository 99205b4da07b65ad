// Whether a history is linearizable (Herlihy and Wing 1990): each operation takes effect at one
// moment between its call and its return. One of unknown outcome may take effect at any time after
// its call, or never; one that failed did not happen.
//
// Objects (keys) are checked one by one, which is enough since linearizability is local; in turns
// with budgets of 10^3, 10^4, ... configurations, so that a violation of a small object is found
// before a hard one is finished. Exponential at worst, in the number of operations that overlap.
#pragma once
#include <cstdint>

#include "check/history.h"
#include "check/models.h"
#include "check/verdict.h"

namespace pyrdma::check {

struct SearchLimits {
  std::uint64_t configurations = 10'000'000;  // per object; about 40 bytes each
  bool explain = true;  // look for the smallest window of a violation: some hundred more searches
};

/// Throws Error(kInvalidArgument) if the history is no history of this model; the message names the
/// event.
Verdict check_linearizability(const History& history, ModelKind kind,
                              const SearchLimits& limits = {});

}  // namespace pyrdma::check
