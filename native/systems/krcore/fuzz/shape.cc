#include "systems/krcore/fuzz/shape.h"

#include <array>

namespace pyrdma::krcore::scenario {

namespace {

constexpr std::array<std::uint32_t, static_cast<std::size_t>(Act::kCount)> kWeights{
    20, 10, 16, 24, 5, 4, 10, 3, 6, 3, 4, 4};

template <std::size_t N>
std::uint32_t one_of(Rng& rng, const std::uint32_t (&values)[N]) {
  return values[rng.below(N)];
}

}  // namespace

Shape::Shape(const fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz krcore shape");
  clients = 1 + static_cast<std::uint32_t>(rng.below(kMostClients));
  lanes = 1 + static_cast<std::uint32_t>(rng.below(kMostLanes));
  depth = one_of(rng, {0, 2, 8, 24});
  shared = one_of(rng, {1, 1, 2, 6});
  message = one_of(rng, {100, 200, kMostMessage - 64});
  burst = one_of(rng, {1, 1, 2, 8});
  queue_entries = one_of(rng, {40, 128});
  one_target = rng.below(4) == 0;
  one_by_one = rng.below(3) == 0;
  clears_caches = rng.below(2) == 0;
  // One kind of act is frequent in a half of the seeds.
  weights.assign(kWeights.begin(), kWeights.end());
  for (std::uint32_t& weight : weights) weight *= one_of(rng, {0, 1, 1, 1});
  weights[static_cast<std::size_t>(Act::kWrites)] += 10;
  breaks = rng.below(4) == 0;
  if (breaks) weights[static_cast<std::size_t>(Act::kBreak)] += 20;
  if (rng.below(2) == 0) weights[rng.below(weights.size() - 5)] += 60;

  service.name = "fuzz";
  service.cores = 1 + static_cast<std::uint32_t>(rng.below(3));
  service.dc_queue_pairs = 1 + static_cast<std::uint32_t>(rng.below(3));
  service.rc_queue_pairs = static_cast<std::uint32_t>(rng.below(4));
  service.send_entries = 4 + static_cast<std::uint32_t>(rng.below(12));
  service.completion_entries = 3 + static_cast<std::uint32_t>(rng.below(12));
  service.rc_policy = static_cast<RcPolicy>(rng.below(3));
  service.sample_interval = 100 * kMicrosecond;
  service.frequent_requests = 3;
  service.receive_buffers = 8 + static_cast<std::uint32_t>(rng.below(24));
  service.message_bytes = 1024;
  service.zero_copy_above = static_cast<std::uint32_t>(64 + rng.below(900));
  service.inbox_messages = 4096;
  service.inbox_bytes = 4096 * 1024;
  service.ask_again = kMicrosecond * one_of(rng, {5000, 1000, 100, 10});
  service.arena_bytes = 1 << 20;
  service.regions = 256;
  // Those of all clients, those that answer them, and those that tests of the past have left.
  const std::uint32_t queues = 2 * options.nodes * clients * lanes;
  service.virtual_queue_pairs = 2 * queues + one_of(rng, {40, 400});
  service.app_queues = service.virtual_queue_pairs / 2;
  service.lease = kMicrosecond * (depth < 8 ? one_of(rng, {300, 1000}) : 3000);
  service.timeout_us = 250;
  service.boot_timeout = 5 * kMillisecond;
  service.dc_cache = rng.below(8) != 0;
  service.slices = rng.below(4) != 0;
  service.meta_servers = {0};
  if (options.nodes > 2) service.meta_servers.push_back(1);
  // Numbers that go round are near their end in one of four seeds.
  if (rng.below(4) == 0) {
    service.first_generation = static_cast<std::uint16_t>(0xffff - rng.below(3));
    service.first_epoch = static_cast<std::uint16_t>(0xffff - rng.below(3));
  }
  service.bugs = Bugs::named(options.mutation);
  if (rng.below(4) == 0) stranger = static_cast<NodeId>(rng.below(options.nodes));
  has_dynamic = rng.below(6) != 0;
  // Each node may have two to each one, of which the last life's is dead.
  if (!has_dynamic) service.rc_queue_pairs = 4 * options.nodes;
}

std::vector<std::vector<Planned>> Shape::plans(const fuzz::Options& options,
                                               std::uint32_t pace) const {
  Rng rng(options.seed, -1, "fuzz krcore plan");
  std::uint64_t all = 0;
  for (const std::uint32_t weight : weights) all += weight;
  // Acts that follow at once overlap.
  const bool is_dense = rng.below(2) == 0;
  // A thread that does something else for long takes no completions meanwhile.
  const bool is_busy = rng.below(2) == 0;
  std::vector<std::vector<Planned>> plans(std::size_t{options.nodes} * clients);
  for (std::uint32_t id = 0; id < options.operations; ++id) {
    Planned op;
    op.id = id;
    const std::size_t client = rng.below(plans.size());
    std::uint64_t kind = rng.below(all);
    std::size_t act = 0;
    while (kind >= weights[act]) kind -= weights[act++];
    op.act = static_cast<Act>(act);
    op.target = one_target && rng.below(8) != 0 ? 0 : static_cast<NodeId>(rng.below(options.nodes));
    op.lane = static_cast<std::uint32_t>(rng.below(lanes));
    op.size = static_cast<std::uint32_t>(rng.below(4) == 0 ? rng.below(kMostMessage - 64)
                                                           : rng.below(message));
    op.draw = rng();
    if (!is_dense || rng.below(4) == 0) op.pause = static_cast<Time>(rng.below(20'000) * pace);
    if (is_busy && rng.below(8) == 0) op.pause += static_cast<Time>(rng.below(1'000'000));
    plans[client].push_back(op);
  }
  return plans;
}

}  // namespace pyrdma::krcore::scenario
