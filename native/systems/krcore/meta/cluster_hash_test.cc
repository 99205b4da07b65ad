#include "systems/krcore/meta/cluster_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "base/rng.h"

namespace pyrdma::krcore {
namespace {

using Payload = std::array<std::uint32_t, 3>;

/// A table, and what it must hold.
class Churned {
 public:
  Churned(std::uint32_t entries, std::uint64_t seed, Bugs bugs = {})
      : shape(HashShape::of(entries, sizeof(Payload))),
        table(shape,
              reinterpret_cast<std::byte*>((memory_.resize(shape.bytes() / 8 + 1), memory_.data())),
              bugs),
        rng(seed, 0, "churn") {}
  bool add() {
    const auto key = static_cast<std::uint32_t>(rng());
    const Payload value{key, ~key, static_cast<std::uint32_t>(rng())};
    if (!table.insert(key, std::as_bytes(std::span(value)))) return false;
    held[key] = value;
    return true;
  }
  void remove() {
    auto each = held.begin();
    std::advance(each, static_cast<std::ptrdiff_t>(rng.below(held.size())));
    EXPECT_TRUE(table.erase(each->first));
    held.erase(each);
  }
  LookupResult find(
      std::uint32_t key, Payload& value, const std::function<void()>& between = [] {}) {
    return look_up(shape, key, std::as_writable_bytes(std::span(value)),
                   [&](std::uint64_t offset, std::span<std::byte> into) {
                     std::memcpy(into.data(),
                                 reinterpret_cast<const std::byte*>(memory_.data()) + offset,
                                 into.size());
                     between();
                     return true;
                   });
  }
  void expect_all() {
    for (const auto& [key, wanted] : held) {
      Payload value{};
      ASSERT_EQ(find(key, value), LookupResult::kFound) << key;
      EXPECT_EQ(value, wanted);
    }
    EXPECT_EQ(table.size(), held.size());
  }

 private:
  std::vector<std::uint64_t> memory_;

 public:
  const HashShape shape;
  ClusterHash table;
  Rng rng;
  std::map<std::uint32_t, Payload> held;
};

// A table that is nearly full for long finds a place for each key, because buckets for collisions
// that are empty serve others.
TEST(KrcoreClusterHash, StaysUsable) {
  for (const Bug bug : {Bug::kNone, Bug::kBucketsKept}) {
    Churned churned(1024, 1, bug);
    std::uint64_t refused = 0;
    for (int i = 0; i < 100'000; ++i) {
      if (churned.held.size() >= 1000) churned.remove();
      refused += churned.add() ? 0 : 1;
      if (i % 20'000 == 0) churned.expect_all();
    }
    churned.expect_all();
    EXPECT_EQ(refused == 0, bug == Bug::kNone) << refused;
    EXPECT_EQ(churned.table.free_buckets() > 100, bug == Bug::kNone) << "of 205";
  }
}

TEST(KrcoreClusterHash, AnEmptyTableHasAllItsBuckets) {
  Churned churned(300, 2);
  const std::size_t all = churned.table.free_buckets();
  EXPECT_EQ(all, churned.shape.buckets);
  for (int round = 0; round < 20; ++round) {
    while (churned.held.size() < 300) EXPECT_TRUE(churned.add());
    EXPECT_LT(churned.table.free_buckets(), all);
    churned.expect_all();
    EXPECT_FALSE(churned.add()) << "it has all its entries";
    while (!churned.held.empty()) churned.remove();
    EXPECT_EQ(churned.table.free_buckets(), all);
  }
}

// A reader meets changes between its READs. A key that is there all the time is found.
TEST(KrcoreClusterHash, AReaderFindsWhatStays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Churned churned(64, seed);
    while (churned.held.size() < 60) EXPECT_TRUE(churned.add());
    for (int i = 0; i < 2000; ++i) {
      auto each = churned.held.begin();
      std::advance(each, static_cast<std::ptrdiff_t>(churned.rng.below(churned.held.size())));
      const auto [key, wanted] = *each;
      churned.held.erase(key);  // so it stays
      Payload value{};
      const LookupResult result = churned.find(key, value, [&] {
        for (std::uint64_t change = churned.rng.below(40); change-- > 0;) {
          if (churned.held.size() >= 58 || (!churned.held.empty() && churned.rng.below(2) == 0))
            churned.remove();
          else
            EXPECT_TRUE(churned.add());
        }
      });
      churned.held[key] = wanted;
      ASSERT_EQ(result, LookupResult::kFound) << "seed " << seed << ", look " << i;
      EXPECT_EQ(value, wanted);
    }
  }
}

}  // namespace
}  // namespace pyrdma::krcore
