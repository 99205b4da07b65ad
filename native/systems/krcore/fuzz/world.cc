#include "systems/krcore/fuzz/world.h"

#include <algorithm>

namespace pyrdma::krcore::scenario {

namespace {

std::vector<std::vector<Planned>> plans_of(const fuzz::Options& options, std::uint32_t pace) {
  Rng rng(options.seed, -1, "fuzz krcore plan");
  std::vector<std::vector<Planned>> plans(options.nodes * kClients);
  for (std::uint32_t id = 0; id < options.operations; ++id) {
    Planned op;
    op.id = id;
    const std::size_t client = rng.below(plans.size());
    const std::uint64_t kind = rng.below(100);
    op.act = kind < 30   ? Act::kWrites
             : kind < 42 ? Act::kAdd
             : kind < 70 ? Act::kMessage
             : kind < 80 ? Act::kMalformed
             : kind < 85 ? Act::kRenew
             : kind < 98 ? Act::kMove
                         : Act::kRegion;
    op.target = static_cast<NodeId>(rng.below(options.nodes));
    op.size = static_cast<std::uint32_t>(rng.below(4) == 0 ? rng.below(kMostMessage - 64)
                                                           : rng.below(200));
    op.draw = rng();
    op.pause = static_cast<Time>(rng.below(20'000) * pace);
    plans[client].push_back(op);
  }
  return plans;
}

}  // namespace

Shape::Shape(const fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz krcore shape");
  service.name = "fuzz";
  service.cores = 1 + static_cast<std::uint32_t>(rng.below(2));
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
  service.arena_bytes = 1 << 20;
  service.regions = 64;
  service.virtual_queue_pairs = 512;
  service.lease = 300 * kMicrosecond;
  service.timeout_us = 100;
  service.boot_timeout = 5 * kMillisecond;
  service.dc_cache = rng.below(8) != 0;
  service.slices = rng.below(4) != 0;
  service.meta_servers = {0};
  if (options.nodes > 2) service.meta_servers.push_back(1);
  service.bugs = Bugs::named(options.mutation);
  if (rng.below(4) == 0) stranger = static_cast<NodeId>(rng.below(options.nodes));
  has_dynamic = rng.below(6) != 0;
  // Each node may have two to each one, of which the last life's is dead.
  if (!has_dynamic) service.rc_queue_pairs = 4 * options.nodes;
}

World::World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      shape(wanted),
      plans(plans_of(wanted, faults.pace())),
      nodes(wanted.nodes) {
  for (const Fault fault :
       {Fault::qp_error, Fault::crash, Fault::host_crash, Fault::partition, Fault::isolation,
        Fault::partition_partial, Fault::partition_one_way, Fault::partition_flapping, Fault::clog,
        Fault::loss, Fault::loss_burst, Fault::ack_loss, Fault::pause, Fault::slow_node,
        Fault::noisy_neighbour, Fault::pause_storm, Fault::dc_storm, Fault::buffer_overflow,
        Fault::delay})
    can_break = can_break || options.faults[fault].rate > 0;
}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, cluster->now(), text);
}

bool World::may_fail(NodeId from, NodeId to) const {
  return can_break || nodes[from].crashes != 0 || nodes[to].crashes != 0;
}

bool World::all_done() const {
  return std::ranges::all_of(nodes, [](const Node& node) {
    return std::ranges::all_of(node.is_done, [](bool done) { return done; });
  });
}

bool World::all_reached() const {
  return std::ranges::all_of(nodes, [](const Node& node) {
    return std::ranges::all_of(node.has_reached, [](bool reached) { return reached; });
  });
}

std::string World::describe() const {
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    text += "\n  node " + std::to_string(i) + (nodes[i].is_up ? " up" : " down") + ", life " +
            std::to_string(nodes[i].life);
    for (std::uint32_t client = 0; client < kClients; ++client)
      text += ", " + std::to_string(nodes[i].next[client]) + "/" +
              std::to_string(plans[i * kClients + client].size()) +
              (nodes[i].has_reached[client] ? " reached all"
               : nodes[i].is_done[client]   ? " done"
                                            : "");
  }
  return text;
}

// What was sent and has ended well has been received, unless its receiver has died.
void World::check() {
  for (const auto& [number, stream] : streams) {
    const Node& receiver = nodes[stream.to];
    if (receiver.life != stream.to_life || stream.received >= stream.succeeded) continue;
    violation("lost", "queue pair " + std::to_string(number) + " from node " +
                          std::to_string(stream.from) + " to " + std::to_string(stream.to) + ": " +
                          std::to_string(stream.succeeded) + " messages have ended well, " +
                          std::to_string(stream.received) + " have arrived");
  }
}

}  // namespace pyrdma::krcore::scenario
