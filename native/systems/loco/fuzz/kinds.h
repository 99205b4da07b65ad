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

#include "fabric/sim/cluster.h"
#include "fuzz/scenario.h"

namespace pyrdma::loco {

/// What no scenario of LOCO has.
inline const fuzz::FaultsLeftOutList kLeftOutOfAll{
    {{Fault::placement_reorder}, "writes of one queue pair are placed in order (section 2.2)"},
    {{Fault::malformed}, "a request that is wrong before the post is a bug of the program"},
    {{Fault::memory_pressure}, "a node without memory for its channels ends before the run"},
    {{Fault::corruption}, "no datagrams are used"},
    {{Fault::dc_storm}, "no queue pair is connected dynamically"},
    {{Fault::number_reuse}, "no node is started again"},
    {fuzz::kDiskFaults, "nothing is stored on disks"}};
inline const fuzz::FaultsLeftOutList kLeftOutOfLoco = fuzz::joined(
    kLeftOutOfAll,
    {{{Fault::cq_overrun, Fault::qp_error, Fault::nic_failure, Fault::region_revoked},
      "a connection that breaks while both nodes live stays lost: loco_store_cut has this case"}});

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

/// The crashes of a run. No node recovers, and the clients of the others soon end. So the first
/// crash falls anywhere among the operations, and the other ones follow it closely. Windows that
/// are spread one by one would leave one crash, early: the first of several.
class Crashes {
 public:
  /// Leaves one kind of crash, or none: with all kinds half of the seeds would have a crash. A few
  /// seeds have crashes at random times, also while the nodes set themselves up. Kinds that the
  /// user has named stay as they are.
  explicit Crashes(fuzz::Options& options) : rng_(options.seed, -1, "fuzz loco crashes") {
    if (!options.asked.empty()) return;
    const Fault chosen = kCrashes[rng_.below(kCrashes.size())];
    const bool any_time = rng_.below(16) == 0;
    for (const Fault kind : kCrashes) {
      FaultOptions::Setting& setting = options.faults[kind];
      if (kind != chosen) setting.rate = 0;
      if (setting.rate <= 0) continue;
      setting.windows = any_time ? 0 : 1;
      if (any_time) continue;
      least_share_ = 100;
      kind_ = kind;
      // Somebody is left to look around.
      if (options.nodes > 2 && rng_.below(2) == 0)
        left_ = 1 + rng_.below(std::min<NodeId>(3, options.nodes - 2));
    }
  }
  /// For FaultPhase: crashes need faults until the last operation.
  std::uint64_t least_share() const { return least_share_; }
  /// An operation begins after `dead` crashes.
  void operation(fabric::sim::SimCluster& cluster, std::uint64_t dead) {
    if (dead == 0 || left_ == 0 || rng_.below(4) != 0) return;
    --left_;
    cluster.open_fault(kind_);
  }

 private:
  Rng rng_;
  std::uint64_t least_share_ = 60;
  Fault kind_ = Fault::crash;
  std::uint64_t left_ = 0;  // after the first
};

}  // namespace pyrdma::loco
