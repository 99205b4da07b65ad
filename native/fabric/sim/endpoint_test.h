// Options and connected nodes for tests of the simulated fabric.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "env/env.h"
#include "fabric/fabric.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"

namespace pyrdma::fabric::sim {

inline SimOptions sim_options(std::uint32_t nodes, std::map<std::string, double> changes = {},
                              std::uint64_t seed = 1) {
  auto values = test_profile_values();
  for (const auto& [name, value] : changes) values.at(name) = value;
  SimOptions result;
  result.nodes = nodes;
  result.profile = SimProfile::from_values(values);
  result.seed = seed;
  return result;
}

/// The objects of a node that communicates with node `to`. meet() lets both nodes end together.
/// Several connections between two nodes differ by `tag`.
struct Endpoint {
  Endpoint(Env& node_env, NodeId peer, std::size_t bytes, QpOptions qp_options = {},
           std::string connection = "")
      : env(node_env),
        to(peer),
        tag(std::move(connection)),
        device(env.device()),
        pd(device.create_protection_domain()),
        memory(device.allocate(*pd, bytes, kAllAccess)),
        completions(device.create_completion_queue(1024)) {
    qp_options.send_entries = 512;
    queue_pair = device.create_queue_pair(*pd, *completions, *completions, qp_options);
    Rendezvous& r = device.rendezvous();
    r.publish_value(mine("qp"), queue_pair->address());
    r.publish_value(mine("mr"), memory->remote());
    remote = r.await_value<RemoteRegion>(its("mr"), kForever);
    queue_pair->connect(r.await_value<QpAddress>(its("qp"), kForever));
    meet("start");
  }
  std::string mine(const char* what) const { return what + path(env.node(), to); }
  std::string its(const char* what) const { return what + path(to, env.node()); }
  std::string path(NodeId from, NodeId target) const {
    return std::to_string(from) + "-" + std::to_string(target) + ":" + tag;
  }
  void meet(const char* what) {
    device.rendezvous().publish_value(mine(what), 1);
    device.rendezvous().await_value<int>(its(what), kForever);
  }
  Completion next() {
    Completion completion;
    env.poll_until(
        [&] {
          return completions->poll({&completion, 1}) == 1;
        },
        kForever, &completions->watch());
    return completion;
  }
  Env& env;
  NodeId to;
  std::string tag;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> memory;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> queue_pair;
  RemoteRegion remote;
};

}  // namespace pyrdma::fabric::sim
