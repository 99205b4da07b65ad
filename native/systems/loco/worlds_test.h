// The worlds in which channels are tested. Each world runs a function on every node, with a
// manager.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error_test.h"
#include "runtime/worlds_test.h"
#include "systems/loco/manager.h"

namespace pyrdma::loco {

using runtime::sim_options;

/// Runs `per_node` on every node of a fresh cluster; see runtime::run_world.
inline void run_nodes(const std::string& world, std::uint32_t nodes, ManagerOptions options,
                      const std::function<void(Manager&)>& per_node) {
  runtime::set_world(world, options);
  runtime::run_world(world, nodes, [&](Env& env, const runtime::Kill&) {
    Manager manager(env, options);
    per_node(manager);
    manager.leave();
  });
}

class LocoWorlds : public testing::TestWithParam<std::string> {
 protected:
  void run(std::uint32_t nodes, const std::function<void(Manager&)>& per_node,
           ManagerOptions options = {}) {
    run_nodes(GetParam(), nodes, options, per_node);
  }
};

/// Tests that wait for a timeout. In virtual time no machine is slow.
class LocoPatienceSim : public LocoWorlds {};

inline auto loco_worlds() {
  std::vector<std::string> names = runtime::world_names();
#if !defined(__SANITIZE_THREAD__)
  names.emplace_back("sim_strong");
#endif
  if (std::getenv("PYRDMA_TEST_VERBS") != nullptr) names.emplace_back("verbs");
  return testing::ValuesIn(names);
}

}  // namespace pyrdma::loco
