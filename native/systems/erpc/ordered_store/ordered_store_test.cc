// The ordered store against a model, and under readers and writers at once.
#include "systems/erpc/ordered_store/ordered_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check/check.h"
#include "measure/interval.h"
#include "runtime/worlds_test.h"

namespace pyrdma::erpc {
namespace {

constexpr std::size_t kScanned = 128;
constexpr Time kPause = 100;  // between two operations, for the simulation's other threads
constexpr std::uint64_t kPuts = 4000;

/// The worlds: virtual time, and real threads.
class ErpcOrderedStore : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string problem = ordered_store_problem(); !problem.empty())
      GTEST_SKIP() << problem;
  }
  void run(const std::function<void(Env&)>& body) {
    runtime::run_world(GetParam(), 1, [&](Env& env, const runtime::Kill&) { body(env); });
  }
};

using Model = std::map<std::uint64_t, std::uint64_t>;

std::vector<StoreEntry> model_scan(const Model& model, std::uint64_t first, std::size_t count) {
  std::vector<StoreEntry> found;
  for (auto at = model.lower_bound(first); at != model.end() && found.size() < count; ++at)
    found.push_back({at->first, at->second});
  return found;
}

// Returns the number of operations whose outcome is another one than the model's.
int differences(Env& env, StoreBugs bugs) {
  OrderedStore store(env, {.max_keys = 400, .readers = 1, .bugs = bugs});
  StoreReader reader(store);
  Model model;
  Rng rng = env.rng("operations");
  int wrong = 0;
  std::vector<StoreEntry> out(kScanned);
  for (std::uint64_t i = 0; i < 4000; ++i) {
    // Small keys, and keys whose bytes have another order than their values.
    const std::uint64_t draw = rng.below(500);
    const std::uint64_t key = draw % 2 == 0 ? draw : ~std::uint64_t{0} - draw * 0x0101010101;
    switch (rng.below(5)) {
      case 0:
      case 1: {
        const bool fits = model.contains(key) || model.size() < 400;
        wrong += store.put(key, i) != (fits ? StoreOutcome::kDone : StoreOutcome::kFull);
        if (fits) model[key] = i;
        break;
      }
      case 2:
        if (rng.below(4) == 0)
          wrong += (store.erase(key) == StoreOutcome::kDone) != (model.erase(key) == 1);
        break;
      case 3: {
        const auto found = reader.get(key);
        wrong += found.has_value() != model.contains(key) || (found && *found != model[key]);
        break;
      }
      default: {
        const std::span<StoreEntry> asked(out.data(), rng.below(kScanned + 1));
        const std::size_t count = reader.scan(key, asked);
        wrong += std::vector(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)) !=
                 model_scan(model, key, asked.size());
      }
    }
  }
  EXPECT_GT(model.size(), 300U);
  return wrong;
}

TEST_P(ErpcOrderedStore, DoesWhatAModelDoes) {
  run([](Env& env) { EXPECT_EQ(differences(env, {}), 0); });
}

TEST_P(ErpcOrderedStore, KeysInTheOrderOfTheirBytesDifferFromTheModel) {
  run([](Env& env) { EXPECT_GT(differences(env, StoreBug::kKeysAsBytes), 0); });
}

// A snapshot that is kept is older than the puts after it.
TEST_P(ErpcOrderedStore, AKeptSnapshotDiffersFromTheModel) {
  run([](Env& env) { EXPECT_GT(differences(env, StoreBug::kSnapshotKept), 0); });
}

// Threads put and get few keys; the checker judges their history.
bool is_linearizable(Env& env, StoreBugs bugs) {
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint64_t kFewKeys = 5;
  OrderedStore store(env, {.max_keys = kFewKeys, .readers = kThreads, .bugs = bugs});
  std::array<check::History, kThreads> histories;
  measure::on_threads(env, kThreads, [&](std::uint32_t i) {
    using check::Value;
    StoreReader reader(store);
    Rng rng = env.rng("thread " + std::to_string(i));
    const auto process = static_cast<std::int32_t>(i);
    for (std::uint64_t n = 0; n < 1500; ++n) {
      const std::uint64_t key = rng.below(kFewKeys), value = n * kThreads + i;
      const Value name = Value::integer(static_cast<std::int64_t>(key));
      const bool writes = rng.below(3) == 0;
      const check::Function f = writes ? check::Function::kPut : check::Function::kGet;
      Value told = writes ? Value::integer(static_cast<std::int64_t>(value)) : Value::none();
      histories[i].invoke(env.now(), process, f, name, told);
      if (writes) {
        EXPECT_EQ(store.put(key, value), StoreOutcome::kDone);
      } else if (const auto found = reader.get(key)) {
        told = Value::integer(static_cast<std::int64_t>(*found));
      }
      histories[i].complete(env.now(), process, check::EventType::kOk, f, name, told);
    }
  });
  return check::check_history(check::History::merge(histories), "kv").answer == check::Answer::kYes;
}

TEST_P(ErpcOrderedStore, GetsAndPutsOfManyThreadsAreLinearizable) {
  run([](Env& env) { EXPECT_TRUE(is_linearizable(env, {})); });
}

TEST_P(ErpcOrderedStore, AKeptSnapshotIsNotLinearizable) {
  run([](Env& env) { EXPECT_FALSE(is_linearizable(env, StoreBug::kSnapshotKept)); });
}

// The writer goes round neighbours with growing values, so at each moment the values are
// consecutive. Returns the scans whose values are not.
std::uint64_t mixed_scans(Env& env, StoreBugs bugs) {
  OrderedStore store(env, {.max_keys = 1000, .bugs = bugs});
  std::vector<StoreEntry> begin;
  for (std::uint64_t i = 0; i < kScanned; ++i) begin.push_back({1000 + i, i});
  EXPECT_EQ(store.put_all(begin), StoreOutcome::kDone);
  std::uint64_t mixed = 0;
  std::atomic<bool> ended{false};
  measure::on_threads(env, 2, [&](std::uint32_t thread) {
    if (thread == 1) {
      for (std::uint64_t i = 0; i < kPuts; ++i) {
        store.put(1000 + i % kScanned, i + kScanned);
        env.sleep_until(env.now() + kPause);
      }
      ended = true;
      return;
    }
    StoreReader reader(store);
    std::array<StoreEntry, kScanned> found;
    while (!ended) {
      EXPECT_EQ(reader.scan(3, found), kScanned);
      env.sleep_until(env.now() + kPause);
      std::uint64_t least = ~std::uint64_t{0}, most = 0;
      for (const StoreEntry& entry : found) {
        least = std::min(least, entry.value);
        most = std::max(most, entry.value);
      }
      mixed += most - least != kScanned - 1;
    }
  });
  return mixed;
}

TEST_P(ErpcOrderedStore, AScanShowsOneMoment) {
  run([](Env& env) { EXPECT_EQ(mixed_scans(env, {}), 0U); });
}

TEST_P(ErpcOrderedStore, AScanOfTwoMomentsIsMixed) {
  run([](Env& env) { EXPECT_GT(mixed_scans(env, StoreBug::kScanOfTwoMoments), 0U); });
}

TEST_P(ErpcOrderedStore, EntriesPutTogetherAppearTogether) {
  run([](Env& env) {
    OrderedStore store(env, {.max_keys = 2});
    std::atomic<bool> ended{false};
    measure::on_threads(env, 2, [&](std::uint32_t thread) {
      for (std::uint64_t i = 0; thread == 1 && i < kPuts; ++i) {
        const std::array<StoreEntry, 2> both{{{1, i}, {2, i}}};
        EXPECT_EQ(store.put_all(both), StoreOutcome::kDone);
        env.sleep_until(env.now() + kPause);
      }
      if (thread == 1) {
        ended = true;
        return;
      }
      StoreReader reader(store);
      std::array<StoreEntry, 3> found;
      while (!ended) {
        const std::size_t count = reader.scan(0, found);
        EXPECT_TRUE(count == 0 || (count == 2 && found[0].value == found[1].value));
        env.sleep_until(env.now() + kPause);
      }
    });
  });
}

TEST_P(ErpcOrderedStore, AFullStoreRefusesAWholePut) {
  run([](Env& env) {
    OrderedStore store(env, {.max_keys = 2});
    StoreReader reader(store);
    EXPECT_EQ(store.put(5, 1), StoreOutcome::kDone);
    const std::array<StoreEntry, 3> three{{{5, 2}, {6, 2}, {7, 2}}};
    EXPECT_EQ(store.put_all(three), StoreOutcome::kFull);
    EXPECT_EQ(reader.get(5), 1U);
    EXPECT_EQ(reader.get(6), std::nullopt);
    EXPECT_EQ(store.put_all(std::span(three).first(2)), StoreOutcome::kDone);
    EXPECT_EQ(store.erase(5), StoreOutcome::kDone);
    EXPECT_EQ(store.erase(5), StoreOutcome::kAbsent);
    EXPECT_EQ(store.put(7, 3), StoreOutcome::kDone);
    EXPECT_EQ(reader.get(7), 3U);
  });
}

TEST_P(ErpcOrderedStore, NamesABadOptionAndAMissingReader) {
  run([](Env& env) {
    const auto make = [&](std::uint64_t max_keys, std::uint32_t readers) {
      return [&env, max_keys, readers] {
        OrderedStore(env, {.max_keys = max_keys, .readers = readers});
      };
    };
    EXPECT_TRUE(refuses(make(0, 1), ErrorCode::kInvalidArgument, {"max_keys", "0", "4294967296"}));
    EXPECT_TRUE(refuses(make(1, 4097), ErrorCode::kInvalidArgument, {"readers", "4097", "4096"}));
    OrderedStore store(env, {.max_keys = 1, .readers = 1});
    auto reader = std::make_unique<StoreReader>(store);
    EXPECT_TRUE(refuses([&] { const StoreReader second(store); }, ErrorCode::kExhausted, {"1"}));
    reader.reset();
    const StoreReader again(store);
  });
}

TEST_P(ErpcOrderedStore, AnOpenStoreHasNoFileWithAName) {
  run([](Env& env) {
    const OrderedStore store(env, {.max_keys = 10});
    std::ifstream maps("/proc/self/maps");
    int files = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/dev/shm/pyrdma-store-") == line.npos) continue;
      ++files;
      EXPECT_TRUE(line.ends_with("(deleted)")) << line;
    }
    EXPECT_GT(files, 0);
  });
}

TEST(ErpcOrderedStoreLibrary, NamesThePackageThatIsMissing) {
  EXPECT_TRUE(names(Lmdb{}.load("libnone.so.0"), {"libnone.so.0", "liblmdb0"}));
  EXPECT_TRUE(names(Lmdb{}.load("libc.so.6"), {"libc.so.6", "mdb_version", "liblmdb0"}));
}

TEST(ErpcOrderedStoreSim, EveryNodeHasAStoreAndReadsTakeTime) {
  if (!ordered_store_problem().empty()) GTEST_SKIP() << ordered_store_problem();
  runtime::run_world("sim", 50, [](Env& env, const runtime::Kill&) {
    OrderedStore store(env, {.max_keys = 1000});
    StoreReader reader(store);
    EXPECT_EQ(store.put(env.node(), 7), StoreOutcome::kDone);
    const Time before = env.now();
    EXPECT_EQ(reader.get(env.node()), 7U);
    EXPECT_EQ(reader.get(env.node() + 1), std::nullopt);
    EXPECT_GT(env.now(), before);
  });
}

TEST(ErpcOrderedStoreBugs, HaveNames) {
  for (const std::string_view name : kStoreBugNames)
    EXPECT_EQ(StoreBugs::named(name).map_flags(1), name == "keys_as_bytes" ? 0U : 1U);
}

#if defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Worlds, ErpcOrderedStore, testing::Values("shm"));
#else
INSTANTIATE_TEST_SUITE_P(Worlds, ErpcOrderedStore, testing::Values("sim", "shm"));
#endif

}  // namespace
}  // namespace pyrdma::erpc
