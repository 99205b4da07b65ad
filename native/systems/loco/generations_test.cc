// Endpoints that are destroyed and made again while peers still have their old ones.
#include "base/remote_word.h"
#include "base/rng.h"
#include "runtime/node_barrier.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/barrier.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

class LocoGenerations : public LocoWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, LocoGenerations, loco_worlds(),
                         [](const auto& param) { return param.param; });

// Each node writes the number of the round to its neighbour, and leaves the round when its own word
// has arrived. So it destroys its endpoints and makes them again while others still have their old
// ones. A barrier consists of a table, whose rows are made late.
void make_again_and_again(Manager& manager, std::uint64_t seed) {
  constexpr std::uint64_t kRounds = 4;
  Env& env = manager.env();
  Caller& me = manager.caller(0);
  Rng rng(seed, env.node(), "generations");
  const auto pause = [&] {
    if (rng.below(2) == 0) env.sleep_until(env.now() + static_cast<Time>(rng.below(200'000)));
  };
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    pause();
    SharedRegion region(manager, "region", 8, kReadWrite);
    pause();
    Barrier barrier(manager, "barrier");
    EXPECT_EQ(region.generation(), round);
    manager.wait_for_ready();
    const MemRef word = me.block(8);
    *word.as<std::uint64_t>() = round;
    const NodeId next = (env.node() + 1) % env.nodes();
    EXPECT_EQ(region.write(me, next, 0, word.sge(8)).wait(), fabric::Status::kSuccess);
    const auto* own = reinterpret_cast<const std::uint64_t*>(region.local());
    me.wait_until([&] { return load_acquire(own) == round; }, "word of this round");
    if (seed % 2 == 0) barrier.wait(me);
    pause();
  }
}

TEST_P(LocoGenerations, AnEndpointMadeAgainMeetsTheNextOneOfEachPeer) {
  run(3, [](Manager& manager) { make_again_and_again(manager, 1); });
}

TEST(LocoGenerationsSim, AnEndpointMadeAgainMeetsTheNextOneInEveryOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimCluster cluster(sim_options(3, true, seed));
    cluster.run([&](Env& env) {
      Manager manager(env, ManagerOptions());
      make_again_and_again(manager, seed);
      manager.leave();
    });
  }
}

void serve_until(Manager& manager, Time end) {
  const auto turn = [&] {
    manager.turn();
    return false;
  };
  manager.env().poll_until(turn, end);
}

// A node that is ready takes no more turns. Its last answers find no room at first, and with the
// fault a queue also says that it is full after each message, until that one has completed.
TEST(LocoReadySim, ANodeThatIsReadyHasAnsweredItsPeers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimOptions simulated = sim_options(2, true, seed);
    if (seed % 2 == 0) simulated.faults = FaultOptions::from_values({{"queue_full", 1}});
    fabric::sim::SimCluster cluster(simulated);
    cluster.run([&](Env& env) {
      ManagerOptions options;
      options.wait_timeout = 50 * kMillisecond;
      Manager manager(env, options);
      Rng rng = env.rng("begins");
      env.sleep_until(env.now() + static_cast<Time>(rng.below(50'000)));
      std::vector<std::unique_ptr<AtomicVars>> many;
      for (int i = 0; i < 60; ++i)
        many.push_back(std::make_unique<AtomicVars>(manager, "word " + std::to_string(i), 1));
      manager.wait_for_ready();
      runtime::node_barrier(env, "ready", kSecond);
    });
    const auto full = static_cast<std::size_t>(Fault::queue_full);
    EXPECT_EQ(cluster.fault_counters().reached[full] > 100, seed % 2 == 0);
  }
}

TEST(LocoGenerationsSim, ATimeoutNamesTheGenerationAndTheNode) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  ManagerOptions options;
  options.wait_timeout = 2 * kMillisecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    const Time begin = env.now();
    auto often = std::make_unique<Barrier>(manager, "often");
    manager.wait_for_ready();
    if (env.node() != 1) {
      often = nullptr;
      often = std::make_unique<Barrier>(manager, "often");
      EXPECT_EQ(often->generation(), 2U);
      const auto wait = [&] { manager.wait_for_ready(); };
      EXPECT_TRUE(refuses(wait, ErrorCode::kTimeout, {"often", "generation 2", "1"}));
      try {
        wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.nodes(), std::vector<NodeId>{1});
      }
    }
    // Other participants have a count of their own. Node 0 comes first and meets the old endpoint.
    serve_until(manager, begin + Time{10 + env.node()} * kMillisecond);
    often = nullptr;
    if (env.node() != 2) {
      often = std::make_unique<Barrier>(manager, "often", std::vector<NodeId>{0, 1});
      EXPECT_EQ(often->generation(), 1U);
      manager.wait_for_ready();
      often->wait(manager.caller(0));
    }
    serve_until(manager, begin + 20 * kMillisecond);
  });
}

// Nodes 0 and 1 still use a channel of their own when node 2 makes the next one of all.
TEST(LocoGenerationsSim, AnEarlyJoinForTheNextEndpointIsNoMismatch) {
  for (const bool again : {false, true}) {
    fabric::sim::SimCluster cluster(sim_options(3, true));
    ManagerOptions options;
    options.wait_timeout = 50 * kMillisecond;
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      Caller& me = manager.caller(0);
      const auto meet = [&](const std::vector<NodeId>& participants, Time stay) {
        Barrier barrier(manager, "name", participants);
        manager.wait_for_ready();
        serve_until(manager, env.now() + stay);
        manager.wait_for_ready();
        barrier.wait(me);
      };
      if (again) meet({0, 1, 2}, 0);
      if (env.node() != 2) meet({0, 1}, 5 * kMillisecond);
      meet({0, 1, 2}, 0);
      manager.leave();
    });
  }
}

TEST(LocoGenerationsSim, OtherParticipantsAreNamedAtTheTimeout) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  ManagerOptions options;
  options.wait_timeout = 5 * kMillisecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    const bool all = env.node() == 2;
    Barrier barrier(manager, "name",
                    all ? std::vector<NodeId>{0, 1, 2} : std::vector<NodeId>{0, 1});
    const auto wait = [&] { manager.wait_for_ready(); };
    if (all) {
      EXPECT_TRUE(refuses(wait, ErrorCode::kInvalidArgument, {"name", "0 1", "2"}));
      EXPECT_EQ(blamed_by(wait).size(), 1U);
    } else {
      wait();  // the two agree
    }
    serve_until(manager, env.now() + 50 * kMillisecond);
  });
}

TEST(LocoGenerationsSim, ALateJoinForAnEndpointThatIsGoneIsNoMismatch) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  cluster.run([](Env& env) {
    Manager manager(env, ManagerOptions());
    const Time begin = env.now();
    std::unique_ptr<Barrier> two;
    if (env.node() == 2) {
      env.sleep_until(begin + kMillisecond);
      Barrier late(manager, "name");
    } else {
      { Barrier gone(manager, "name"); }
      two = std::make_unique<Barrier>(manager, "name", std::vector<NodeId>{0, 1});
      manager.wait_for_ready();
      two->wait(manager.caller(0));
    }
    serve_until(manager, begin + 2 * kMillisecond);
    manager.wait_for_ready();
  });
}

TEST(LocoGenerationsSim, AMessageWithoutAGenerationIsMalformed) {
  ControlMessage message;
  message.kind = ControlMessage::kJoin;
  EXPECT_FALSE(message.valid());
  message.generation = 1;
  EXPECT_TRUE(message.valid());
}

TEST(LocoGenerationsSim, AMismatchBlamesThePeer) {
  fabric::sim::SimCluster cluster(sim_options(2, true));
  cluster.run([&](Env& env) {
    Manager manager(env, ManagerOptions());
    SharedRegion region(manager, "r", 64 + 8 * env.node(), kReadWrite);
    try {
      manager.wait_for_ready();
      ADD_FAILURE() << "regions of two sizes match";
    } catch (const Error& error) {
      EXPECT_EQ(error.nodes(), std::vector<NodeId>{1 - env.node()});
    }
    env.sleep_until(kSecond);
  });
}

}  // namespace
}  // namespace pyrdma::loco
