// Makes a history for the linearizability checker of the words that compare-and-swaps change.
#pragma once
#include <span>
#include <vector>

#include "check/history.h"
#include "fuzz/fabric/words.h"

namespace pyrdma::fuzz {

/// Takes the registers of `words`, each with a key of its own.
check::History history_of(std::span<const AtomicWord> words);

}  // namespace pyrdma::fuzz
