// A simulated cluster: nodes, their NICs, one network, one virtual clock.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "env/faults.h"
#include "env/sim/timeline.h"
#include "fabric/sim/memory_model.h"
#include "fabric/sim/profile.h"

namespace pyrdma {
struct SimEventRecord;
}

namespace pyrdma::fabric::sim {

struct SimOptions {
  std::uint32_t nodes = 2;
  std::uint32_t cores_per_node = 16;
  std::uint32_t devices_per_node = 1;  // NICs, each with a link of its own
  SimProfile profile;
  std::uint64_t seed = 1;
  Time time_limit = kForever;  // virtual time; run() throws Error(kTimeout) beyond it
  MemoryModel memory = MemoryModel::strong();
  FaultOptions faults;
  bool variance = false;  // seeded differences of starts, PCIe, DRAM and timer interrupts
  bool trace = false;     // enables the Env::trace() of every node
  std::optional<TimelineOptions> timeline;  // begins a timeline at once
};

/// The way in which a node ends. Its threads unwind; its queue pairs and registered memory are
/// gone.
enum class Crash : std::uint8_t {
  kProcess,      // the machine stays up: files keep all written bytes
  kHost,         // power is lost: bytes that were not synced are lost or torn
  kHostBattery,  // power is lost; a battery saves files and registered memory (as files
                 // "memory-0", "memory-1", ..., in the order of registration)
};

/// Counters of one NIC.
struct NicCounters {
  std::uint64_t requests = 0;       // requests that this NIC sent
  std::uint64_t packets = 0;        // outgoing packets on the node's link
  std::uint64_t wire_bytes = 0;     // bytes of these packets, with headers
  std::uint64_t dropped = 0;        // packets to this node that a full switch buffer dropped
  std::uint64_t retransmitted = 0;  // requests that this NIC sent again
  std::uint64_t ecn_marked = 0;     // messages to this node that a switch marked
  std::uint64_t paused = 0;         // times that flow control paused this NIC
  std::uint64_t cache_hits = 0, cache_misses = 0;  // counted once the working set exceeds the cache
  std::uint64_t request_misses = 0;   // responses to requests that the NIC had not kept
  std::uint64_t receive_fetches = 0;  // posted receives that this NIC read from its host
  std::uint64_t receive_waits = 0;    // messages to this node that waited for their receive
  std::uint64_t doorbells = 0;
  std::uint64_t payload_dma_reads = 0;  // of payloads: one for each piece of a gather list
  std::uint64_t rnr_naks = 0;           // sends for which this node had no posted receive
};

/// Counters of the egress queues of one tier. They count messages, or chunks of long messages.
struct QueueCounters {
  std::uint64_t dropped = 0;     // dropped by a queue that had used up its share of the buffer
  std::uint64_t ecn_marked = 0;  // marked by a queue above the ECN threshold
  std::uint64_t paused = 0;      // made the switch pause the port that they came from
};

/// Counters of all switches.
struct NetworkCounters {
  QueueCounters node;    // of rack switches, or of the only switch, towards nodes
  QueueCounters uplink;  // of rack switches towards spines
  QueueCounters spine;   // of spines towards racks
};

/// What a node's disk has.
struct DiskUse {
  std::size_t files = 0;
  std::uint64_t bytes = 0;  // of all together
};

class SimCluster {
 public:
  explicit SimCluster(SimOptions options);
  ~SimCluster();
  SimCluster(const SimCluster&) = delete;
  SimCluster& operator=(const SimCluster&) = delete;

  std::uint32_t nodes() const;
  /// The node's own threads may use the environment. The caller of the simulation may use it too:
  /// its blocking calls run the simulation until they are done.
  Env& env(NodeId node);

  bool is_up(NodeId node) const;

  /// Runs `per_node` as the first thread of every node until all have returned. Rethrows the first
  /// error of a node. Throws Error(kInternal) when no event is left and threads still wait, and
  /// Error(kInvalidArgument) inside another run().
  void run(FunctionRef<void(Env&)> per_node);

  /// Runs `work`, a part of the running thread of a node, on the stack of the caller of run(). It
  /// must not throw or wait; see SimScheduler::on_external_stack.
  void on_caller_stack(FunctionRef<void()> work);

  /// Ends node `node`. Peers get retry-exceeded. The node stays down until restart().
  void kill(NodeId node, Crash crash = Crash::kProcess);
  /// Starts a killed node again at the same address. The node runs the function of the running
  /// run() with the next Env::incarnation(). The call has no effect on a node that is up.
  void restart(NodeId node);
  /// The same two, when `after` of virtual time has passed. run() does not end before the restart.
  void kill_later(NodeId node, Time after, Crash crash = Crash::kProcess);
  void restart_later(NodeId node, Time after);
  /// Keeps run() from ending before the node has been restarted.
  void expect_restart(NodeId node);
  /// Stops the node's threads for `duration`. The node's NIC goes on serving peers.
  void pause(NodeId node, Time duration);
  /// Makes the node's CPU 2^shift times slower for `duration`, and its NIC up to 64 times. The
  /// slowest of several overlapping periods counts.
  void slow_down(NodeId node, std::uint32_t shift, Time duration);
  /// Makes one NIC fail for `duration`: its queue pairs go to the error state, and it sends and
  /// receives nothing. The node, its other NICs and registered memory go on.
  void fail_device(NodeId node, std::uint32_t device, Time duration);
  /// Drops all packets from `from` to `to` for `duration`.
  void block(NodeId from, NodeId to, Time duration);
  /// Returns true while faults of any kind may happen.
  bool faults_are_on() const;
  /// Begins the faults that FaultOptions::at_once held back. No effect the second time.
  void begin_faults();
  /// Opens a window of a fault now, at a place and for a time that are drawn. No effect unless
  /// faults are on, and this kind is.
  void open_fault(Fault fault);
  /// Ends all faults now (see FaultOptions::heal_at).
  void heal();
  /// Moves the end of all faults (FaultOptions::heal_at), and the time limit of run(), to these
  /// times unless they are later already.
  void postpone_heal(Time at);
  void postpone_time_limit(Time at);
  const FaultCounters& fault_counters() const;
  /// Counts of Env::reached(), over all nodes.
  const BranchCounts& branches() const;
  /// Makes a running run() throw Error("stopped"). Safe from any thread and from signal handlers.
  void request_stop();
  /// Takes back a request to stop that has ended no run().
  void forget_stop();

  Time now() const;              // virtual time in ns
  std::uint64_t events() const;  // number of events so far
  /// Returns a hash of all event times and their order. Equal runs have equal fingerprints.
  std::uint64_t fingerprint() const;
  /// Appends every further event to `*into`. `*into` outlives the cluster.
  void record_events(std::vector<SimEventRecord>* into);
  /// Records a timeline from now on. Throws Error(kInvalidArgument) when one is recorded already.
  /// The caller of the simulation calls both, between its other calls.
  void start_timeline(const TimelineOptions& options);
  /// Ends the recording. Returns null when nothing is recorded.
  std::shared_ptr<Timeline> stop_timeline();
  NicCounters counters(NodeId node, std::uint32_t device = 0) const;
  DiskUse disk_use(NodeId node) const;
  const NetworkCounters& network_counters() const;
  const std::vector<std::string>& trace() const;  // lines of the enabled Env::trace()s

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::sim
