#include "measure/verbs_load/plan.h"

namespace pyrdma::measure::verbs_load {

namespace {

constexpr NodeId kNobody = ~0U;

// Returns the opponent of `self` in round `round` of a round-robin tournament. Among an odd number
// of players, a + b = round; the player who would meet itself sits out. An even number has one more
// player, who meets the player that would sit out.
NodeId opponent(std::uint64_t round, NodeId self, NodeId nodes) {
  const NodeId odd = nodes % 2 == 0 ? nodes - 1 : nodes;
  const auto r = static_cast<NodeId>(round % odd);
  // Half of the round, in the arithmetic of the odd number, is the player who would meet itself.
  const auto alone = static_cast<NodeId>(std::uint64_t{r} * ((odd + 1) / 2) % odd);
  if (self == odd) return alone;
  if (self != alone) return (r + odd - self) % odd;
  return nodes == odd ? kNobody : odd;
}

std::vector<Link> symmetric(const Load& load, NodeId self) {
  std::vector<Link> links;
  // With an odd number of nodes, each node sits out one round of so many.
  const std::uint64_t rounds =
      load.qps + (load.nodes % 2 != 0 ? (load.qps + load.nodes - 2) / (load.nodes - 1) : 0);
  for (std::uint32_t t = 0; t < load.threads; ++t) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const NodeId peer = load.pattern == Pattern::kPair
                              ? self ^ 1U
                              : opponent(t * rounds + round, self, load.nodes);
      if (peer != kNobody) links.push_back({peer, t, 0, load.client_number(self, t)});
    }
  }
  return links;
}

std::vector<Link> to_servers(const Load& load, NodeId self) {
  std::vector<Link> links;
  const auto of_client = [&](NodeId node, std::uint32_t thread, auto&& take) {
    const std::uint32_t client = load.client_number(node, thread);
    for (std::uint32_t j = 0; j < load.qps; ++j) {
      const NodeId server = (client + (load.pattern == Pattern::kPair ? 0 : j)) % load.servers;
      take(server, client);
    }
  };
  if (load.is_client(self)) {
    for (std::uint32_t t = 0; t < load.senders(self); ++t) {
      of_client(self, t, [&](NodeId server, std::uint32_t client) {
        links.push_back({server, t, 0, client});
      });
    }
    return links;
  }
  for (NodeId node = load.servers; node < load.nodes; ++node) {
    for (std::uint32_t t = 0; t < load.senders(node); ++t) {
      of_client(node, t, [&](NodeId server, std::uint32_t client) {
        if (server == self) links.push_back({node, kNoThread, 0, client});
      });
    }
  }
  return links;
}

// Connectionless: each queue pair reaches one peer (pair), or all.
std::vector<Link> destinations(const Load& load, NodeId self) {
  std::vector<Link> links;
  const NodeId targets = load.servers != 0 ? load.servers : load.nodes;
  for (std::uint32_t t = 0; t < load.senders(self); ++t) {
    const std::uint32_t client = load.client_number(self, t);
    if (load.pattern == Pattern::kPair) {
      const NodeId peer = load.servers != 0 ? client % load.servers : self ^ 1U;
      for (std::uint32_t j = 0; j < load.qps; ++j) links.push_back({peer, t, j, client});
      continue;
    }
    // Requests in turn go to the next queue pair each, so that all of them work at once.
    for (NodeId i = 0; i < targets; ++i) {
      for (std::uint32_t j = 0; j < load.qps; ++j) {
        const NodeId peer = (client + i + j) % targets;
        if (peer != self) links.push_back({peer, t, j, client});
      }
    }
  }
  return links;
}

}  // namespace

std::vector<Link> plan_links(const Load& load, NodeId self) {
  if (!load.connected()) return destinations(load, self);
  return load.servers == 0 ? symmetric(load, self) : to_servers(load, self);
}

}  // namespace pyrdma::measure::verbs_load
