// Managers, channels, keys, fences and the basic channels.
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/barrier.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

INSTANTIATE_TEST_SUITE_P(Worlds, LocoWorlds, loco_worlds(),
                         [](const auto& param) { return param.param; });

INSTANTIATE_TEST_SUITE_P(Worlds, LocoPatienceSim, testing::Values("sim", "sim_poller"),
                         [](const auto& param) { return param.param; });

TEST_P(LocoWorlds, ABarrierHoldsEverybodyAndShowsWhatCameBefore) {
  std::atomic<int> inside{0};
  run(3, [&](Manager& manager) {
    SharedRegion region(manager, "data", 8 * 3, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    for (std::uint64_t round = 1; round <= 50; ++round) {
      MemRef value = me.block(8);
      *value.as<std::uint64_t>() = round;
      for (NodeId peer = 0; peer < 3; ++peer) {
        if (peer == manager.self()) continue;
        AckKey key = region.write(me, peer, 8 * manager.self(), value.sge(8));
        key.keep(std::move(value));
        value = me.block(8);
        *value.as<std::uint64_t>() = round;
      }
      inside.fetch_add(1);
      barrier.wait(me);
      EXPECT_GE(inside.load(), static_cast<int>(3 * round));
      for (NodeId peer = 0; peer < 3; ++peer) {
        if (peer == manager.self()) continue;
        const auto* word = reinterpret_cast<const std::uint64_t*>(region.local()) + peer;
        EXPECT_GE(load_acquire(word), round);
      }
    }
  });
}

TEST_P(LocoWorlds, AKeyTakesMorePostsThanABlockHasBits) {
  run(2, [&](Manager& manager) {
    SharedRegion region(manager, "data", 8 * 300, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (manager.self() == 0) {
      MemRef value = me.block(8);
      *value.as<std::uint64_t>() = 7;
      AckKey key;
      EXPECT_TRUE(key.query());
      for (std::uint64_t i = 0; i < 200; ++i) {
        me.write(static_cast<NodeId>(i % 2), region.at(i % 2), 8 * i, value.sge(8), key);
      }
      EXPECT_EQ(key.wait(), fabric::Status::kSuccess);
      EXPECT_TRUE(key.query());
    }
    barrier.wait(me);
    for (std::uint64_t i = manager.self(); i < 200; i += 2) {
      EXPECT_EQ(load_acquire(reinterpret_cast<const std::uint64_t*>(region.local()) + i), 7U);
    }
    barrier.wait(me);
  });
}

TEST_P(LocoWorlds, APostOfManyEndsAsAWhole) {
  run(2, [&](Manager& manager) {
    SharedRegion region(manager, "data", 64, fabric::kRemoteRead);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (manager.self() == 0) {
      MemRef block = me.block(64);
      std::array<fabric::Sge, 3> sges;
      std::array<fabric::WorkRequest, 3> requests;
      for (std::size_t i = 0; i < 3; ++i) {
        sges[i] = block.sge(8, static_cast<std::uint32_t>(8 * i));
        requests[i].sges = &sges[i];
        requests[i].sge_count = 1;
        requests[i].opcode = fabric::Opcode::kRead;
        requests[i].remote_addr = region.at(1).addr + 8 * i;
        requests[i].rkey = region.at(1).rkey;
      }
      EXPECT_EQ(me.post(1, requests).wait(), fabric::Status::kSuccess);
      // The second of three requests fails, so the key and all later requests fail too.
      requests[1].rkey ^= 0xabc00;
      AckKey failed = me.post(1, requests);
      EXPECT_EQ(failed.wait(), fabric::Status::kRemoteAccess);
      EXPECT_EQ(me.post(1, requests).wait(), fabric::Status::kFlushed);
    }
  });
}

TEST_P(LocoWorlds, PeersReachARegionOnlyAsItsChannelAsks) {
  // A failed request ends its connection, so each caller makes one.
  ManagerOptions options;
  options.callers = 3;
  run(
      2,
      [&](Manager& manager) {
        SharedRegion read(manager, "read", 8, fabric::kRemoteRead);
        SharedRegion written(manager, "written", 8, fabric::kRemoteWrite);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        if (manager.self() == 0) {
          Caller &one = manager.caller(0), &two = manager.caller(1), &three = manager.caller(2);
          MemRef a = one.block(8), b = two.block(8), c = three.block(8);
          EXPECT_EQ(read.read(one, 1, 0, a.sge(8)).wait(), fabric::Status::kSuccess);
          EXPECT_EQ(written.write(one, 1, 0, a.sge(8)).wait(), fabric::Status::kSuccess);
          EXPECT_EQ(read.write(two, 1, 0, b.sge(8)).wait(), fabric::Status::kRemoteAccess);
          EXPECT_EQ(three.fetch_add(1, written.at(1), 0, 1, c.sge(8)).wait(),
                    fabric::Status::kRemoteAccess);
          EXPECT_EQ(written.read(two, 1, 0, b.sge(8)).wait(), fabric::Status::kFlushed);
          // What was refused is not placed: the barrier says so once.
          EXPECT_TRUE(refuses([&] { barrier.wait(one); }, ErrorCode::kUnavailable, {"bar"}));
        }
        barrier.wait(manager.caller(0));
      },
      options);
}

TEST_P(LocoWorlds, AtomicsOfAllNodesCountTogether) {
  ManagerOptions options;
  options.callers = 2;
  run(
      3,
      [&](Manager& manager) {
        AtomicVars words(manager, "words", 5);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        const auto body = [&](Caller& me) {
          for (int i = 0; i < 100; ++i) words.fetch_add(me, static_cast<std::uint64_t>(i) % 5, 1);
        };
        {
          const auto second = manager.env().spawn("second", [&] { body(manager.caller(1)); });
          body(manager.caller(0));
        }
        barrier.wait(manager.caller(0));
        for (std::uint64_t i = 0; i < 5; ++i) {
          EXPECT_EQ(words.load(manager.caller(0), i), 3U * 2 * 20);
        }
        barrier.wait(manager.caller(0));
      },
      options);
}

TEST_P(LocoWorlds, AnAtomicVarIsOneWordAtItsHost) {
  run(2, [&](Manager& manager) {
    AtomicVar word(manager, "word", 1);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    MemRef old = me.block(8);
    EXPECT_EQ(word.fetch_add(me, 3, old).wait(), fabric::Status::kSuccess);
    barrier.wait(me);
    EXPECT_EQ(word.load(me, old).wait(), fabric::Status::kSuccess);
    EXPECT_EQ(*old.as<std::uint64_t>(), 6U);
    barrier.wait(me);
    if (manager.self() == 0) {
      EXPECT_EQ(word.compare_swap(me, 6, 9, old).wait(), fabric::Status::kSuccess);
      EXPECT_EQ(*old.as<std::uint64_t>(), 6U);
      EXPECT_EQ(word.compare_swap(me, 6, 1, old).wait(), fabric::Status::kSuccess);
      EXPECT_EQ(*old.as<std::uint64_t>(), 9U);
    }
    barrier.wait(me);
  });
}

TEST_P(LocoWorlds, KeysUniteAndMoreRequestsThanFitWait) {
  ManagerOptions options;
  options.max_in_flight = 64;
  run(
      2,
      [&](Manager& manager) {
        SharedRegion region(manager, "r", 8, kReadWrite);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        AckKey all;
        for (int i = 0; i < 500; ++i) {
          MemRef block = me.block(8);
          AckKey key = region.read(me, 1 - manager.self(), 0, block.sge(8));
          key.keep(std::move(block));
          all.unite(std::move(key));
        }
        EXPECT_EQ(all.wait(), fabric::Status::kSuccess);
        EXPECT_TRUE(all.query());
        barrier.wait(me);
      },
      options);
}

TEST_P(LocoWorlds, SomeNodesMayTakePart) {
  run(4, [&](Manager& manager) {
    const bool in = manager.self() != 2;
    std::unique_ptr<Barrier> some;
    if (in) some = std::make_unique<Barrier>(manager, "some", std::vector<NodeId>{3, 0, 1});
    Barrier all(manager, "all");
    manager.wait_for_ready();
    if (in) some->wait(manager.caller(0));
    all.wait(manager.caller(0));
  });
}

TEST_P(LocoWorlds, ALateEndpointIsMet) {
  run(2, [&](Manager& manager) {
    Barrier first(manager, "first");
    manager.wait_for_ready();
    first.wait(manager.caller(0));
    if (manager.self() == 1) manager.env().sleep_until(manager.env().now() + kMillisecond);
    Barrier second(manager, "second");
    manager.wait_for_ready();
    second.wait(manager.caller(0));
  });
}

TEST_P(LocoWorlds, BadUseIsNamed) {
  run(2, [&](Manager& manager) {
    Barrier done(manager, "done");
    manager.wait_for_ready();
    const auto refused = [](const std::function<void()>& act,
                            const std::vector<std::string_view>& values) {
      return refuses(act, ErrorCode::kInvalidArgument, values);
    };
    EXPECT_TRUE(refused([&] { Barrier again(manager, "done"); }, {"done"}));
    EXPECT_TRUE(refused([&] { Barrier dots(manager, "a.b"); }, {"a.b", "'.'"}));
    EXPECT_TRUE(
        refused([&] { Barrier lengthy(manager, std::string(120, 'x')); }, {"120", "1", "119"}));
    EXPECT_TRUE(refused([&] { Barrier strangers(manager, "s", {7}); }, {"s", "7"}));
    EXPECT_TRUE(refused([&] { Barrier others(manager, "o", {1 - manager.self()}); }, {"o"}));
    EXPECT_TRUE(refused([&] { manager.caller(0).block(1000); }, {"1000", "block_bytes"}));
    done.wait(manager.caller(0));
  });
}

TEST_P(LocoPatienceSim, AChannelThatNoOtherNodeMakesIsNamed) {
  ManagerOptions options;
  options.wait_timeout = 20 * kMillisecond;
  run(
      2,
      [&](Manager& manager) {
        Barrier done(manager, "done");
        manager.wait_for_ready();
        done.wait(manager.caller(0));
        if (manager.self() == 0) {
          Barrier alone(manager, "alone");
          EXPECT_TRUE(
              refuses([&] { manager.wait_for_ready(); }, ErrorCode::kTimeout, {"alone", "1"}));
        } else {
          manager.env().sleep_until(manager.env().now() + options.wait_timeout / 2);
        }
        done.wait(manager.caller(0));
      },
      options);
}

TEST_P(LocoWorlds, RegionsThatDoNotMatchAreReportedByBoth) {
  run(2, [&](Manager& manager) {
    Barrier done(manager, "done");
    manager.wait_for_ready();
    SharedRegion region(manager, "r", 64 + 8 * manager.self(), kReadWrite);
    EXPECT_TRUE(refuses([&] { manager.wait_for_ready(); }, ErrorCode::kInvalidArgument,
                        {"r.data", "64", "72"}));
    done.wait(manager.caller(0));
  });
}

TEST(LocoFaults, ADeadPeerIsNamedByWhoWaitsForIt) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  std::map<NodeId, std::vector<NodeId>> blamed;
  ManagerOptions options;
  options.wait_timeout = 50 * kMillisecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    barrier.wait(manager.caller(0));
    if (env.node() == 2) {
      cluster.kill(2);
      env.sleep_until(kForever);
    }
    blamed[env.node()] = blamed_by([&] { barrier.wait(manager.caller(0)); });
    env.sleep_until(env.now() + kSecond);  // a node that ends does not answer any more
  });
  for (const NodeId node : {0U, 1U}) EXPECT_EQ(blamed[node], std::vector<NodeId>{2});
}

TEST(LocoFaults, ARestartedNodeIsRefused) {
  fabric::sim::SimCluster cluster(sim_options(2, true));
  ManagerOptions options;
  options.name = "the run";
  testing::AssertionResult refused = testing::AssertionFailure() << "node 1 was not restarted";
  cluster.run([&](Env& env) {
    if (env.incarnation() != 0) {
      refused =
          refuses([&] { Manager again(env, options); }, ErrorCode::kUnavailable, {"1", "the run"});
      return;
    }
    Manager manager(env, options);
    if (env.node() == 1) {
      cluster.expect_restart(1);
      cluster.kill(1);
      env.sleep_until(kForever);
    }
    env.sleep_until(env.now() + kMillisecond);
    cluster.restart(1);
  });
  EXPECT_TRUE(refused);
}

// More join messages than the peer has receives for.
TEST(LocoFaults, APeerThatTakesNoMessagesKeepsNobodyFromTheOthers) {
  constexpr NodeId kSleeper = 1;
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([](Env& env) {
    ManagerOptions options;
    options.wait_timeout = 100 * kMillisecond;
    Manager manager(env, options);
    runtime::node_barrier(env, "made", kSecond);
    const Time begin = env.now();
    if (env.node() == kSleeper) env.sleep_until(begin + 3 * kMillisecond);
    std::vector<std::unique_ptr<AtomicVars>> many;
    if (env.node() != 2) {
      for (int i = 0; i < 60; ++i) {
        many.push_back(std::make_unique<AtomicVars>(manager, "to the sleeper " + std::to_string(i),
                                                    1, std::vector<NodeId>{0, kSleeper}));
      }
    }
    if (env.node() != kSleeper) {
      AtomicVars other(manager, "to the other", 1, std::vector<NodeId>{0, 2});
      manager.caller(0).wait_until([&] { return other.ready(); }, "the other node");
      EXPECT_LT(env.now() - begin, 2 * kMillisecond);
    }
    manager.wait_for_ready();
    runtime::node_barrier(env, "end", kSecond);
  });
}

}  // namespace
}  // namespace pyrdma::loco
