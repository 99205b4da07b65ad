// The worlds in which channels are tested. Each world runs a function on every node, with a
// manager.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "fabric/contract_worlds_test.h"
#include "systems/loco/manager.h"

namespace pyrdma::loco {

inline fabric::sim::SimOptions sim_options(std::uint32_t nodes, bool weak, std::uint64_t seed = 1) {
  fabric::sim::SimOptions options;
  options.nodes = nodes;
  options.profile = fabric::sim::test_profile();
  options.seed = seed;
  options.memory = weak ? fabric::sim::MemoryModel::weak() : fabric::sim::MemoryModel::strong();
  return options;
}

/// Runs `per_node` on every node of a fresh cluster: "sim" (weak memory), "sim_strong", "shm"
/// (threads) or "verbs". The suffix "_poller" gives each manager a polling thread.
inline void run_nodes(const std::string& world, std::uint32_t nodes, ManagerOptions options,
                      const std::function<void(Manager&)>& per_node) {
  if (world.find("_poller") != std::string::npos) options.polling = Polling::kThread;
  const auto body = [&](Env& env) {
    Manager manager(env, options);
    per_node(manager);
    manager.leave();
  };
  if (world.rfind("sim", 0) == 0) {
    fabric::sim::SimCluster cluster(sim_options(nodes, world.find("strong") == std::string::npos));
    cluster.run(body);
    fabric::expect_same_run(cluster.fingerprint());
  } else if (world.rfind("shm", 0) == 0) {
    fabric::shm::ShmCluster cluster(fabric::shm::ShmOptions{nodes, 1});
    cluster.run(body);
  } else {
    fabric::verbs::VerbsCluster cluster(fabric::verbs::VerbsOptions{nodes, 1, {}});
    cluster.run(body);
  }
}

/// Returns the message of the Error that `act` throws.
inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class LocoWorlds : public testing::TestWithParam<std::string> {
 protected:
  void run(std::uint32_t nodes, const std::function<void(Manager&)>& per_node,
           ManagerOptions options = {}) {
    run_nodes(GetParam(), nodes, options, per_node);
  }
};

inline auto loco_worlds() {
#if defined(__SANITIZE_THREAD__)
  // A simulation is one thread: it has no races for the sanitizer, and its fibers are slow.
  std::vector<std::string> names = {"shm", "shm_poller"};
#else
  std::vector<std::string> names = {"sim", "sim_strong", "sim_poller", "shm", "shm_poller"};
#endif
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return testing::ValuesIn(names);
}

}  // namespace pyrdma::loco
