// Changes whose answers are lost while both nodes live: the locks go on, no acknowledged change is
// lost, and every key can be read and changed again.
#include <algorithm>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

constexpr Time kCut = 30 * kMillisecond;    // longer than the retries of a connection
constexpr Time kWhole = 60 * kMillisecond;  // after the begin: the network is whole again
constexpr Time kPatience = 40 * kMillisecond;

KvOptions options_of(Preset preset, std::uint32_t value_bytes) {
  KvOptions options = small_store(value_bytes);
  options.keys = 30;
  options.slots = 12;  // two more than load() fills
  options.lock = TicketLockOptions::of(preset);
  return options;
}

/// A node with a loaded store. Key `key` has its slot at node 2 and its lock at node 0.
struct CutNode {
  CutNode(Env& env, const KvOptions& options, const std::string& name)
      : manager(env, manager_options(options, name)),
        store(manager, "kv", options),
        me(manager.caller(0)) {
    manager.wait_for_ready();
    store.load(30);
    while (key % 3 != 2 || hash_of(key) % 3 != 0) ++key;
    runtime::node_barrier(env, name + "/begun", kSecond);
    begin = env.now();
  }
  static ManagerOptions manager_options(const KvOptions& options, const std::string& name) {
    ManagerOptions all;
    all.name = name;
    all.callers = 2;
    all.wait_timeout = kPatience;
    all.block_bytes = std::max(256U, options.value_bytes + 64);
    all.blocks = 8;
    return all;
  }
  void until(Time after) { manager.env().sleep_until(begin + after); }
  Outcome update(std::uint64_t value) {
    return store.update(me, key, std::as_bytes(std::span(&value, 1)));
  }
  Outcome insert(std::uint64_t value) {
    return store.insert(me, key, std::as_bytes(std::span(&value, 1)));
  }
  Outcome remove() { return store.remove(me, key); }
  /// Returns the value; nothing if there is no such key.
  std::optional<std::uint64_t> lookup() {
    std::uint64_t value = 0;
    const Outcome outcome = store.lookup(me, key, std::as_writable_bytes(std::span(&value, 1)));
    return outcome == Outcome::kOk ? std::optional(value) : std::nullopt;
  }

  Manager manager;
  KvStore store;
  Caller& me;
  Key key = 2;
  Time begin = 0;
};

/// Node 1 removes the key, and the answers of node 2 are lost for a while. Then node 0 changes the
/// key by `next`, and inserts it if it is not there.
void remove_cut_off(Preset preset, const std::function<void(CutNode&)>& next) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    CutNode node(env, options_of(preset, 8), "cut");
    if (env.node() == 0) cluster.block(2, 1, kCut);
    if (env.node() == 1) {
      node.until(kMillisecond);
      EXPECT_EQ(blamed_by([&] { node.remove(); }), std::vector<NodeId>{2});
    }
    node.until(kWhole);
    if (env.node() == 0) {
      EXPECT_EQ(node.lookup(), std::nullopt) << "the removal has happened";
      next(node);
      const bool there = node.lookup().has_value();
      EXPECT_EQ(node.insert(7), there ? Outcome::kDuplicate : Outcome::kOk);
      EXPECT_EQ(node.update(9), Outcome::kOk);
    }
    node.until(kWhole + kPatience);
    if (env.node() != 1) {
      EXPECT_EQ(node.lookup(), 9U);
    }
    EXPECT_EQ(node.store.free_slots(), env.node() == 0 ? 1U : env.node() == 1 ? 2U : 3U);
    runtime::node_barrier(env, "end", kSecond);
  });
}

TEST(LocoStoreSim, AnUpdateAfterARemovalThatWasCutOffFindsNoKey) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    remove_cut_off(preset, [](CutNode& node) { EXPECT_EQ(node.update(5), Outcome::kMissing); });
  }
}

TEST(LocoStoreSim, AnInsertionAfterARemovalThatWasCutOffHappens) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    remove_cut_off(preset, [](CutNode& node) { EXPECT_EQ(node.insert(5), Outcome::kOk); });
  }
}

TEST(LocoStoreSim, ARemovalAfterOneThatWasCutOffFindsNoKey) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    remove_cut_off(preset, [](CutNode& node) { EXPECT_EQ(node.remove(), Outcome::kMissing); });
  }
}

// The requests are lost, not the answers: the key is as it was.
TEST(LocoStoreSim, ARemovalThatNeverArrivedChangesNothing) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    CutNode node(env, options_of(Preset::kBest, 8), "cut");
    if (env.node() == 0) cluster.block(1, 2, kCut);
    if (env.node() == 1) {
      node.until(kMillisecond);
      EXPECT_EQ(blamed_by([&] { node.remove(); }), std::vector<NodeId>{2});
    }
    node.until(kWhole);
    if (env.node() == 0) {
      EXPECT_EQ(node.lookup(), node.key);
      EXPECT_EQ(node.insert(7), Outcome::kDuplicate);
      EXPECT_EQ(node.update(9), Outcome::kOk);
      EXPECT_EQ(node.lookup(), 9U);
      EXPECT_EQ(node.remove(), Outcome::kOk);
    }
    runtime::node_barrier(env, "end", kSecond);
  });
}

// Nodes 1 and 2 have lost each other, so neither index would follow the other node's changes. They
// say so at once and keep no lock.
TEST(LocoStoreSim, AChangeThatAnIndexCannotFollowKeepsNoLock) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    CutNode node(env, options_of(Preset::kBest, 8), "cut");
    if (env.node() == 0) {
      cluster.block(1, 2, kCut);
      cluster.block(2, 1, kCut);
    }
    const NodeId other = 3 - env.node();
    if (env.node() != 0) {
      node.until(kMillisecond);
      Key there = other;
      EXPECT_EQ(blamed_by([&] { node.store.lookup(node.me, there, {}); }),
                std::vector<NodeId>{other});
    }
    node.until(kWhole + env.node() * kMillisecond);
    if (env.node() != 0) {
      const Time begin = env.now();
      Key own = env.node();
      while (own % 3 != env.node() || hash_of(own) % 3 != 0) ++own;
      const auto blames = [&](auto&& act) { return blamed_by(act) == std::vector<NodeId>{other}; };
      EXPECT_TRUE(blames([&] { node.store.remove(node.me, own); }));
      EXPECT_TRUE(blames([&] { node.store.insert(node.me, 1000, {}); }));
      EXPECT_LT(env.now() - begin, kMillisecond);
      EXPECT_EQ(node.store.lookup(node.me, own, {}), Outcome::kOk);
    }
    node.until(kWhole + kPatience);
    if (env.node() == 0) {  // every lock is free
      for (Key key = 0; key < 30; ++key) EXPECT_EQ(node.store.remove(node.me, key), Outcome::kOk);
    }
    runtime::node_barrier(env, "end", kSecond);
  });
}

// A long value is cut in the middle. The error of a lookup says what has happened, and an update
// mends the key.
TEST(LocoStoreSim, AnUpdateMendsASlotThatAnotherUpdateLeftTorn) {
  constexpr std::uint32_t kBytes = 65536;
  int torn = 0;
  for (Time cut = 2 * kMicrosecond; cut < 12 * kMicrosecond; cut += 500) {
    fabric::sim::SimCluster cluster(sim_options(3));
    cluster.run([&](Env& env) {
      CutNode node(
          env, options_of(cut % kMicrosecond == 0 ? Preset::kPaper : Preset::kBest, kBytes), "cut");
      std::vector<std::byte> value(kBytes, std::byte{7});
      node.until(kMillisecond);
      if (env.node() == 0) {
        node.until(kMillisecond + cut);
        cluster.block(1, 2, kCut);
      } else if (env.node() == 1) {
        error_of([&] { node.store.update(node.me, node.key, value); });
      }
      node.until(kWhole);
      if (env.node() == 0) {
        const auto lookup = [&] { return node.store.lookup(node.me, node.key, value); };
        const std::string error = error_of(lookup);
        if (!error.empty()) {
          ++torn;
          EXPECT_TRUE(names(error, {std::to_string(node.key), "cut off", "update"})) << error;
        }
        std::fill(value.begin(), value.end(), std::byte{9});
        EXPECT_EQ(node.store.update(node.me, node.key, value), Outcome::kOk);
        std::fill(value.begin(), value.end(), std::byte{0});
        EXPECT_EQ(lookup(), Outcome::kOk);
        EXPECT_EQ(std::count(value.begin(), value.end(), std::byte{9}), kBytes);
      }
      node.until(kWhole + 4 * kPatience);
      runtime::node_barrier(env, "end", kSecond);
    });
  }
  EXPECT_GT(torn, 4);
}

}  // namespace
}  // namespace pyrdma::loco
