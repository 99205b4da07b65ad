// A scenario is a program of simulated nodes. It runs from one seed under drawn faults, and its
// effects are checked. The same options and seed give the same run, bit for bit.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/faults.h"
#include "env/sim/scheduler.h"
#include "fabric/sim/cluster.h"

namespace pyrdma::fuzz {

/// A range of operations by number, both ends included.
struct OperationRange {
  std::uint32_t first = 0, last = 0;
};

struct Options {
  NodeId nodes = 5;
  std::uint32_t operations = 1000;
  fabric::sim::SimProfile profile;
  fabric::sim::MemoryModel memory = fabric::sim::MemoryModel::weak();
  FaultOptions faults;  // heal_at is absolute; kForever: the scenario chooses
  std::uint64_t seed = 1;
  /// Only these operations happen; all happen if not set. Leaving some out does not change the
  /// others, because each client draws its operations before it begins.
  std::optional<std::vector<OperationRange>> kept;
  /// Kinds of faults that the user named. A scenario that cannot have them refuses to run.
  std::vector<Fault> asked;
  /// Returns true if operation `id` happens.
  bool keeps(std::uint32_t id) const;
  /// A deliberate bug, to test that the scenario finds it; Scenario::mutations lists them.
  std::string mutation;
  /// A preset of the system's options; Scenario::presets lists them. Empty: the seed draws one.
  std::string preset;
  /// The limit in virtual time, after the end of all faults, within which everything must have
  /// succeeded.
  Time recovery_limit = 50 * kMillisecond;
  bool trace = false;    // keep a readable trace of all nodes
  bool history = false;  // keep the histories that the checkers saw
  bool events = false;   // keep a record of every event of the scheduler
  std::optional<TimelineOptions> timeline;
};

struct Violation {
  std::string kind;  // "order", "read", ...: minimising must keep it
  std::string text;
};

/// How many runs made an end check, and why the others did not.
struct CheckCount {
  std::uint64_t made = 0;
  std::map<std::string_view, std::uint64_t> skipped;  // by reason
};
using CheckCounts = std::map<std::string_view, CheckCount>;

struct Outcome {
  std::uint64_t fingerprint = 0;
  Time virtual_ns = 0;
  std::uint64_t events = 0;
  // The number of operations by outcome: took effect, certainly did not, unknown.
  std::uint64_t ok = 0, fail = 0, info = 0;
  FaultCounters faults;
  BranchCounts branches;  // how often the run took each rare branch of its protocols
  // Operations. One has met a fault if a fault had an effect, anywhere, while it ran.
  std::uint64_t begun = 0, begun_under_faults = 0, ended = 0, met_fault = 0;
  CheckCounts checks;  // of one run: each is made once, or skipped for one reason
  std::vector<std::uint64_t> crashed_after;    // number of operations begun before each crash
  std::uint64_t reconnects = 0, restarts = 0;  // completed recoveries
  std::uint64_t torn_reads = 0, corrupt_datagrams = 0;  // seen and allowed
  std::uint64_t checked = 0;                            // operations that the checker judged
  std::vector<std::string> undecided;                   // models whose checker gave up
  std::vector<Violation> violations;                    // the first kMostViolations
  std::vector<std::string> trace;
  /// With Options::history: the model and the events (JSON Lines) of each history that was judged.
  std::vector<std::pair<std::string, std::string>> histories;
  std::vector<SimEventRecord> recorded;
  std::shared_ptr<Timeline> timeline;  // null without Options::timeline

  /// Adds a violation that was found at `now`.
  void report(std::string_view kind, Time now, const std::string& text);
  /// The run made an end check. Names and reasons are literals.
  void made(std::string_view check);
  /// A part of the run could not make the check. It counts as skipped unless another part makes it.
  void skipped(std::string_view check, std::string_view reason);
};
inline constexpr std::size_t kMostViolations = 16;

/// An end check, and the least share of all seeds that make it.
struct CheckShare {
  std::string_view check;
  double least = 0;
};

/// Kinds of faults that a scenario cannot have, and what in its contract leaves them out.
struct FaultsLeftOut {
  std::vector<Fault> faults;
  std::string_view reason;
};
using FaultsLeftOutList = std::vector<FaultsLeftOut>;
/// Returns both lists as one.
FaultsLeftOutList joined(FaultsLeftOutList first, const FaultsLeftOutList& second);
inline const std::vector<Fault> kDiskFaults{
    Fault::disk_torn,     Fault::disk_unreadable, Fault::disk_misdirected, Fault::disk_rot,
    Fault::disk_io_error, Fault::disk_full,       Fault::disk_slow,        Fault::disk_lies};

struct Scenario {
  std::string_view name;
  std::string_view title;
  /// Throws Error(kInvalidArgument) for options out of range. Errors of the run become violations.
  Outcome (*run)(const Options& options);
  std::vector<std::string_view> mutations;
  std::vector<std::string_view> presets = {};
  FaultsLeftOutList left_out = {};
  /// The rare branches (Env::reached) that random runs must take.
  std::vector<std::string_view> branches = {};
  NodeId most_nodes = 32;
  /// Whether runs record histories that a model judges. Without, the scenario's own checks judge.
  bool has_histories = true;
  NodeId fewest_nodes = 2;
  /// The end checks. A search of many seeds fails if fewer seeds than the share make one.
  std::vector<CheckShare> checks = {};
  /// The most nodes and operations that a seed draws.
  NodeId usual_nodes = 6;
  std::uint32_t usual_operations = 10'000;
  /// Branches so rare that only a long search takes them.
  std::vector<std::string_view> rarest = {};

  /// Returns the kinds of faults that it can have: all that are not left out, without those that
  /// the memory model decides.
  std::vector<Fault> faults() const;
};

/// Returns the scenarios that belong to no system.
std::vector<Scenario> shared_scenarios();
/// Returns the scenario of that name among `all`. Throws Error(kInvalidArgument) that lists the
/// names.
const Scenario& scenario_named(std::span<const Scenario> all, std::string_view name);

/// Returns the faults of `drawn` that the scenario can have.
FaultOptions limited(const Scenario& scenario, FaultOptions drawn);

/// Draws what a seed decides: nodes, operations (64 or more, on a logarithmic scale), memory and
/// faults. The scenario itself draws the options of its system.
Options drawn(const Scenario& scenario, std::uint64_t seed);

/// Runs the scenario, after checks that all scenarios share. Outcome::branches and Outcome::checks
/// have an entry for each branch and check of the scenario.
Outcome run(const Scenario& scenario, const Options& options);

}  // namespace pyrdma::fuzz
