// The options of fault injection; every fault is off by default.
//
// Each kind of fault draws from a random stream of its own, split by (seed, node, kind), so that a
// new draw in one place does not reshuffle the others. Each kind counts how often it fired and how
// often it reached its target. A random run draws in two levels: first the kinds it has (a random
// subset for each seed), then how often each kind fires. The numbers F1 to F34 name faults of the
// fault model; fabric/sim/README.md says what each fault does and where.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/units.h"

namespace pyrdma {

// clang-format off
//    key, number, how it is drawn, rate when on, min and max duration in ns, meaning
#define PYRDMA_FAULTS(X)                                                                                            \
  X(loss,                "F1",  kDraw,   0.01,   0,       0,       "a request or datagram is lost")                 \
  X(loss_burst,          "F1",  kWindow, 2,      1000,    50000,   "all packets to a node are lost")                \
  X(ack_loss,            "F2",  kDraw,   0.01,   0,       0,       "a response is lost after the request took effect") \
  X(duplicate,           "F3",  kDraw,   0.02,   0,       0,       "a request or datagram arrives twice")           \
  X(reorder,             "F4",  kDraw,   0.02,   200,     5000,    "later packets overtake a request or datagram")  \
  X(placement_reorder,   "F4",  kRun,    0.5,    0,       0,       "a node's NIC places writes of one connection out of order") \
  X(delay,               "F5",  kDraw,   0.02,   1000,    100000,  "a packet and all later ones are late")          \
  X(clog,                "F5",  kWindow, 1,      10000,   200000,  "packets to a node are held back, then released at once") \
  X(corruption,          "F6",  kDraw,   0.02,   0,       0,       "a bit of a datagram flips unnoticed")           \
  X(cache_miss,          "F7",  kDraw,   0.05,   500,     3000,    "the NIC fetches a context or translation")      \
  X(late_completion,     "F8",  kDraw,   0.05,   200,     5000,    "a completion and all later ones come late")     \
  X(cq_overrun,          "F9",  kDraw,   0.0001, 0,       0,       "a completion queue overruns and becomes unusable") \
  X(queue_full,          "F10", kDraw,   0.02,   0,       0,       "a post finds the queue full")                   \
  X(malformed,           "F11", kDraw,   0.001,  0,       0,       "a request gets a wrong key, address or length before the post") \
  X(qp_error,            "F12", kDraw,   0.0005, 0,       0,       "a queue pair goes to the error state and flushes") \
  X(rnr,                 "F13", kDraw,   0.01,   0,       0,       "a send finds no receive")                       \
  X(torn_crash,          "F14", kDraw,   0.5,    0,       0,       "a write in flight at a crash leaves some of its lines") \
  X(late_placement,      "F15", kMemory, 0,      0,       0,       "bytes become visible after the completion")     \
  X(torn_read,           "F16", kMemory, 0,      0,       0,       "a read samples its lines at different times")   \
  X(late_source,         "F17", kMemory, 0,      0,       0,       "the NIC reads the source long after the post")  \
  X(pause,               "F18", kWindow, 0.5,    100000,  2000000, "a node's threads stop; its NIC goes on")        \
  X(preemption,          "F18", kDraw,   0.02,   200,     100000,  "a thread loses its core in the middle of a step") \
  X(clock_skew,          "F19", kRun,    0.5,    0,       0,       "a node's clock is off and drifts")              \
  X(clock_jump,          "F19", kWindow, 0.5,    1000,    1000000, "a node's clock steps forward")                  \
  X(crash,               "F20", kWindow, 0.3,    100000,  1000000, "a process dies and is restarted")               \
  X(host_crash,          "F21", kWindow, 0.3,    100000,  1000000, "a host loses power and all unsynced data")      \
  X(battery_crash,       "F22", kWindow, 0.3,    100000,  1000000, "a host loses power and saves its memory")       \
  X(number_reuse,        "F23", kRun,    0.5,    0,       0,       "restarted nodes get their old keys and queue pair numbers") \
  X(disk_torn,           "F24", kDraw,   0.5,    0,       0,       "an unsynced write leaves some sectors at a crash") \
  X(disk_unreadable,     "F24", kDraw,   0.005,  0,       0,       "a sector cannot be read any more")              \
  X(disk_misdirected,    "F24", kDraw,   0.005,  0,       0,       "a write goes to another place")                 \
  X(disk_rot,            "F24", kDraw,   0.005,  0,       0,       "a bit on the disk flips")                       \
  X(disk_io_error,       "F24", kDraw,   0.005,  0,       0,       "a write or sync fails")                         \
  X(disk_full,           "F24", kWindow, 0.5,    100000,  1000000, "the disk has no space")                         \
  X(disk_slow,           "F24", kDraw,   0.02,   100000,  5000000, "a sync takes long")                             \
  X(disk_lies,           "F24", kDraw,   0.01,   0,       0,       "a sync returns without syncing anything")       \
  X(partition,           "F25", kWindow, 0.3,    50000,   1000000, "the nodes fall into two halves")                \
  X(isolation,           "F25", kWindow, 0.3,    50000,   1000000, "one node is cut off")                           \
  X(partition_partial,   "F25", kWindow, 0.3,    50000,   1000000, "two nodes cannot reach each other, the others can") \
  X(partition_one_way,   "F25", kWindow, 0.3,    50000,   1000000, "one node reaches another and gets no answer")   \
  X(partition_flapping,  "F25", kWindow, 0.3,    50000,   1000000, "a node's link goes up and down")                \
  X(slow_node,           "F26", kWindow, 0.3,    50000,   1000000, "a node's CPU is 8 to 1024 times slower, its NIC 8 to 64 times") \
  X(buffer_overflow,     "F27", kWindow, 0.5,    5000,    100000,  "the switch has no buffer for a port")           \
  X(pause_storm,         "F28", kWindow, 0.5,    10000,   500000,  "flow control stops all senders to a node")      \
  X(memory_pressure,     "F29", kDraw,   0.01,   0,       0,       "a creation or registration finds no memory")    \
  X(region_revoked,      "F30", kDraw,   0.0005, 0,       0,       "a remote access finds its key invalid")         \
  X(dc_storm,            "F31", kWindow, 0.5,    10000,   500000,  "each dynamically connected request reconnects") \
  X(coordinator_down,    "F32", kWindow, 0.3,    50000,   1000000, "the coordinator is cut off and its threads stop") \
  X(nic_failure,         "F33", kWindow, 0.2,    50000,   1000000, "a NIC fails with all its queue pairs; the process continues") \
  X(number_collision,    "F33", kRun,    0.5,    0,       0,       "NICs give out the same queue pair numbers and keys") \
  X(noisy_neighbour,     "F34", kWindow, 0.5,    10000,   500000,  "another tenant fills the NIC's caches and engine")
// clang-format on

enum class Fault : std::uint8_t {
#define PYRDMA_FAULT_ENUM(key, number, how, rate, min, max, meaning) key,
  PYRDMA_FAULTS(PYRDMA_FAULT_ENUM)
#undef PYRDMA_FAULT_ENUM
      kCount
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::kCount);

/// FaultDraw says how a kind is drawn, and so what its rate means.
enum class FaultDraw : std::uint8_t {
  kDraw,    // at each opportunity; a probability
  kWindow,  // at random times, for a while; mean number in the cluster per virtual ms
  kRun,     // once for each node; a probability
  kMemory,  // set by the memory model; this file only counts it
};

struct FaultInfo {
  std::string_view key, number;
  FaultDraw draw;
  double rate;    // the rate when a random subset turns the kind on
  Time min, max;  // ns; 0 for a kind without a duration
  std::string_view meaning;
};
const FaultInfo& fault_info(Fault fault);

/// FaultOptions says which faults happen, how often and for how long. Default: none.
struct FaultOptions {
  struct Setting {
    double rate = 0;        // see FaultDraw; 0: the kind is off
    Time min = 0, max = 0;  // ns; drawn evenly on a logarithmic scale
    /// Of a kWindow that is on: this many windows, which a scenario of the fuzzer spreads over its
    /// operations. 0: windows begin at random times.
    std::uint32_t windows = 0;
  };
  FaultOptions();  // no fault; the durations of the table
  std::array<Setting, kFaults> settings;
  /// All faults end at this virtual time: partitions heal, paused and dead nodes come back, and no
  /// new fault fires. Safety is checked before and after, progress only after.
  Time heal_at = kForever;
  /// False: faults are held back until SimCluster::begin_faults(). Faults of the kind kRun are
  /// drawn when the run begins in any case.
  bool at_once = true;
  /// Only faults of these numbers happen. The faults of a node's counters have numbers from 0, in
  /// the order in which they fire; in virtual time these are all faults of the cluster. Those of
  /// the memory model have none.
  std::uint64_t first_fault = 0, last_fault = std::numeric_limits<std::uint64_t>::max();
  /// The node that `coordinator_down` aims at.
  std::uint32_t coordinator = 0;

  Setting& operator[](Fault fault) { return settings[static_cast<std::size_t>(fault)]; }
  const Setting& operator[](Fault fault) const { return settings[static_cast<std::size_t>(fault)]; }
  bool any() const;

  /// Reads the keys "loss.rate", "crash.windows", "delay.min_ns", "delay.max_ns", "heal_at_ns",
  /// "first_fault", "last_fault", "coordinator"; an absent key keeps its default. Throws
  /// Error(kInvalidArgument) naming the key and the range.
  static FaultOptions from_values(const std::map<std::string, double>& values);
  /// The reverse: the settings of the kinds that are on.
  std::map<std::string, double> values() const;
  /// Draws the random subset of `seed`: each kind is on with `probability`, at a rate of 1/4 to 4
  /// times the rate of the table.
  static FaultOptions draw(std::uint64_t seed, double probability = 0.25);
  /// Draws the faults of one of many seeds (swarm testing, Groce et al. 2012). The seed first draws
  /// how likely each kind is: not at all, rarely, or for every second one. A kWindow then has one
  /// window in half of the seeds, some windows in a quarter, and windows at random times in the
  /// others.
  static FaultOptions swarm(std::uint64_t seed);
  /// Turns a kind on at `factor` times the rate of the table.
  void enable(Fault fault, double factor = 1);
};

/// Returns the fault of that key. Throws Error(kInvalidArgument) that names the nearest known key.
Fault fault_named(std::string_view key);

struct FaultCounters {
  std::array<std::uint64_t, kFaults> fired{};    // the fault was drawn, or its window opened
  std::array<std::uint64_t, kFaults> reached{};  // the fault had an effect on its target
  std::uint64_t next_number = 0;                 // see FaultOptions::first_fault
};

/// FaultStream draws the faults of one node. Not thread-safe.
class FaultStream {
 public:
  /// `fold` (or null) takes in every draw for the fingerprint of the run.
  FaultStream(const FaultOptions& options, std::uint64_t seed, std::int64_t node,
              FaultCounters& counters, std::uint64_t* fold = nullptr);

  /// Draws whether `fault` happens at this opportunity; counts it as fired.
  bool fire(Fault fault) {
    const auto at = static_cast<std::size_t>(fault);
    if (thresholds_[at] == 0 || healed_) [[likely]]
      return false;
    if (streams_[at]() > thresholds_[at] || !is_chosen()) return false;
    count_fired(fault);
    return true;
  }
  /// Gives the next fault its number. Returns whether the options want the fault of this number.
  bool is_chosen() {
    const std::uint64_t number = counters_.next_number++;
    return number >= options_.first_fault && number <= options_.last_fault;
  }
  /// Draws how long the fault lasts, in nanoseconds.
  Time duration(Fault fault);
  /// Returns the kind's own stream, for its further draws.
  Rng& stream(Fault fault) { return streams_[static_cast<std::size_t>(fault)]; }
  void count_fired(Fault fault) {
    ++counters_.fired[static_cast<std::size_t>(fault)];
    if (listener_) listener_(fault, false);
  }
  /// Counts that the fault had its effect.
  void reach(Fault fault) {
    ++counters_.reached[static_cast<std::size_t>(fault)];
    if (listener_) listener_(fault, true);
  }
  /// Calls `listener` with each fault that fires or, if true, has its effect.
  void listen(std::function<void(Fault, bool reached)> listener) {
    listener_ = std::move(listener);
  }
  const FaultOptions& options() const { return options_; }
  void heal() { healed_ = true; }
  bool healed() const { return healed_; }
  /// Holds all faults back until begin().
  void hold() { healed_ = true; }
  void begin() { healed_ = false; }

 private:
  const FaultOptions& options_;
  FaultCounters& counters_;
  std::array<std::uint64_t, kFaults> thresholds_{};
  std::vector<Rng> streams_;
  std::function<void(Fault, bool)> listener_;
  bool healed_ = false;
};

}  // namespace pyrdma
