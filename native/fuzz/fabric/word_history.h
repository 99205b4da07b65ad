// The words that are changed by compare-and-swaps, as a history for the linearizability checker.
#pragma once
#include <span>
#include <vector>

#include "check/history.h"
#include "fuzz/fabric/words.h"

namespace pyrdma::fuzz {

/// Every `every`-th register of `words`, each a key of its own.
check::History history_of(std::span<const AtomicWord> words, std::size_t every);

}  // namespace pyrdma::fuzz
