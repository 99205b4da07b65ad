// The kinds of faults that LOCO's scenarios have.
//
// LOCO assumes a static set of reliable peers on reliable connections, and that writes of one queue
// pair are placed in order (sections 2.2 and A). So it must survive every fault that such a
// connection hides. No node recovers from a crash: the others report it, and go on with what does
// not need the dead node.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "fuzz/scenario.h"

namespace pyrdma::loco {

inline const std::vector<fuzz::FaultsLeftOut> kLeftOutOfLoco{
    {{Fault::placement_reorder}, "writes of one queue pair are placed in order (section 2.2)"},
    {{Fault::cq_overrun, Fault::qp_error, Fault::nic_failure, Fault::region_revoked},
     "a connection that breaks while both nodes live stays lost: loco_store_cut has this case"},
    {{Fault::malformed}, "a request that is wrong before the post is a bug of the program"},
    {{Fault::memory_pressure}, "a node without memory for its channels ends before the run"},
    {{Fault::corruption}, "no datagrams are used"},
    {{Fault::dc_storm}, "no queue pair is connected dynamically"},
    {{Fault::number_reuse}, "no node is started again"},
    {fuzz::kDiskFaults, "nothing is stored on disks"}};

/// Keeps the times without a way between two nodes shorter than the retries of a connection, which
/// come once per millisecond and eight times. Otherwise two nodes lose each other.
inline void keep_ways_short(FaultOptions& faults) {
  constexpr std::array kWays{Fault::partition,          Fault::isolation,
                             Fault::partition_partial,  Fault::partition_one_way,
                             Fault::partition_flapping, Fault::coordinator_down};
  constexpr Time kLongest = 300 * kMicrosecond;
  for (const Fault way : kWays) {
    FaultOptions::Setting& setting = faults[way];
    setting.min = std::min(setting.min, kLongest);
    setting.max = std::min(setting.max, kLongest);
    if (setting.windows == 0 && setting.rate > 0) setting.windows = 4;
  }
}

inline constexpr std::array kCrashes{Fault::crash, Fault::host_crash, Fault::battery_crash};

/// Returns true if the options have a kind of crash.
inline bool have_crashes(const FaultOptions& faults) {
  return std::ranges::any_of(kCrashes, [&](Fault kind) { return faults[kind].rate > 0; });
}

/// Leaves one kind of crash, or none, and spreads most crashes over the operations: with all kinds
/// half of the seeds would have a crash, many of them during the set-up. Kinds that the user has
/// named stay as they are.
inline void choose_crashes(fuzz::Options& options) {
  if (!options.asked.empty()) return;
  Rng rng(options.seed, -1, "fuzz loco crashes");
  const Fault chosen = kCrashes[rng.below(kCrashes.size())];
  for (const Fault kind : kCrashes) {
    FaultOptions::Setting& setting = options.faults[kind];
    if (kind != chosen) setting.rate = 0;
    if (setting.rate > 0 && setting.windows == 0 && rng.below(4) != 0)
      setting.windows = 1 + static_cast<std::uint32_t>(rng.below(3));
  }
}

}  // namespace pyrdma::loco
