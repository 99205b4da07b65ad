// A simulated cluster: nodes, their NICs, one network, one virtual clock.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "env/faults.h"
#include "fabric/sim/memory_model.h"
#include "fabric/sim/profile.h"

namespace pyrdma {
struct SimEventRecord;
}

namespace pyrdma::fabric::sim {

struct SimOptions {
  std::uint32_t nodes = 2;
  std::uint32_t cores_per_node = 16;
  SimProfile profile;
  std::uint64_t seed = 1;
  Time time_limit = kForever;  // virtual; run() throws Error(kTimeout) beyond it
  MemoryModel memory = MemoryModel::strong();
  FaultOptions faults;
};

/// How a node ends. Its threads unwind, its queue pairs and registered memory are gone.
enum class Crash : std::uint8_t {
  kProcess,      // the machine stays up: what was written to files is there
  kHost,         // power is lost: what was not synced is lost, or torn
  kHostBattery,  // power is lost, a battery saves files and registered memory (files "memory-0",
                 // "memory-1", ..., in the order of registration)
};

/// What a node's NIC counted.
struct NicCounters {
  std::uint64_t requests = 0;       // requests that the NIC sent
  std::uint64_t packets = 0;        // packets on the node's link, outgoing
  std::uint64_t wire_bytes = 0;     // with headers
  std::uint64_t dropped = 0;        // packets to this node lost in a full switch buffer
  std::uint64_t retransmitted = 0;  // requests sent again
  std::uint64_t ecn_marked = 0;     // messages to this node marked by the switch
  std::uint64_t paused = 0;         // times that flow control stopped this node
  std::uint64_t cache_hits = 0, cache_misses = 0;  // counted once the working set exceeds the cache
  std::uint64_t doorbells = 0;
  std::uint64_t payload_dma_reads = 0;
  std::uint64_t rnr_naks = 0;  // sends that found no receive here
};

class SimCluster {
 public:
  explicit SimCluster(SimOptions options);
  ~SimCluster();
  SimCluster(const SimCluster&) = delete;
  SimCluster& operator=(const SimCluster&) = delete;

  std::uint32_t nodes() const;
  /// Usable from the node's own threads, and from the caller of the simulation, whose blocking
  /// calls run the simulation until they are done.
  Env& env(NodeId node);

  /// Runs `per_node` as the first thread of every node until all have returned. Rethrows the first
  /// error of a node; Error(kInternal) when nothing can happen any more and threads still wait.
  void run(FunctionRef<void(Env&)> per_node);

  /// Ends node `node`; peers get retry-exceeded. It stays down until restart().
  void kill(NodeId node, Crash crash = Crash::kProcess);
  /// Starts a killed node again at the same address, with the function of the running run() and
  /// the next Env::incarnation(). No effect on a node that is up.
  void restart(NodeId node);
  /// run() does not end before the node has been restarted.
  void expect_restart(NodeId node);
  /// Stops the node's threads for `duration`; its NIC goes on serving peers.
  void pause(NodeId node, Time duration);
  /// Makes the node's CPU 2^shift times slower for `duration`, and its NIC, up to 64 times. While
  /// several such times overlap, the slowest counts.
  void slow_down(NodeId node, std::uint32_t shift, Time duration);
  /// Loses everything that `from` sends to `to` for `duration`.
  void block(NodeId from, NodeId to, Time duration);
  /// Ends all faults now: see FaultOptions::heal_at.
  void heal();
  const FaultCounters& fault_counters() const;
  /// Makes a running run() throw Error("stopped"). Safe from any thread and from signal handlers.
  void request_stop();

  Time now() const;                   // virtual, ns
  std::uint64_t events() const;       // events that have happened
  std::uint64_t fingerprint() const;  // of all event times and orders: equal runs have equal ones
  /// Adds every further event to `*into`, which outlives the cluster.
  void record_events(std::vector<SimEventRecord>* into);
  NicCounters counters(NodeId node) const;
  const std::vector<std::string>& trace() const;  // what the nodes' enabled Env::trace()s recorded

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::sim
