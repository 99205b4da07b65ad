#include "fuzz/fabric/node.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "env/trace.h"
#include "fuzz/fabric/datagram_client.h"
#include "fuzz/fabric/link.h"

namespace pyrdma::fuzz {

Node::Node(World& all, Env& of_node)
    : world(all),
      env(of_node),
      device(of_node.device()),
      id(of_node.node()),
      incarnation(of_node.incarnation()) {
  NodeState& state = world.nodes[id];
  if (state.shared) state.all.push_back(std::move(state.shared));
  state.shared = std::make_unique<Arena>(world.layout.bytes);
  state.incarnations = incarnation + 1;
  state.all.push_back(std::make_unique<Arena>(buffers_of_client() * world.options.nodes));
  device.open();
  pd = persist([&] { return device.create_protection_domain(); });
  auto register_all = [&](const Arena& arena, std::uint32_t access) {
    return persist([&] { return device.register_memory(*pd, arena.data(), arena.size(), access); });
  };
  local_data = state.all.back()->data();
  shared = register_all(*state.shared, fabric::kAllAccess);
  local = register_all(*state.all.back(), fabric::kLocalWrite);
}

fabric::QpOptions Node::queue_pair_options(fabric::Transport transport) const {
  fabric::QpOptions options;
  options.transport = transport;
  options.send_entries = 64;
  options.receive_entries = 64;
  options.max_inline = std::min(64u, device.capabilities().max_inline);
  // Some runs give up early and some late. All nodes of a run have the same values.
  Rng rng(world.options.seed, -1, "fuzz queue pairs");
  options.timeout_us = 16u << rng.below(3);
  options.retry_count = 2 + static_cast<std::uint32_t>(rng.below(6));
  options.rnr_retry = rng.below(2) == 0 ? fabric::kInfiniteRetry : 6;
  options.max_outstanding_reads = std::min(4u, device.capabilities().max_outstanding_reads);
  return options;
}

std::size_t Node::buffers_of_client() {
  return (kReliableWindow + kUnreliableWindow) * std::size_t{kMostBytes} +
         std::size_t{kReliableReceives + kUnreliableReceives} * kReceiveBytes;
}

std::byte* Node::buffers(NodeId peer) const { return local_data + buffers_of_client() * peer; }

void Node::trace(const char* what, const std::string& details) {
  env.trace().event(world.now(), what, details);
}

bool Node::tracing() const { return env.trace().enabled(); }

void run_node(World& world, Env& env) {
  struct Killed {
    Outcome& outcome;
    ~Killed() {
      if (std::uncaught_exceptions() > 0) outcome.crashed_after.push_back(outcome.begun);
    }
  } const killed{world.outcome};
  Node node(world, env);
  std::vector<std::unique_ptr<Thread>> threads;
  for (NodeId peer = 0; peer < world.options.nodes; ++peer)
    if (peer != node.id)
      threads.push_back(env.spawn("link " + std::to_string(node.id) + " to " + std::to_string(peer),
                                  [&node, peer] { Link(node, peer).run(); }));
  if (node.incarnation > 0) ++world.outcome.restarts;
  DatagramClient(node).run();
  for (auto& thread : threads) thread->join();
}

}  // namespace pyrdma::fuzz
