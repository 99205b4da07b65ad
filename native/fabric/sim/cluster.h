// A simulated cluster: nodes, their NICs, one network, one virtual clock.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "env/env.h"
#include "fabric/sim/profile.h"

namespace pyrdma::fabric::sim {

struct SimOptions {
  std::uint32_t nodes = 2;
  std::uint32_t cores_per_node = 16;
  SimProfile profile;
  std::uint64_t seed = 1;
  Time time_limit = kForever;  // virtual; run() throws Error(kTimeout) beyond it
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

  /// Ends node `node`, as if its power went: its threads unwind, its memory and queue pairs are
  /// gone, peers get retry-exceeded.
  void kill(NodeId node);
  /// Makes a running run() throw Error("stopped"). Safe from any thread and from signal handlers.
  void request_stop();

  Time now() const;                   // virtual, ns
  std::uint64_t events() const;       // events that have happened
  std::uint64_t fingerprint() const;  // of all event times and orders: equal runs have equal ones
  NicCounters counters(NodeId node) const;
  const std::vector<std::string>& trace() const;  // what the nodes' enabled Env::trace()s recorded

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyrdma::fabric::sim
