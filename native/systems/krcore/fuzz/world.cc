#include "systems/krcore/fuzz/world.h"

#include <algorithm>

namespace pyrdma::krcore::scenario {

namespace {

// Faults that end queue pairs or exhaust attempts. The others must harm no request.
constexpr std::array kBreaking{Fault::qp_error,
                               Fault::partition,
                               Fault::isolation,
                               Fault::partition_partial,
                               Fault::partition_one_way,
                               Fault::partition_flapping,
                               Fault::coordinator_down,
                               Fault::clog,
                               Fault::loss,
                               Fault::loss_burst,
                               Fault::ack_loss,
                               Fault::pause,
                               Fault::slow_node,
                               Fault::noisy_neighbour,
                               Fault::pause_storm,
                               Fault::dc_storm,
                               Fault::buffer_overflow,
                               Fault::delay};

}  // namespace

World::World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      shape(wanted),
      plans(shape.plans(wanted, faults.pace())),
      nodes(wanted.nodes),
      places(plans.size() * wanted.nodes),
      known_(wanted.nodes) {
  for (Node& node : nodes) {
    node.next.resize(shape.clients);
    node.is_done.resize(shape.clients);
    node.has_reached.resize(shape.clients);
  }
}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, now(), text);
  is_over |= outcome.violations.size() == fuzz::kMostViolations;
}

void World::look_at_faults() {
  std::uint64_t effects = 0;
  for (const Fault fault : kBreaking)
    effects += cluster->fault_counters().reached[static_cast<std::size_t>(fault)];
  if (effects != effects_) last_effect_ = now();
  effects_ = effects;
}

bool World::has_died(NodeId node, Time since) const {
  return !nodes[node].is_up || (nodes[node].died >= 0 && nodes[node].died >= since - kAftermath);
}

bool World::may_fail(NodeId from, NodeId to, Time since) {
  look_at_faults();
  const auto is_recent = [&](Time at) { return at >= 0 && at >= since - kAftermath; };
  return is_recent(last_effect_) || is_recent(nodes[from].broke) || is_recent(nodes[to].broke) ||
         has_died(from, since) || has_died(to, since);
}

std::uint32_t World::shared_word(NodeId node, std::uint64_t draw) {
  constexpr std::uint32_t kOfAWord = 12;
  const std::uint32_t round = nodes[node].shared++ / (kOfAWord * shape.shared);
  return (round * shape.shared + static_cast<std::uint32_t>(draw % shape.shared)) % kMostShared;
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
    for (std::uint32_t client = 0; client < shape.clients; ++client)
      text += ", " + std::to_string(nodes[i].next[client]) + "/" +
              std::to_string(plans[i * shape.clients + client].size()) +
              (nodes[i].has_reached[client] ? " reached all"
               : nodes[i].is_done[client]   ? " done"
                                            : "");
  }
  for (const auto& [number, stream] : streams) {
    if (nodes[stream.to].life == stream.to_life && stream.received < stream.succeeded)
      text += "\n  queue pair " + std::to_string(number) + " from node " +
              std::to_string(stream.from) + " to " + std::to_string(stream.to) + ": " +
              std::to_string(stream.received) + " of " + std::to_string(stream.succeeded) +
              " messages have arrived";
  }
  return text;
}

// What was sent and has ended well has been received, unless its receiver has died. Of the others,
// what has been received came in order and without a gap: Inbox has judged that.
void World::check() {
  registers.judge(outcome, options, now());
  bool has_sent = false;
  for (const auto& [number, stream] : streams) {
    const Node& receiver = nodes[stream.to];
    if (receiver.life != stream.to_life) continue;
    has_sent |= stream.succeeded != 0;
    if (stream.received >= stream.succeeded) continue;
    violation("lost", "queue pair " + std::to_string(number) + " from node " +
                          std::to_string(stream.from) + " to " + std::to_string(stream.to) + ": " +
                          std::to_string(stream.succeeded) + " messages have ended well, " +
                          std::to_string(stream.received) + " have arrived");
  }
  if (has_sent)
    outcome.made("messages");
  else
    outcome.skipped("messages", "none was sent to a node that lives");
}

}  // namespace pyrdma::krcore::scenario
