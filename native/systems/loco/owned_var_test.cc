// Registers with one writer: what readers see while the owner stores, pushes and callers pull.
#include "systems/loco/owned_var.h"

#include "systems/loco/barrier.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

using LocoOwnedVar = LocoWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, LocoOwnedVar, loco_worlds(),
                         [](const auto& param) { return param.param; });

struct Wide {
  std::uint64_t words[13];
};

TEST_P(LocoOwnedVar, AWideVariableIsNeverTorn) {
  run(2, [&](Manager& manager) {
    OwnedVar<Wide> pushed(manager, "pushed", 0, Updates::kPushed);
    OwnedVar<Wide> pulled(manager, "pulled", 0, Updates::kPulled);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    constexpr std::uint64_t kLast = 300;
    if (manager.self() == 0) {
      for (std::uint64_t i = 1; i <= kLast; ++i) {
        Wide wide;
        for (auto& word : wide.words) word = i;
        pushed.store(wide);
        pushed.push(me);
        pulled.store(wide);
        if (i % 8 == 0) {
          EXPECT_EQ(me.fence_thread(), fabric::Status::kSuccess);
        }
      }
    } else {
      for (std::uint64_t last = 0; last < kLast;) {
        const Wide wide = pushed.load(me);
        for (const auto word : wide.words) EXPECT_EQ(word, wide.words[0]);
        EXPECT_GE(wide.words[0], last);
        last = wide.words[0];
        const auto [status, far] = pulled.pull(me);
        EXPECT_EQ(status, fabric::Status::kSuccess);
        for (const auto word : far.words) EXPECT_EQ(word, far.words[0]);
      }
    }
    barrier.wait(me);
  });
}

// The owner pushes with two callers in turn. No copy ever goes back, and the last push stays.
TEST(LocoOwnedVarSim, CallersTakeTurns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimCluster cluster(sim_options(2, true, seed));
    ManagerOptions options;
    options.callers = 2;
    cluster.run([&](Env& env) {
      constexpr std::uint64_t kPushes = 100;
      Manager manager(env, options);
      OwnedVar<std::uint64_t> all(manager, "all", 0, Updates::kPushed);
      OwnedVar<std::uint64_t> one(manager, "one", 0, Updates::kPushed);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      barrier.wait(manager.caller(0));
      if (env.node() == 0) {
        for (std::uint64_t i = 1; i <= kPushes; ++i) {
          all.store(i);
          all.push(manager.caller(i % 2));
          one.store(i);
          one.push_to(manager.caller(i / 3 % 2), 1);
        }
        barrier.wait(manager.caller(0));
      } else {
        std::uint64_t seen = 0, seen_one = 0;
        while (seen < kPushes || seen_one < kPushes) {
          ASSERT_GE(*all.try_load(), seen) << seed;
          ASSERT_GE(*one.try_load(), seen_one) << seed;
          seen = *all.try_load();
          seen_one = *one.try_load();
          env.sleep_until(env.now() + 200);
        }
        barrier.wait(manager.caller(0));
        EXPECT_EQ(*all.try_load(), kPushes);
        EXPECT_EQ(*one.try_load(), kPushes);
      }
    });
  }
}

// Two callers of a node pull. A read that began earlier may end later; no pull returns a value that
// its owner had replaced before the pull began, and the node's copy never goes back.
TEST(LocoOwnedVarSim, PullsOfTwoCallersNeverGoBack) {
  auto simulation = sim_options(2, true, 1);
  simulation.faults.enable(Fault::delay, 10);
  fabric::sim::SimCluster cluster(simulation);
  ManagerOptions options;
  options.callers = 2;
  std::uint32_t stored = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    OwnedVar<std::uint32_t> word(manager, "word", 0, Updates::kPulled);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    barrier.wait(manager.caller(0));
    const auto pull = [&](Caller& me) {
      for (int i = 0; i < 300; ++i) {
        const std::uint32_t least = stored;
        EXPECT_GE(word.pull(me).second, least);
        EXPECT_GE(*word.try_load(), least);
      }
    };
    if (env.node() == 1) {
      {
        const auto second = env.spawn("second", [&] { pull(manager.caller(1)); });
        pull(manager.caller(0));
      }
      is_over = true;
    }
    while (env.node() == 0 && !is_over) {
      word.store(stored + 1);
      ++stored;
      env.sleep_until(env.now() + 200);
    }
    barrier.wait(manager.caller(0));
  });
}

}  // namespace
}  // namespace pyrdma::loco
