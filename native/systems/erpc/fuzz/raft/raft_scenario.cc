#include "systems/erpc/fuzz/raft/raft_scenario.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "systems/erpc/fuzz/raft/storm.h"

namespace pyrdma::erpc::raft {

namespace {

const fuzz::FaultsLeftOutList kLeftOutOfRaft{
    {{Fault::disk_misdirected, Fault::disk_lies},
     "Raft needs what was synchronised; damage in a minority is found, these are not"},
    {{Fault::battery_crash, Fault::number_reuse},
     "memory does not outlive a process, and members keep their names"},
    {{Fault::preemption, Fault::slow_node, Fault::disk_slow},
     "the clock of a storm is its own: a pause stands for all that is slow"},
    {{Fault::coordinator_down}, "a storm has no coordinator"},
    {{Fault::ack_loss, Fault::placement_reorder, Fault::corruption, Fault::cache_miss,
      Fault::late_completion, Fault::cq_overrun, Fault::queue_full, Fault::malformed,
      Fault::qp_error, Fault::rnr, Fault::torn_crash, Fault::buffer_overflow, Fault::pause_storm,
      Fault::memory_pressure, Fault::region_revoked, Fault::dc_storm, Fault::nic_failure,
      Fault::number_collision, Fault::noisy_neighbour},
     "a storm has links of messages, and no NIC"}};

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
  return {"erpc_raft_group",
          "Raft: a group that is replaced member by member, on disks that fail",
          run_storm,
          {kBugNames.begin(), kBugNames.end()},
          {},
          kLeftOutOfRaft,
          {"erpc/raft/append_before_log", "erpc/raft/configuration_put_right",
           "erpc/raft/ended_opened", "erpc/raft/failed_opened",
           "erpc/raft/leftover_not_acknowledged", "erpc/raft/member_failed", "erpc/raft/refused",
           "erpc/raft/repeated_put", "erpc/raft/snapshot_installed", "erpc/raft/snapshot_taken",
           "erpc/raft/torn_log", "erpc/raft/transfer_goes_on", "erpc/raft/truncated"},
          7,
          true,
          2,
          {{"equal states", 1}, {"exactly once", 1}, {"kv", 0.98}},
          5};
}

}  // namespace pyrdma::erpc::raft
