// Calls that a user gets wrong, and calls that are tried again after an error.
#include <memory>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/barrier.h"
#include "systems/loco/baselines/test_and_set_lock.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/owned_var.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

// Node 0 gives up in the first round, before node 1 comes, and tries again.
TEST(LocoMisuseSim, ABarrierThatIsTriedAgainCountsOnce) {
  fabric::sim::SimCluster cluster(sim_options(2));
  ManagerOptions options;
  options.wait_timeout = 20 * kMillisecond;
  std::array<int, 2> passed{};
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    const Time begin = env.now();
    if (env.node() == 0) {
      EXPECT_TRUE(refuses([&] { barrier.wait(me); }, ErrorCode::kTimeout, {"0", "20"}));
    } else {
      env.sleep_until(begin + 30 * kMillisecond);
    }
    for (int round = 1; round <= 3; ++round) {
      barrier.wait(me);
      ++passed[env.node()];
      EXPECT_GE(passed[1 - env.node()], round - 1) << "the other has not arrived";
      if (env.node() == 0) env.sleep_until(env.now() + 5 * kMillisecond);
    }
    manager.leave();
  });
}

TEST(LocoMisuseSim, AStoreIsLoadedOnceAndBeforeOperations) {
  fabric::sim::SimCluster cluster(sim_options(2));
  ManagerOptions options;
  options.callers = 2;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    KvStore used(manager, "used", small_store(8)), twice(manager, "twice", small_store(8));
    KvStore computed(manager, "computed", small_store(8));
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    twice.load(10);
    computed.load(1, false);
    if (env.node() == 0) {
      EXPECT_EQ(used.insert(me, 100, {}), Outcome::kOk);
    }
    barrier.wait(me);
    const auto refused = [&](KvStore& store, const char* name) {
      return refuses([&] { store.load(6); }, ErrorCode::kInvalidArgument, {name, "load", "once"});
    };
    EXPECT_TRUE(refused(used, "used"));
    EXPECT_TRUE(refused(twice, "twice"));
    EXPECT_TRUE(refused(computed, "computed"));
    std::uint64_t value = 0;
    for (Key key = 0; key < 10; ++key) {
      EXPECT_EQ(twice.lookup(me, key, std::as_writable_bytes(std::span(&value, 1))), Outcome::kOk);
      EXPECT_EQ(value, key);
    }
    barrier.wait(me);
    manager.leave();
  });
}

TEST_P(LocoWorlds, NoRequestGoesBeyondARegion) {
  run(2, [](Manager& manager) {
    SharedRegion region(manager, "a", 64, kReadWrite), next(manager, "b", 64, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    const MemRef word = me.block(8);
    *word.as<std::uint64_t>() = 99;
    const NodeId peer = 1 - manager.self();
    for (const std::uint64_t offset : {std::uint64_t{57}, std::uint64_t{64}, ~std::uint64_t{0}}) {
      const std::string shown = std::to_string(offset);
      EXPECT_TRUE(refuses([&] { region.write(me, peer, offset, word.sge(8)); },
                          ErrorCode::kInvalidArgument, {"a", "64", "8", shown}));
      EXPECT_TRUE(refuses([&] { region.read(me, peer, offset, word.sge(8)); },
                          ErrorCode::kInvalidArgument, {"a", "64", "8", shown}));
    }
    EXPECT_TRUE(refuses([&] { region.read(me, 2, 0, word.sge(8)); }, ErrorCode::kInvalidArgument,
                        {"a", "2"}));
    EXPECT_EQ(region.write(me, peer, 56, word.sge(8)).wait(), fabric::Status::kSuccess);
    barrier.wait(me);
    EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(next.local()), 0U);
    barrier.wait(me);
  });
}

TEST(LocoMisuseSim, ANodeWithARoleIsAParticipant) {
  run_nodes("sim", 3, {}, [](Manager& manager) {
    const std::vector<NodeId> two{0, 1};
    if (manager.self() == 2) return;
    const auto refused = [&](auto&& make, const char* role) {
      return refuses(make, ErrorCode::kInvalidArgument, {"c", role, "2", "0 1"});
    };
    EXPECT_TRUE(refused([&] { RingBuffer(manager, "c", 2, 256, two); }, "writer"));
    EXPECT_TRUE(refused([&] { AtomicVar(manager, "c", 2, two); }, "host"));
    EXPECT_TRUE(
        refused([&] { OwnedVar<std::int64_t>(manager, "c", 2, Updates::kEither, two); }, "owner"));
  });
}

// Two stores whose values have as many words, but not as many bytes.
TEST(LocoMisuseSim, OptionsThatDifferBetweenNodesAreRefused) {
  const auto refused = [](const std::function<void(NodeId, KvOptions&)>& change,
                          const std::vector<std::string_view>& named) {
    ManagerOptions options;
    options.callers = 2;
    options.wait_timeout = 20 * kMillisecond;
    fabric::sim::SimCluster cluster(sim_options(2));
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      KvOptions mine = small_store(8);
      change(env.node(), mine);
      KvStore store(manager, "kv", mine);
      EXPECT_TRUE(refuses([&] { manager.wait_for_ready(); }, ErrorCode::kInvalidArgument, named));
      env.sleep_until(env.now() + kSecond);
    });
  };
  refused([](NodeId node, KvOptions& mine) { mine.value_bytes = 5 + node; }, {"kv", "value_bytes"});
  refused([](NodeId node, KvOptions& mine) { mine.keys = 65 + node; }, {"kv", "keys"});
  refused([](NodeId node, KvOptions& mine) { mine.fence = node == 0; }, {"kv", "fence"});
  refused([](NodeId node, KvOptions& mine) { mine.slots = 40 + node; }, {"kv"});
  refused([](NodeId node, KvOptions& mine) { mine.locks = 8 + node; }, {"kv"});
  refused(
      [](NodeId node, KvOptions& mine) {
        mine.lock.placement = node == 0 ? Placement::kHost : Placement::kDevice;
      },
      {"placement"});
}

// The halves of a word with both tickets run over after 2^32 sections.
TEST_P(LocoWorlds, TicketsInOneWordRunOver) {
  run(2, [](Manager& manager) {
    TestAndSetLocks locks(manager, "locks", 1, {}, Placement::kHost, Grant::kTicket);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    const std::uint64_t tickets = 0xfffffffb;
    if (manager.self() == 1) locks.words().fetch_add(me, 0, tickets << 32 | tickets);
    barrier.wait(me);
    for (int i = 0; i < 5; ++i) {  // 10 sections of both nodes
      locks.acquire(me, 0);
      EXPECT_EQ(locks.release(me, 0).wait(), fabric::Status::kSuccess);
    }
    barrier.wait(me);
    EXPECT_EQ(locks.words().load(me, 0), std::uint64_t{5} << 32 | 5);
    barrier.wait(me);
  });
}

}  // namespace
}  // namespace pyrdma::loco
