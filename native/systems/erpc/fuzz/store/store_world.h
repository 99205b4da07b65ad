// What the nodes of the scenario `erpc_store` share, drawn from the seed before they begin.
#pragma once
#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "check/history.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fault_phase.h"
#include "systems/erpc/fuzz/plan.h"

namespace pyrdma::erpc::store {

inline constexpr std::uint64_t kMostKeys = 12;      // of a block
inline constexpr std::uint32_t kBlock = 250;        // operations that share keys, and a history
inline constexpr std::uint64_t kKeyDistance = 100;  // the order of keys is not that of their bytes
inline constexpr std::uint32_t kMostSlots = 3;      // operations of a client under way
inline constexpr std::uint64_t kMostScanned = 8;

/// The types of the requests: a key; put: and a value; scan: and the number of entries. A scan
/// answers with entries, the others as those of the workload do.
enum CallType : std::uint8_t { kGetRequest = 1, kPutRequest, kEraseRequest, kScanRequest };

struct PlannedCall {
  std::uint32_t id = 0;
  CallType type = kGetRequest;
  std::uint64_t key = 0, argument = 0;
  Time pause = 0;
};

/// What a seed decides for all nodes.
struct StoreShape {
  explicit StoreShape(const fuzz::Options& wanted) {
    Rng rng(wanted.seed, -1, "fuzz store");
    // The options of an endpoint are drawn as those of all RPCs.
    endpoint = scenario::draw_shape(wanted).options;
    endpoint.workers = 0;
    endpoint.backlog = 1U << 20U;
    endpoint.retransmission_timeout = 10 * kMicrosecond + static_cast<Time>(rng.below(100'000));
    endpoint.failure_timeout = Time{200} * kMicrosecond << rng.below(7);
    endpoint.connect_interval = 50 * kMicrosecond;
    endpoint.connect_timeout = kSecond;
    endpoint.receive_entries = 4 * wanted.nodes * endpoint.credits + 64;
    workers = static_cast<std::uint32_t>(rng.below(3));
    slots = 1 + static_cast<std::uint32_t>(rng.below(kMostSlots));
    keys = std::array<std::uint64_t, 4>{1, 3, 6, kMostKeys}[rng.below(4)];
    // The shares of the four operations: even, or mostly one of them.
    most = rng.below(2) == 0 ? static_cast<CallType>(1 + rng.below(4)) : CallType{0};
  }
  CallType draw(Rng& rng) const {
    const std::uint64_t draw = rng.below(20);
    if (most != 0 && draw < 10) return most;
    return draw % 10 < 4   ? kPutRequest
           : draw % 10 < 5 ? kEraseRequest
           : draw % 10 < 7 ? kGetRequest
                           : kScanRequest;
  }

  Options endpoint;
  std::uint32_t workers = 0, slots = 1;
  std::uint64_t keys = 0;  // of a block
  CallType most = CallType{0};
};

struct StoreWorld {
  StoreWorld(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
      : options(wanted),
        outcome(result),
        phase(faults),
        shape(wanted),
        plans(wanted.nodes),
        next(wanted.nodes),
        histories(wanted.operations / kBlock + 1) {
    Rng rng(wanted.seed, -1, "fuzz store operations");
    for (std::uint32_t id = 0; id < wanted.operations; ++id) {
      PlannedCall call;
      call.id = id;
      call.type = shape.draw(rng);
      call.key = id / kBlock * kMostKeys + rng.below(shape.keys);
      call.argument = call.type == kPutRequest ? 1000 + id : 1 + rng.below(kMostScanned);
      call.pause = static_cast<Time>(rng.below(8)) * kMicrosecond * faults.pace();
      plans[1 + rng.below(wanted.nodes - 1)].push_back(call);
    }
  }

  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  const StoreShape shape;
  std::vector<std::vector<PlannedCall>> plans;  // by node
  std::vector<std::size_t> next;                // call of each node's plan
  std::int32_t processes = 0;                   // of histories
  std::set<NodeId> finished;                    // clients
  std::uint64_t crashes = 0;
  std::vector<check::History> histories;  // of each block of operations
};

}  // namespace pyrdma::erpc::store
