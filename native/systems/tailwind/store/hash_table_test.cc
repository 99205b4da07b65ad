// The hash table beside a map, with few buckets and with hashes that collide.
#include "systems/tailwind/store/hash_table.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "base/error_test.h"
#include "base/rng.h"
#include "env/thread/thread_env.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"

namespace pyrdma::tailwind {
namespace {

class TailwindHashTable : public testing::Test {
 protected:
  static fabric::sim::SimOptions options() {
    fabric::sim::SimOptions result;
    result.nodes = 1;
    result.profile = fabric::sim::test_profile();
    return result;
  }
  fabric::sim::SimCluster cluster{options()};
  Env& env = cluster.env(0);
};

// The key at place p is p / 1000: each key has a thousand places.
auto is(std::uint64_t key) {
  return [key](Place place) { return place / 1000 == key; };
}

TEST_F(TailwindHashTable, AgreesWithAMap) {
  for (const std::uint64_t hashes : {3ULL, 40ULL, ~0ULL}) {  // that the keys have
    HashTable table(env, 200);
    std::map<std::uint64_t, Place> model;
    Rng rng(hashes, 0, "table");
    for (int turn = 0; turn < 20'000; ++turn) {
      const std::uint64_t key = 1 + rng.below(400), hash = mix64(key % hashes + 1);
      const Place place = key * 1000 + rng.below(1000);
      const auto known = model.find(key);
      const Place before = known == model.end() ? 0 : known->second;
      switch (rng.below(3)) {
        case 0:
          ASSERT_EQ(table.set(hash, place, is(key)), before);
          model[key] = place;
          break;
        case 1:
          ASSERT_EQ(table.erase(hash, is(key)), before);
          model.erase(key);
          break;
        default:
          ASSERT_EQ(table.find(hash, is(key)), before);
      }
      ASSERT_EQ(table.keys(), model.size());
    }
    std::map<std::uint64_t, Place> all;
    for (std::uint64_t bucket = 0; bucket < table.buckets(); ++bucket)
      table.for_bucket(bucket, [&](Place place) { all[place / 1000] = place; });
    EXPECT_EQ(all, model);
  }
}

TEST_F(TailwindHashTable, TakesTenBytesForAKeyAndFewLinesBeyond) {
  constexpr std::uint64_t kKeys = 100'000;
  HashTable table(env, kKeys);
  for (std::uint64_t key = 1; key <= kKeys; ++key) table.set(mix64(key), key * 1000, is(key));
  EXPECT_EQ(table.keys(), kKeys);
  EXPECT_LE(64 * table.buckets(), 10 * kKeys + 64);
  // Of buckets with 6.4 keys in the mean, a quarter has more than 8.
  EXPECT_LT(table.overflow_lines(), table.buckets() / 4);
  for (std::uint64_t key = 1; key <= kKeys; ++key)
    ASSERT_EQ(table.find(mix64(key), is(key)), key * 1000);
}

// Each thread has its own buckets, and all need further lines.
TEST_F(TailwindHashTable, ThreadsWorkOnDifferentBucketsAtOnce) {
  constexpr std::uint64_t kThreads = 4, kKeys = 5'000;
  class Host final : public ThreadHost {
   public:
    void on_slow_turn() override {}
    bool crowded() const override { return true; }
    void thread_runs(int /*change*/) override {}
  };
  Host host;
  ThreadEnvOptions options;
  options.clock = Clock::calibrate();
  ThreadEnv threads_env(options, host);
  HashTable table(threads_env, 1'024);
  // The high bits of the hash choose the bucket, so each thread has a quarter of them.
  const auto hash_of = [](std::uint64_t thread, std::uint64_t key) {
    return thread << 62 | mix64(key) >> 2;
  };
  ASSERT_EQ(table.buckets() % kThreads, 0U);
  std::vector<std::uint64_t> missing(kThreads);
  const auto run = [&](std::uint64_t thread) {
    for (std::uint64_t key = 1; key <= kKeys; ++key) {
      const std::uint64_t name = thread * kKeys + key, hash = hash_of(thread, key);
      table.set(hash, name * 1000, is(name));
      if (key % 3 == 0) missing[thread] += table.erase(hash, is(name)) != name * 1000;
    }
    for (std::uint64_t key = 1; key <= kKeys; ++key) {
      const std::uint64_t name = thread * kKeys + key;
      missing[thread] +=
          table.find(hash_of(thread, key), is(name)) != (key % 3 == 0 ? 0 : name * 1000);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&run, thread] { run(thread); });
  }
  EXPECT_EQ(missing, std::vector<std::uint64_t>(kThreads));
  EXPECT_EQ(table.keys(), kThreads * (kKeys - kKeys / 3));
  EXPECT_GT(table.overflow_lines(), 1'000U);
}

TEST_F(TailwindHashTable, ALookupWaitsForOneLineOfTheTable) {
  HashTable table(env, 10'000'000);  // 100 MB: beyond the caches
  table.set(mix64(1), 1000, is(1));
  const Time begin = env.now();
  EXPECT_EQ(table.find(mix64(1), is(1)), 1000U);
  const Time one = env.now() - begin;
  EXPECT_GT(one, 20);
  EXPECT_LT(one, 300);
}

TEST_F(TailwindHashTable, NoKeysOrTooManyAreRefused) {
  for (const std::uint64_t keys : {std::uint64_t{0}, (std::uint64_t{1} << 40) + 1})
    EXPECT_TRUE(refuses([&] { const HashTable table(env, keys); }, ErrorCode::kInvalidArgument,
                        {std::to_string(keys), "2^40"}));
}

}  // namespace
}  // namespace pyrdma::tailwind
