// The store: properties L1 (linearizable) and L2 (no value that no client wrote), and its outcomes.
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error_test.h"
#include "check/check.h"
#include "systems/loco/barrier.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

using check::EventType;
using check::Function;
using check::History;
using check::Value;

constexpr std::size_t kWords = 20;
using Wide = std::array<std::uint64_t, kWords>;

std::span<const std::byte> bytes_of(const Wide& value) { return std::as_bytes(std::span(value)); }

ManagerOptions with_callers(std::uint32_t callers) {
  ManagerOptions options;
  options.callers = callers;
  return options;
}

TEST_P(LocoWorlds, EveryNodeSeesWhatAnyNodeDid) {
  run(
      3,
      [&](Manager& manager) {
        KvStore store(manager, "kv", small_store(sizeof(Wide)));
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        const Key mine = 100 + manager.self();
        Wide value, got;
        value.fill(mine);
        EXPECT_EQ(store.insert(me, mine, bytes_of(value)), Outcome::kOk);
        EXPECT_EQ(store.insert(me, mine, bytes_of(value)), Outcome::kDuplicate);
        barrier.wait(me);
        for (Key key = 100; key < 103; ++key) {
          EXPECT_EQ(store.lookup(me, key, std::as_writable_bytes(std::span(got))), Outcome::kOk);
          EXPECT_EQ(got[5], key);
        }
        barrier.wait(me);
        const Key next = 100 + (manager.self() + 1) % 3;
        value.fill(next + 1000);
        EXPECT_EQ(store.update(me, next, bytes_of(value)), Outcome::kOk);
        barrier.wait(me);
        EXPECT_EQ(store.lookup(me, mine, std::as_writable_bytes(std::span(got))), Outcome::kOk);
        EXPECT_EQ(got[0], mine + 1000);
        barrier.wait(me);
        EXPECT_EQ(store.remove(me, next), Outcome::kOk);
        EXPECT_EQ(store.remove(me, next), Outcome::kMissing);
        barrier.wait(me);
        for (Key key = 100; key < 103; ++key) {
          EXPECT_EQ(store.lookup(me, key, {}), Outcome::kMissing);
          EXPECT_EQ(store.update(me, key, bytes_of(value)), Outcome::kMissing);
        }
        constexpr std::uint64_t kSlots = 22;  // of each node; all are free again
        const Key first = 200 + manager.self() * kSlots;
        for (Key key = first; key < first + kSlots; ++key) {
          EXPECT_EQ(store.insert(me, key, bytes_of(value)), Outcome::kOk);
        }
        EXPECT_EQ(store.insert(me, 300, bytes_of(value)), Outcome::kFull);
        barrier.wait(me);
      },
      with_callers(2));
}

TEST_P(LocoWorlds, AStoreStartsWithWhatWasLoaded) {
  for (const bool stored : {true, false}) {
    run(
        3,
        [&](Manager& manager) {
          KvStore store(manager, "kv", small_store(sizeof(Wide)));
          Barrier barrier(manager, "bar");
          manager.wait_for_ready();
          store.load(50, stored);
          barrier.wait(manager.caller(0));
          Caller& me = manager.caller(0);
          Wide got;
          const auto into = std::as_writable_bytes(std::span(got));
          for (Key key = 0; key < 50; ++key) {
            EXPECT_EQ(store.lookup(me, key, into), Outcome::kOk);
            EXPECT_EQ(got[0], key);
          }
          EXPECT_EQ(store.lookup(me, 50, into), Outcome::kMissing);
          barrier.wait(me);
          if (manager.self() == 1) {
            Wide value{};
            EXPECT_EQ(store.remove(me, 8), Outcome::kOk);  // inserted by node 2
            EXPECT_EQ(store.lookup(me, 8, into), Outcome::kMissing);
            EXPECT_EQ(store.insert(me, 8, bytes_of(value)), Outcome::kOk);
            EXPECT_EQ(store.lookup(me, 8, into), Outcome::kOk);
          }
          barrier.wait(me);
        },
        with_callers(2));
  }
}

TEST_P(LocoWorlds, OutcomesAndErrorsNameTheNumbers) {
  run(
      2,
      [&](Manager& manager) {
        KvOptions options = small_store(sizeof(Wide));
        options.slots = 4;
        KvStore store(manager, "kv", options);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        if (manager.self() == 0) {
          const Wide value{};
          for (Key key = 0; key < 4; ++key) {
            EXPECT_EQ(store.insert(me, key, bytes_of(value)), Outcome::kOk);
          }
          EXPECT_EQ(store.insert(me, 4, bytes_of(value)), Outcome::kFull);
          EXPECT_TRUE(names(store.describe(Outcome::kFull), {"4", "0"}));
          EXPECT_EQ(store.remove(me, 2), Outcome::kOk);
          EXPECT_EQ(store.insert(me, 4, bytes_of(value)), Outcome::kOk);
          EXPECT_EQ(store.insert(me, 9, std::vector<std::byte>(161)), Outcome::kTooBig);
          EXPECT_TRUE(names(store.describe(Outcome::kTooBig), {"160"}));
          EXPECT_THROW(store.load(9), Error);
        }
        barrier.wait(me);
      },
      with_callers(2));
  run(1, [&](Manager& manager) {
    EXPECT_THROW(KvStore(manager, "kv", small_store(sizeof(Wide))),
                 Error);  // no caller for the tracker
    KvOptions options = small_store(sizeof(Wide));
    options.value_bytes = 1000;
    EXPECT_THROW(KvStore(manager, "kv2", options), Error);
  });
}

/// A client of a store: it runs one operation after the other and records each.
struct Client {
  Client(KvStore& store, Caller& me, std::int32_t process, Rng rng)
      : store(store), operation(store, me), process(process), rng(rng) {}

  void begin(Time now, std::uint64_t keys, const std::array<int, 10>& kinds) {
    key = rng.below(keys);
    kind = kinds[rng.below(10)];
    written = static_cast<std::uint64_t>(process) << 32 | ++count;
    Wide value;
    value.fill(written);
    called = now;
    if (kind == 0) operation.lookup(key);
    if (kind == 1) operation.insert(key, bytes_of(value));
    if (kind == 2) operation.update(key, bytes_of(value));
    if (kind == 3) operation.remove(key);
  }

  void end(Time now) {
    const bool ok = operation.outcome() == Outcome::kOk;
    Function f = Function::kGet;
    Value in = Value::none(), out = Value::boolean(ok);
    const bool full = operation.outcome() == Outcome::kFull;
    if (kind == 1) f = Function::kInsert;
    if (kind == 2 && ok) f = Function::kPut;
    if (kind == 3) f = Function::kDelete;
    if (kind == 1 || (kind == 2 && ok)) in = Value::integer(static_cast<std::int64_t>(written));
    if (f == Function::kPut) out = in;
    if (f == Function::kGet) out = Value::none();
    if (kind == 0 && ok) {
      Wide got;
      std::memcpy(got.data(), operation.value().data(), sizeof got);
      for (const std::uint64_t word : got) torn += word != got[0];
      out = Value::integer(static_cast<std::int64_t>(got[0]));
    }
    const Value at = Value::integer(static_cast<std::int64_t>(key));
    history.invoke(called, process, f, at, in);
    history.complete(now, process, full ? EventType::kFail : EventType::kOk, f, at,
                     full ? Value::none() : out);
  }

  KvStore& store;
  KvOperation operation;
  std::int32_t process;
  Rng rng;
  History history;
  Key key = 0;
  int kind = 0;
  std::uint64_t written = 0, count = 0, torn = 0;
  Time called = 0;
};

struct Found {
  std::uint64_t torn = 0;
  bool linearizable = true;
  std::string text;
};

/// Two threads per node with `window` operations each at a time, on few keys.
struct Crowd {
  KvOptions options = small_store(sizeof(Wide));
  std::uint64_t keys = 3;
  std::array<int, 10> kinds = {0, 0, 0, 0, 1, 1, 2, 2, 2, 3};
  std::mutex mutex;
  std::vector<History> histories;
  std::uint64_t torn = 0;

  void thread(KvStore& store, Caller& me, std::uint32_t number, std::uint32_t window,
              std::uint64_t each) {
    Env& env = store.manager().env();
    std::vector<std::unique_ptr<Client>> clients;
    for (std::uint32_t i = 0; i < window; ++i) {
      const std::uint32_t process = env.node() * 100 + number * 10 + i;
      clients.push_back(std::make_unique<Client>(store, me, static_cast<std::int32_t>(process),
                                                 env.rng("client" + std::to_string(process))));
      clients.back()->begin(env.now(), keys, kinds);
    }
    std::uint64_t left = each * window;
    // An operation that ends may release the lock that another operation waits for, in this thread
    // or the other: the wait then starts again.
    const auto some_ended = [&] {
      bool any = false;
      for (const auto& client : clients) {
        if (client->count > each || !client->operation.poll()) continue;
        any = true;
        client->end(env.now());
        --left;
        if (client->count < each) {
          client->begin(env.now(), keys, kinds);
        } else {
          ++client->count;
        }
      }
      return any;
    };
    while (left != 0) me.wait_until(some_ended, "an operation");
    const std::lock_guard lock(mutex);
    for (const auto& client : clients) {
      torn += client->torn;
      histories.push_back(client->history);
    }
  }

  void node(Manager& manager, std::uint64_t each) {
    KvStore store(manager, "kv", options);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    barrier.wait(manager.caller(0));
    {
      const auto second =
          manager.env().spawn("second", [&] { thread(store, manager.caller(1), 1, 3, each); });
      thread(store, manager.caller(0), 0, 3, each);
    }
    barrier.wait(manager.caller(0));
  }

  Found found() {
    const check::Verdict verdict = check::check_history(History::merge(histories), "kv");
    return {torn, verdict.answer != check::Answer::kNo, verdict.text};
  }
};

TEST_P(LocoWorlds, TheStoreIsLinearizable) {
  Crowd crowd;
  run(
      3, [&](Manager& manager) { crowd.node(manager, 50); }, with_callers(3));
  const Found found = crowd.found();
  EXPECT_EQ(found.torn, 0U);
  EXPECT_TRUE(found.linearizable) << found.text;
}

// A node may apply an insertion before the removal that freed the slot. Its index then has more
// entries than the store has slots.
TEST_P(LocoWorlds, AStoreWithMoreKeysThanSlotsGoesOn) {
  Crowd crowd;
  crowd.options.slots = 1;
  crowd.options.locks = 16;
  crowd.keys = 12;
  crowd.kinds = {0, 1, 1, 1, 1, 1, 3, 3, 3, 3};
  run(
      3, [&](Manager& manager) { crowd.node(manager, 200); }, with_callers(3));
  const Found found = crowd.found();
  EXPECT_TRUE(found.linearizable) << found.text;
}

/// Returns true if some seed of weak memory shows the bug by a wrong answer. A run with a bug may
/// also time out; a timeout does not count.
bool shown(Bug bug, std::uint64_t seeds = 100) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Crowd crowd;
    fabric::sim::SimCluster cluster(sim_options(3, true, seed));
    ManagerOptions options = with_callers(3);
    options.bugs = bug;
    options.wait_timeout = 5 * kSecond;
    try {
      cluster.run([&](Env& env) {
        Manager manager(env, options);
        crowd.node(manager, 25);
        manager.leave();
      });
    } catch (const Error&) {
      if (bug == Bug::kNone) throw;
      continue;
    }
    const Found found = crowd.found();
    if (found.torn != 0 || !found.linearizable) return true;
  }
  return false;
}

TEST(LocoBugs, WithoutABugNoSeedShowsOne) { EXPECT_FALSE(shown(Bug::kNone)); }
TEST(LocoBugs, AReleaseWithoutAFenceIsKilled) { EXPECT_TRUE(shown(Bug::kReleaseWithoutFence)); }
TEST(LocoBugs, ACompletionTakenForPlacementIsKilled) {
  EXPECT_TRUE(shown(Bug::kCompletionTakenForPlacement));
}
TEST(LocoBugs, APointerBeforeItsBodyIsKilled) { EXPECT_TRUE(shown(Bug::kPublishedBeforePlaced)); }
TEST(LocoBugs, FirstAndLastWordsForAChecksumAreKilled) {
  EXPECT_TRUE(shown(Bug::kChecksumOfTheEnds));
}

// An entry of the index names one of 255 nodes.
TEST(LocoStoreSim, ANodeThatNoEntryNamesIsRefused) {
  ManagerOptions small = with_callers(2);
  small.max_in_flight = 64;
  small.blocks = 4;
  run_nodes("sim", 256, small, [](Manager& manager) {
    const auto make = [&] { KvStore(manager, "kv", small_store(8), {manager.self()}); };
    if (manager.self() == 255) {
      EXPECT_TRUE(refuses(make, ErrorCode::kInvalidArgument, {"255", "0 to 254"}));
    } else if (manager.self() == 254) {
      make();
    }
  });
}

TEST(KvIndex, IsAMap) {
  fabric::sim::SimCluster cluster(sim_options(1, false));
  cluster.run([&](Env& env) {
    Index index(env, 500);
    std::map<Key, Location> expected;
    Rng rng = env.rng("keys");
    for (std::uint32_t i = 0; i < 20'000; ++i) {
      const Key key = rng.below(600);
      const Location location{i % 7, i, 1 + i % 1000};
      if (rng.below(2) == 0 && expected.size() < 500) {
        index.set(key, location);
        expected[key] = location;
      } else {
        index.erase(key);
        expected.erase(key);
      }
      const Key other = rng.below(600);
      const auto found = expected.find(other);
      EXPECT_EQ(index.find(other),
                found == expected.end() ? std::nullopt : std::optional(found->second));
    }
    EXPECT_EQ(index.size(), expected.size());
    EXPECT_LE(index.bytes(), 500U * 20 + 200);
    for (Key key = 1000; index.size() < 500; ++key) index.set(key, {});
    EXPECT_TRUE(refuses([&] { index.set(5000, {}); }, ErrorCode::kInternal, {"500"}));
    // Computed keys that are erased take entries beside the 500.
    Index computed(env, 500);
    computed.begin_with({100, {0}});
    for (Key key = 0; key < 100; ++key) computed.erase(key);
    for (Key key = 1000; key < 1500; ++key) computed.set(key, {});
    EXPECT_EQ(computed.find(7), std::nullopt);
  });
}

}  // namespace
}  // namespace pyrdma::loco
