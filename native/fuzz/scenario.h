// A scenario: a program of simulated nodes that is run from one seed under drawn faults, and whose
// effects are checked. The same options and seed give the same run, bit for bit.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "env/faults.h"
#include "env/sim/scheduler.h"
#include "fabric/sim/cluster.h"

namespace pyrdma::fuzz {

/// Operations by number, both ends included.
struct OperationRange {
  std::uint32_t first = 0, last = 0;
};

struct Options {
  NodeId nodes = 5;
  std::uint32_t operations = 10000;
  fabric::sim::SimProfile profile;
  fabric::sim::MemoryModel memory = fabric::sim::MemoryModel::weak();
  FaultOptions faults;  // heal_at is absolute; kForever: the scenario chooses
  std::uint64_t seed = 1;
  /// Only these operations happen, all if not set. Leaving some out changes nothing about the
  /// others: each client draws its operations before it begins.
  std::optional<std::vector<OperationRange>> kept;
  /// A deliberate bug, to test that it is found; Scenario::mutations.
  std::string mutation;
  /// After all faults have ended everything must have succeeded within this virtual time.
  Time recovery_limit = 50 * kMillisecond;
  bool trace = false;    // keep a readable trace of all nodes
  bool history = false;  // keep the history that the checkers saw
  bool events = false;   // keep a record of every event of the scheduler
};

struct Violation {
  std::string kind;  // "order", "read", ...: what minimising must keep
  std::string text;
};

struct Outcome {
  std::uint64_t fingerprint = 0;
  Time virtual_ns = 0;
  std::uint64_t events = 0;
  // How the operations ended: took effect, certainly did not, unknown.
  std::uint64_t ok = 0, fail = 0, info = 0;
  FaultCounters faults;
  std::uint64_t reconnects = 0, restarts = 0;           // recoveries that were completed
  std::uint64_t torn_reads = 0, corrupt_datagrams = 0;  // seen, and allowed
  std::uint64_t checked = 0;                            // operations that the checker judged
  std::vector<Violation> violations;                    // the first kMostViolations
  std::vector<std::string> trace;
  std::string history;  // JSON Lines
  std::vector<SimEventRecord> recorded;
};
inline constexpr std::size_t kMostViolations = 16;

struct Scenario {
  std::string_view name;
  std::string_view title;
  /// Throws Error(kInvalidArgument) for options out of range; what goes wrong in the run is a
  /// violation.
  Outcome (*run)(const Options& options);
  std::vector<std::string_view> mutations;
};

/// The scenarios that belong to no system.
std::vector<Scenario> shared_scenarios();
/// The scenario of that name among `all`. Throws Error(kInvalidArgument) that lists the names.
const Scenario& scenario_named(std::span<const Scenario> all, std::string_view name);

/// Runs it, after checks that all scenarios share.
Outcome run(const Scenario& scenario, const Options& options);

}  // namespace pyrdma::fuzz
