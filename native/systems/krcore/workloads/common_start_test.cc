#include "systems/krcore/workloads/common_start.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "runtime/worlds_test.h"

namespace pyrdma::krcore {
namespace {

measure::Params no_params() {
  return measure::Params::resolve({}, {{"run", std::int64_t{1}}}, "test");
}

TEST(KrcoreCommonStartSim, AllBeginAtOnceHoweverLateOneComes) {
  std::vector<Time> begun;
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  cluster.run([&](Env& env) {
    const measure::Params params = no_params();
    const std::uint32_t clients = env.node() == 0 ? 0 : 3;
    CommonStart start(env, params, clients);
    start.run([&](std::uint32_t i) {
      env.sleep_until(env.now() + i * 3 * kMillisecond);
      EXPECT_TRUE(start.wait(i));
      begun.push_back(env.now());
    });
  });
  ASSERT_EQ(begun.size(), 6u);
  for (const Time time : begun) EXPECT_LE(std::abs(time - begun.front()), kMicrosecond);
}

// The first client of a node waits for the others, and they wait for it.
TEST(KrcoreCommonStartSim, TheErrorOfOneClientEndsTheOthers) {
  for (const std::uint32_t failing : {0u, 1u}) {
    fabric::sim::SimCluster cluster(runtime::sim_options(1));
    std::uint32_t went_on = 0;
    EXPECT_THROW(cluster.run([&](Env& env) {
      const measure::Params params = no_params();
      CommonStart start(env, params, 3);
      start.run([&](std::uint32_t i) {
        if (i == failing) throw Error(ErrorCode::kInternal, "a client fails");
        went_on += start.wait(i) ? 1 : 0;
      });
    }),
                 Error);
    EXPECT_EQ(went_on, 0u);
  }
}

}  // namespace
}  // namespace pyrdma::krcore
