#include "systems/tailwind/fuzz/shape.h"

#include <algorithm>
#include <cmath>

#include "systems/tailwind/rpc/messages.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind::scenario {

namespace {

// Draws from least to most, evenly on a logarithmic scale.
Time log_uniform(Rng& rng, Time least, Time most) {
  const double factor = static_cast<double>(most) / static_cast<double>(least);
  return static_cast<Time>(static_cast<double>(least) * std::pow(factor, rng.uniform()));
}

}  // namespace

// Two nodes have a server, and the coordinator beside the client. With five or more the coordinator
// has a node of its own.
Shape::Shape(const fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz tailwind shape");
  const NodeId most_clients = options.nodes >= 8 ? 3 : options.nodes >= 6 ? 2 : 1;
  const NodeId clients = rng.below(4) == 0                       ? 1
                         : most_clients > 2 && rng.below(2) == 0 ? 2
                                                                 : most_clients;
  first_client = options.nodes - clients;
  store.name = "fuzz";
  store.coordinator = options.nodes >= 5 ? first_client - 1 : first_client;
  store.servers = std::min(first_client, store.coordinator);
  auto preset = rng.below(kPresetNames.size());
  for (std::size_t i = 0; i < kPresetNames.size(); ++i) {
    if (options.preset == kPresetNames[i]) preset = i;
  }
  store.replication = preset == 0 ? Replication::kRamcloud : Replication::kTailwind;
  store.durability = preset == 2 ? Durability::kFlush : Durability::kCompletion;
  // Most runs have two servers more than replicas, so that one can be replaced.
  const std::uint32_t spare = rng.below(4) == 0 ? 1 : 2;
  constexpr std::array<std::uint32_t, 5> kReplicas{1, 2, 2, 3, 3};
  store.replicas =
      std::min(kReplicas[rng.below(kReplicas.size())], std::max(store.servers, spare) - spare);
  if (store.replicas == 0 && store.servers > 1 && rng.below(2) == 0) store.replicas = 1;
  store.placement = static_cast<Placement>(rng.below(kPlacementNames.size()));
  store.workers = static_cast<std::uint32_t>(rng.below(4));
  store.group_commit = store.workers == 0 && rng.below(2) == 0;
  store.idle_after = rng.below(2) == 0 ? kMillisecond : 100 * kMillisecond;
  for (const Fault fault : {Fault::crash, Fault::host_crash})
    if (store.replicas > 0 && options.faults[fault].rate > 0 && rng.below(3) != 0)
      cleaner_crash = fault;
  // With a small log the cleaner works.
  store.log_bytes = (256ULL << 10) << (cleaner_crash       ? rng.below(2)
                                       : rng.below(4) != 0 ? rng.below(3)
                                                           : rng.below(6));
  store.segment_bytes = (64U << 10) << rng.below(2);
  store.clean_below = rng.below(4) == 0 ? 0.1 : 0.5;
  // Logs of dead servers keep theirs until they are recovered, which needs others.
  store.buffers = 32;
  store.keys = 1000;
  if (rng.below(4) == 0) store.flushable_bytes = (8 + rng.below(17)) * store.segment_bytes;
  store.ping_interval = static_cast<Time>(100 + rng.below(200)) * kMicrosecond;
  store.ping_timeout = 100 * kMicrosecond;
  store.pings = static_cast<std::uint32_t>(2 + rng.below(4));
  // One that ends long after its server was taken for dead has to be outwaited.
  store.lease = rng.below(2) == 0 ? log_uniform(rng, 300 * kMicrosecond, kMillisecond)
                                  : log_uniform(rng, kMillisecond, 8 * kMillisecond);
  store.call_timeout = static_cast<Time>(500 + rng.below(1500)) * kMicrosecond;
  store.retry_pause = 20 * kMicrosecond;
  store.timeout_us = 16;
  store.retry_count = static_cast<std::uint32_t>(1 + rng.below(3));
  if (rng.below(2) == 0) store.partition_records = 3;
  if (rng.below(4) == 0) store.partition_bytes = 16U << 10;
  constexpr std::array<std::uint32_t, 4> kMostKeys{2, 12, 12, 60};
  keys = 1 + static_cast<std::uint32_t>(rng.below(kMostKeys[rng.below(kMostKeys.size())]));
  constexpr std::array<std::uint32_t, 4> kWindows{1, 4, 4, 16};
  window = 1 + static_cast<std::uint32_t>(rng.below(kWindows[rng.below(kWindows.size())]));
  constexpr std::array<std::uint32_t, 4> kMostValues{200, 12'000, 12'000, 40'000};
  // A server has room for all.
  const auto fitting = static_cast<std::uint32_t>(store.log_bytes / 4 / keys);
  most_value = std::min(kMostValues[rng.below(kMostValues.size())], fitting);
  if (cleaner_crash) most_value = std::min(std::max(most_value, 12'000U), fitting);
  writes = cleaner_crash ? 40 + static_cast<std::uint32_t>(rng.below(40))
                         : 10 + static_cast<std::uint32_t>(rng.below(70));
  removals = static_cast<std::uint32_t>(rng.below(20));
  has_reader = clients > 1 && rng.below(2) == 0;
  const bool has_crashes =
      has_any(options, {Fault::crash, Fault::host_crash, Fault::battery_crash});
  has_last_crash = store.replicas > 0 && rng.below(2) == 0 && has_crashes;
  for (const Fault fault : {Fault::crash, Fault::host_crash}) {
    // Logs are salvaged then.
    if (options.faults[fault].rate > 0 && rng.below(8) == 0) outage = fault;
  }
  if (options.faults[Fault::battery_crash].rate > 0 && rng.below(4) != 0)
    outage = Fault::battery_crash;
  if (store.replicas == 0) outage.reset();
  is_rash = rng.below(8) == 0;
  if (store.replicas > 0) most_unsettled = static_cast<std::uint32_t>(rng.below(store.replicas));
  // A run comes near the ends, but not to them: a server without numbers ends.
  constexpr std::uint64_t kLeft = 1U << 20;
  if (rng.below(4) == 0)
    store.first_segment = rng.below(2) == 0 ? (std::uint64_t{1} << 32) - 1 - rng.below(20)
                                            : Position::kSegments - kLeft;
  if (rng.below(4) == 0)
    store.first_epoch =
        rng.below(2) == 0 ? (1U << 16) - 1 - rng.below(20) : ClusterView::kEpochs - (kLeft >> 8);
  if (rng.below(4) == 0) first_life = ServerId::kServers - (kLeft >> 8);
}

std::vector<std::vector<Planned>> plans_of(const fuzz::Options& options, const Shape& shape,
                                           std::uint32_t pace) {
  Rng rng(options.seed, -1, "fuzz tailwind plan");
  std::vector<std::vector<Planned>> plans(options.nodes - shape.first_client);
  for (std::uint32_t id = 0; id < options.operations; ++id) {
    Planned op;
    op.id = id + 1;
    const std::size_t client = rng.below(plans.size());
    const std::uint64_t kind = rng.below(100);
    op.opcode = kind < shape.writes                    ? Opcode::kWrite
                : kind < shape.writes + shape.removals ? Opcode::kRemove
                                                       : Opcode::kRead;
    if (shape.has_reader && client == 0) op.opcode = Opcode::kRead;
    op.key = static_cast<std::uint32_t>(rng.below(shape.keys));
    const std::uint64_t most = rng.below(4) == 0 ? 64 : shape.most_value;
    op.bytes = kLeastValue + static_cast<std::uint32_t>(rng.below(most - kLeastValue));
    op.pause = static_cast<Time>(rng.below(20'000) * pace);
    plans[client].push_back(op);
  }
  return plans;
}

bool has_any(const fuzz::Options& options, std::initializer_list<Fault> faults) {
  return std::ranges::any_of(faults, [&](Fault fault) { return options.faults[fault].rate > 0; });
}

bool has_bad_disks(const fuzz::Options& options) {
  return has_any(options, {Fault::disk_unreadable, Fault::disk_misdirected, Fault::disk_rot,
                           Fault::disk_lies});
}

}  // namespace pyrdma::tailwind::scenario
