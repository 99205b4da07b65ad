#include "systems/erpc/fuzz/raft/raft_scenario.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "systems/erpc/fuzz/raft/storm.h"

namespace pyrdma::erpc::raft {

namespace {

// Links may do all of these to messages; corruption is the business of RPCs. A disk may lose or
// flip sectors of a minority. One that lies about a sync, or writes elsewhere, is not survived.
const std::vector<Fault> kFaultsOfRaft{Fault::loss,
                                       Fault::loss_burst,
                                       Fault::duplicate,
                                       Fault::reorder,
                                       Fault::delay,
                                       Fault::clog,
                                       Fault::pause,
                                       Fault::clock_skew,
                                       Fault::clock_jump,
                                       Fault::crash,
                                       Fault::host_crash,
                                       Fault::disk_torn,
                                       Fault::disk_unreadable,
                                       Fault::disk_rot,
                                       Fault::disk_io_error,
                                       Fault::disk_full,
                                       Fault::partition,
                                       Fault::isolation,
                                       Fault::partition_partial,
                                       Fault::partition_one_way,
                                       Fault::partition_flapping};

// A network may lose up to half of all messages.
void raise_losses(fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz raft loss");
  double& rate = options.faults[Fault::loss].rate;
  if (rate > 0 && rate < 0.1 && rng.below(3) == 0) rate = 0.5 * rng.uniform();
}

// A log is torn only if the power fails within a sync. So a third of the seeds with faults have
// power failures, and tear often. Faults that the user has named stay what they are.
void tear_more(fuzz::Options& options) {
  if (!options.asked.empty() || !options.faults.any()) return;
  if (Rng(options.seed, -1, "fuzz raft torn").below(3) != 0) return;
  for (const auto& [kind, least] : {std::pair{Fault::disk_torn, 0.5}, {Fault::host_crash, 0.15}}) {
    double& rate = options.faults[kind].rate;
    rate = std::max(rate, least);
  }
}

fuzz::Outcome run_storm(const fuzz::Options& wanted) {
  if (const std::string problem = raft_problem(); !problem.empty())
    throw Error(ErrorCode::kUnavailable, problem);
  if (wanted.timeline)
    throw Error(
        ErrorCode::kInvalidArgument,
        "timeline: erpc_raft_group has none, since it runs without a simulated fabric: leave "
        "the timeline out, or take the trace");
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  raise_losses(options);
  tear_more(options);
  Rng rng(options.seed, -1, "fuzz raft phase");
  options.faults.at_once = rng.below(4) == 0;
  Storm(options, outcome).run();
  return outcome;
}

}  // namespace

fuzz::Scenario raft_scenario() {
  return {
      "erpc_raft_group",
      "Raft: a group that is replaced member by member, on disks that fail",
      run_storm,
      {kBugNames.begin(), kBugNames.end()},
      {},
      kFaultsOfRaft,
      {"erpc/raft/append_before_log", "erpc/raft/configuration_put_right", "erpc/raft/ended_opened",
       "erpc/raft/failed_opened", "erpc/raft/leftover_not_acknowledged", "erpc/raft/member_failed",
       "erpc/raft/refused", "erpc/raft/repeated_put", "erpc/raft/snapshot_installed",
       "erpc/raft/snapshot_taken", "erpc/raft/torn_log", "erpc/raft/truncated"},
      7,
      true,
      2,
      {{"equal states", 1}, {"exactly once", 1}},
      5};
}

}  // namespace pyrdma::erpc::raft
