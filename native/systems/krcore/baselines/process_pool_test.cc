#include "systems/krcore/baselines/process_pool.h"

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

class KrcoreProcessPool : public KrcoreWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreProcessPool, krcore_worlds(),
                         [](const auto& info) { return info.param; });

// Node 1 has two processes. The second connect of a process costs nothing; that of another process
// costs as much as the first one.
TEST_P(KrcoreProcessPool, ConnectionsBelongToAProcess) {
  runtime::run_world(GetParam(), 2, [&](Env& env, const Kill&) {
    const Time deadline = env.now() + runtime::kSetupTimeout;
    ProcessPool first(env, "pool", 0);
    ProcessPool second(env, "pool", 1);
    if (env.node() == 0) {
      first.accept(1, 0, deadline);
      first.accept(1, 1, deadline);
      runtime::node_barrier(env, "done");
      return;
    }
    const auto time_of = [&](ProcessPool& pool) {
      const Time begin = env.now();
      EXPECT_EQ(pool.connect(0, 0, deadline).qp->state(), fabric::QpState::kReadyToSend);
      return env.now() - begin;
    };
    const Time miss = time_of(first);
    const Time hit = time_of(first);
    const Time other = time_of(second);
    EXPECT_EQ(first.hits(), 1u);
    EXPECT_EQ(second.hits(), 0u);
    EXPECT_NE(&first.connect(0, 0, deadline), &second.connect(0, 0, deadline));
    if (is_sim()) {
      EXPECT_LT(100 * hit, miss);
      EXPECT_GT(2 * other, miss);
    }
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
