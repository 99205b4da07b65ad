// The preset of a run, and the size of runs with a store.
#pragma once
#include "fuzz/scenario.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {

/// The set-up of a store takes seconds on more nodes: each node has a ring for its announcements,
/// each ring a table with a row per node, and each row an endpoint on every node.
inline constexpr NodeId kMostNodes = 24;

/// Returns the preset that the options name; without a name, the preset that the seed has drawn.
inline Preset preset_of(const fuzz::Options& options, Preset drawn) {
  if (options.preset.empty()) return drawn;
  return options.preset == "paper" ? Preset::kPaper : Preset::kBest;
}

}  // namespace pyrdma::loco
