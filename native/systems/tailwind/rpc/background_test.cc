// The threads of a server never take the core of its dispatch thread, wherever that runs.
#include "systems/tailwind/rpc/background.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "runtime/worlds_test.h"

namespace pyrdma::tailwind {
namespace {

TEST(TailwindCores, OtherThreadsLeaveTheDispatchThreadItsCore) {
  fabric::sim::SimOptions options = runtime::sim_options(1);
  options.cores_per_node = 6;
  fabric::sim::SimCluster cluster(options);
  std::set<std::uint32_t> seen;
  cluster.run([&](Env& env) {
    for (std::uint32_t i = 0; i < 12; ++i) {  // as the lives of a server that are excluded
      env.spawn("life", [&] {
        const std::uint32_t own = env.core();
        seen.insert(own);
        std::set<std::uint32_t> beside;
        for (std::uint32_t number = 0; number < 5; ++number)
          beside.insert(core_beside(env, number));
        EXPECT_EQ(beside.size(), 5U) << "on core " << own;
        EXPECT_FALSE(beside.contains(own)) << "on core " << own;
        for (std::uint32_t workers = 0; workers < 8; ++workers) {
          EXPECT_NE(background_core(env, workers), own) << workers << " workers, core " << own;
          if (workers >= 5) {
            EXPECT_EQ(background_core(env, workers), core_beside(env, 4)) << workers;
          }
        }
      });
    }
  });
  EXPECT_EQ(seen.size(), 6U);
}

TEST(TailwindCores, ASingleCoreHasAll) {
  fabric::sim::SimOptions options = runtime::sim_options(1);
  options.cores_per_node = 1;
  fabric::sim::SimCluster cluster(options);
  cluster.run([](Env& env) {
    EXPECT_EQ(core_beside(env, 0), 0U);
    EXPECT_EQ(background_core(env, 3), 0U);
  });
}

}  // namespace
}  // namespace pyrdma::tailwind
