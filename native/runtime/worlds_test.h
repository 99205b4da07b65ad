// The worlds in which the runtime is tested. Each world runs a function on every node.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"
#include "runtime/runtime.h"

namespace pyrdma::runtime {

inline fabric::sim::SimOptions sim_options(std::uint32_t nodes, bool weak = true,
                                           std::uint64_t seed = 1) {
  fabric::sim::SimOptions options;
  options.nodes = nodes;
  options.profile = fabric::sim::test_profile();
  options.seed = seed;
  options.memory = weak ? fabric::sim::MemoryModel::weak() : fabric::sim::MemoryModel::strong();
  return options;
}

/// Ends a node, from a thread of that node or of another node.
using Kill = std::function<void(NodeId)>;

/// Runs `per_node` on every node of a fresh cluster: "sim" (weak memory), "sim_strong", "shm"
/// (threads) or "verbs", whose nodes cannot be killed. The suffix "_poller" concerns the options.
inline void run_world(const std::string& world, std::uint32_t nodes,
                      const std::function<void(Env&, const Kill&)>& per_node) {
  if (world.rfind("sim", 0) == 0) {
    fabric::sim::SimCluster cluster(sim_options(nodes, world.find("strong") == std::string::npos));
    const Kill kill = [&](NodeId node) { cluster.kill(node); };
    cluster.run([&](Env& env) { per_node(env, kill); });
    fabric::expect_same_run(cluster.fingerprint());
  } else if (world.rfind("shm", 0) == 0) {
    fabric::shm::ShmCluster cluster(fabric::shm::ShmOptions{nodes, 1});
    const Kill kill = [&](NodeId node) { cluster.kill(node); };
    cluster.run([&](Env& env) { per_node(env, kill); });
  } else {
    fabric::verbs::VerbsCluster cluster(fabric::verbs::VerbsOptions{nodes, 1, {}});
    cluster.run([&](Env& env) { per_node(env, [](NodeId) { FAIL() << "no way to kill"; }); });
  }
}

/// Sets what the world asks for: its suffix, and patience where a busy machine may be slow. A test
/// of a timeout needs virtual time.
inline void set_world(const std::string& world, Options& options) {
  if (world.find("_poller") != std::string::npos) options.polling = Polling::kThread;
  if (world.rfind("sim", 0) != 0) options.wait_timeout = kSetupTimeout;
}

inline std::vector<std::string> world_names() {
#if defined(__SANITIZE_THREAD__)
  // A simulation is one thread: it has no races for the sanitizer, and its fibers are slow.
  return {"shm", "shm_poller"};
#else
  return {"sim", "sim_poller", "shm", "shm_poller"};
#endif
}

class RuntimeWorlds : public testing::TestWithParam<std::string> {
 protected:
  Options options(std::uint32_t callers = 1) const {
    Options options;
    options.callers = callers;
    set_world(GetParam(), options);
    return options;
  }
  void run(std::uint32_t nodes, const std::function<void(Env&, const Kill&)>& per_node) {
    run_world(GetParam(), nodes, per_node);
  }
};

/// A region of each node that all nodes know; the rendezvous carries the addresses under `name`.
class SharedWords {
 public:
  SharedWords(Runtime& runtime, const std::string& name, std::uint64_t words)
      : runtime_(runtime),
        name_(name),
        own_(runtime.memory().allocate(8 * words, fabric::kAllAccess)) {
    publish_list(runtime.env(), key(runtime.self()), std::vector{own_.remote()});
  }
  fabric::RemoteRegion at(NodeId node) {
    return await_list<fabric::RemoteRegion>(runtime_.env(), key(node),
                                            runtime_.env().now() + kSetupTimeout)
        .at(0);
  }
  std::uint64_t* local() const { return reinterpret_cast<std::uint64_t*>(own_.data); }

 private:
  std::string key(NodeId node) const { return name_ + '/' + std::to_string(node); }
  Runtime& runtime_;
  std::string name_;
  LocalRegion own_;
};

}  // namespace pyrdma::runtime
