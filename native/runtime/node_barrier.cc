#include "runtime/node_barrier.h"

#include <numeric>
#include <vector>

#include "base/error.h"
#include "runtime/caller.h"

namespace pyrdma::runtime {

namespace {

std::string arrival_key(const std::string& name, NodeId node) {
  return name + '/' + std::to_string(node);
}

[[noreturn]] void throw_missing(Env& env, const std::string& name, Time timeout,
                                std::span<const NodeId> nodes) {
  std::vector<NodeId> missing;
  for (const NodeId node : nodes) {
    if (!env.device().rendezvous().find(arrival_key(name, node))) missing.push_back(node);
  }
  const std::string cause =
      missing.empty()
          ? ": node " + std::to_string(nodes.front()) + " arrived but ended before the release"
          : " for node" + text_of(missing) + "; check that it runs the same program";
  if (missing.empty()) missing.push_back(nodes.front());
  throw Error(ErrorCode::kTimeout, "node " + std::to_string(env.node()) + " waited " +
                                       std::to_string(timeout / kMillisecond) + " ms at barrier '" +
                                       name + "'" + cause)
      .blaming(missing);
}

// A barrier of some nodes goes on without the others: their end must not end the wait.
void await(Env& env, const std::string& key, Time deadline, bool all) {
  while (true) {
    try {
      env.device().rendezvous().await(key, deadline);
      return;
    } catch (const fabric::NodesEnded&) {
      if (all) throw;
    }
  }
}

}  // namespace

void node_barrier(Env& env, const std::string& name, Time timeout, std::span<const NodeId> nodes) {
  std::vector<NodeId> every;
  if (nodes.empty()) {
    every.resize(env.nodes());
    std::iota(every.begin(), every.end(), NodeId{0});
    nodes = every;
  }
  const bool all = nodes.size() == env.nodes();
  fabric::Rendezvous& rendezvous = env.device().rendezvous();
  const Time deadline = env.now() + timeout;
  const std::string released = name + "/all";
  try {
    rendezvous.publish_value(arrival_key(name, env.node()), std::uint8_t{1});
    if (env.node() == nodes.front()) {
      for (const NodeId node : nodes.subspan(1)) await(env, arrival_key(name, node), deadline, all);
      rendezvous.publish_value(released, std::uint8_t{1});
    }
    // The first node waits for its own release too, so that it continues together with the others.
    await(env, released, deadline, all);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw_missing(env, name, timeout, nodes);
  }
}

}  // namespace pyrdma::runtime
