// The preset of a run.
#pragma once
#include "fuzz/scenario.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {

/// Returns the preset that the options name; without a name, the preset that the seed has drawn.
inline Preset preset_of(const fuzz::Options& options, Preset drawn) {
  if (options.preset.empty()) return drawn;
  return options.preset == "paper" ? Preset::kPaper : Preset::kBest;
}

}  // namespace pyrdma::loco
