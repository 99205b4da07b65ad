#include <algorithm>

#include "base/rng.h"
#include "fuzz/fault_phase.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/spindle/fuzz/logs_world.h"
#include "systems/spindle/fuzz/spindle_scenario.h"

namespace pyrdma::spindle {
namespace {

// A log is torn only if the power fails between a write and its sync, so half of the seeds tear
// often. Faults that the user has named stay what they are.
void tear_more(fuzz::Options& options) {
  if (!options.asked.empty() || Rng(options.seed, -1, "fuzz spindle torn").below(2) == 0) return;
  FaultOptions::Setting& torn = options.faults[Fault::disk_torn];
  torn.rate = std::max(torn.rate, 0.5);
}

fuzz::Outcome run_logs(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  tear_more(options);
  // The faults last to the end: to end them would start the dead nodes.
  constexpr Time kLimit = 100 * kSecond;
  if (options.faults.heal_at == kForever) options.faults.heal_at = kLimit;
  fuzz::FaultPhase phase(options, outcome);
  // The power fails soon. A domain begins before that if disks and the control path are fast.
  fuzz::hasten_control_path(options.profile);
  options.profile.storage_write_us = std::max(options.profile.storage_write_us, 20.0);
  options.profile.storage_sync_us = std::min(options.profile.storage_sync_us, 20.0);
  scenario::LogsWorld world(options, outcome, phase);
  options.nodes += 2;  // the driver and the client
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, kLimit));
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  world.run(cluster);
  fuzz::fill_outcome(outcome, cluster);
  outcome.checked = world.oracle().judged();
  for (const auto& [check, count] : world.oracle().checks()) {
    outcome.branches[check] += count;
    outcome.made(check);
  }
  return outcome;
}

const fuzz::FaultsLeftOutList kLeftOutOfLogs = fuzz::joined(
    kLeftOutOfGroups,
    {{{Fault::crash, Fault::host_crash, Fault::battery_crash, Fault::torn_crash,
       Fault::number_reuse, Fault::qp_error, Fault::nic_failure},
      "the scenario itself takes members away, and the last round needs all of them"},
     {{Fault::loss_burst, Fault::delay, Fault::clog, Fault::buffer_overflow, Fault::pause_storm,
       Fault::partition, Fault::isolation, Fault::partition_partial, Fault::partition_one_way,
       Fault::partition_flapping, Fault::coordinator_down},
      "they last as long as the retries of a connection, and cost a group members"},
     {{Fault::disk_unreadable, Fault::disk_misdirected, Fault::disk_rot, Fault::disk_io_error,
       Fault::disk_full, Fault::disk_lies},
      "the scenario itself damages disks, one at a time"}});

}  // namespace

fuzz::Scenario logs_scenario() {
  return {
      "spindle_logs",
      "Spindle's logged topics while hosts lose power and start again",
      run_logs,
      {kLogBugNames.begin(), kLogBugNames.end()},
      {},
      kLeftOutOfLogs,
      {"spindle/failed_opened", "spindle/joined_by_log", "spindle/log_cut", "spindle/log_refused",
       "spindle/restart_refused", "spindle/restarted", "spindle/torn_log", "spindle/views_refused"},
      8,
      false,
      2,
      {{"spindle/judged_start", 0.8},
       {"spindle/judged_restart", 0.75},
       {"spindle/judged_agreed", 0.9},
       {"spindle/judged_client", 0.9},
       {"spindle/judged_join", 0.3},
       {"spindle/judged_end", 1}}};
}

}  // namespace pyrdma::spindle
