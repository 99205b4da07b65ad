// Decides whether a history is linearizable (Herlihy and Wing 1990): each operation takes effect at
// one moment between its call and its return. An operation of unknown outcome may take effect at
// any time after its call, or never. A failed operation did not happen.
//
// Objects (keys) are checked one by one, which suffices because linearizability is local. The check
// takes them round-robin with budgets of 10^3, 10^4, ... configurations, so that it finds a
// violation of a small object before it has finished a hard one. The worst case is exponential in
// the number of operations that overlap.
#pragma once
#include <cstdint>

#include "check/history.h"
#include "check/models.h"
#include "check/verdict.h"

namespace pyrdma::check {

struct SearchLimits {
  std::uint64_t configurations = 10'000'000;  // per object; about 40 bytes each
  bool explain = true;  // find the smallest window of a violation, by some hundred more searches
};

/// Throws Error(kInvalidArgument) if the history does not fit the model; the message names the
/// event.
Verdict check_linearizability(const History& history, ModelKind kind,
                              const SearchLimits& limits = {});

}  // namespace pyrdma::check
