// Recoveries into a store: entries in any order, by ranges, damaged, too many, or by threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>

#include "base/rng.h"
#include "env/thread/thread_env.h"
#include "systems/tailwind/store/object_manager.h"
#include "systems/tailwind/store/object_manager_test.h"

namespace pyrdma::tailwind {
namespace {

/// A recovery of the ranges that gets the entries in parts.
void recover(Store& store, std::span<const HashRange> ranges, std::span<const Entry> entries,
             Rng& rng) {
  store.objects.begin_replay(ranges);
  while (!entries.empty()) {
    const std::size_t part = std::min(entries.size(), std::size_t{1 + rng.below(300)});
    ASSERT_NE(store.objects.replay(entries.first(part)), Position());
    entries = entries.subspan(part);
  }
  store.objects.end_replay();
}

/// Random updates of 200 keys in two tables.
void fill(Store& store, Rng& rng, std::uint64_t updates) {
  for (std::uint64_t sequence = 1; sequence <= updates; ++sequence) {
    const std::string key = "key" + std::to_string(rng.below(100));
    const std::uint64_t table = 1 + rng.below(2);
    const UpdateId id{1 + rng.below(3), sequence, sequence > 100 ? sequence - 100 : 0};
    if (rng.below(3) == 0) {
      store.remove(key, id, table);
    } else {
      store.write(key, std::string(rng.below(300), static_cast<char>('a' + rng.below(26))), id,
                  table);
    }
  }
}

TEST_F(TailwindObjectManager, AReplayInAnyOrderGivesTheSame) {
  Rng rng(2, 0, "replay");
  for (int round = 0; round < 10; ++round) {
    Store dead(env);
    fill(dead, rng, 2'000);
    std::vector<Entry> entries = dead.log.entries();
    for (std::size_t i = entries.size(); i > 1; --i)
      std::swap(entries[i - 1], entries[rng.below(i)]);
    // Some come twice: from two backups.
    entries.insert(entries.end(), entries.begin(), entries.begin() + 300);
    Store heir(env);
    recover(heir, kBothTables, entries, rng);
    ASSERT_EQ(heir.contents(), dead.contents());
    EXPECT_EQ(heir.log.live_bytes(), heir.known_bytes());
    // The heir's own log has all: another heir finds the same in it, in any order.
    std::vector<Entry> own = heir.log.entries();
    std::ranges::reverse(own);
    Store next(env);
    recover(next, kBothTables, own, rng);
    ASSERT_EQ(next.contents(), dead.contents());
    // Versions go on above those of removed keys, and the last updates are known.
    std::uint64_t newest = 0;
    for (const Entry& entry : entries) {
      if (entry.type() == EntryType::kTombstone) newest = std::max(newest, entry.version());
    }
    EXPECT_GT(heir.write("a new key", "").version, newest);
  }
}

TEST_F(TailwindObjectManager, AReplayBringsTheResults) {
  Store dead(env), heir(env);
  const Outcome written = dead.write("key", "one", {7, 1, 0});
  dead.write("key", "two", {8, 1, 0});
  const Outcome absent = dead.remove("absent", {7, 2, 0});
  EXPECT_EQ(absent.status, StoreStatus::kNoObject);
  heir.objects.begin_replay(kTable1);
  const Position end = heir.objects.replay(dead.log.entries()).value();
  heir.objects.end_replay();
  const Segment& head = *heir.log.log.head();
  EXPECT_EQ(end, (Position{head.id(), head.end()}));
  EXPECT_EQ(heir.write("key", "one", {7, 1, 0}).version, written.version);
  EXPECT_LE(heir.write("key", "one", {7, 1, 0}).position, end);
  EXPECT_GT(heir.write("key", "one", {7, 1, 0}).position, Position());
  EXPECT_EQ(heir.remove("absent", {7, 2, 0}).status, StoreStatus::kNoObject);
  std::string value;
  heir.read("key", value);
  EXPECT_EQ(value, "two");
  EXPECT_EQ(heir.objects.results().count(), 3U);
}

TEST_F(TailwindObjectManager, AReplayTakesItsRangesAlone) {
  Rng rng(3, 0, "ranges");
  Store dead(env);
  fill(dead, rng, 1'000);
  const std::uint64_t half = std::uint64_t{1} << 63;
  const std::vector<HashRange> low{{1, 0, half - 1}}, high{{1, half, ~std::uint64_t{0}}};
  Store one(env), other(env);
  recover(one, low, dead.log.entries(), rng);
  recover(other, high, dead.log.entries(), rng);
  Store::Contents both = one.contents(), expected = dead.contents();
  EXPECT_FALSE(both.empty());
  EXPECT_FALSE(other.contents().empty());
  both.merge(other.contents());
  std::erase_if(expected, [](const auto& object) { return object.first.first != 1; });
  EXPECT_EQ(both, expected);
}

TEST_F(TailwindObjectManager, DamagedEntriesAreRefused) {
  Bytes room(256);
  const auto refused = [&](EntryHeader header, const std::string& key, const std::string& value,
                           bool is_damaged) {
    Store store(env, 64);
    const Entry entry = write_entry(room.data(), header, view_of(key), view_of(value));
    if (is_damaged) room[sizeof header] ^= std::byte{1};
    store.objects.begin_replay(kTable1);
    const bool is_refused = !store.objects.replay({&entry, 1});
    EXPECT_TRUE(store.log.entries().empty());
    return is_refused;
  };
  EntryHeader header;
  header.table = 1;
  header.type = EntryType::kObject;
  EXPECT_TRUE(refused(header, "key", "value", true));
  header.version = ~std::uint64_t{0};
  EXPECT_TRUE(refused(header, "key", "value", false));
  header.version = 1;
  header.type = EntryType::kTombstone;
  EXPECT_FALSE(refused(header, "key", "8 bytes.", false));
  EXPECT_TRUE(refused(header, "key", "more than 8", false));
  header.type = EntryType::kResult;
  ResultContents contents{2, 0, 1, StoreStatus::kOk};
  const auto text = [&] { return text_of(std::as_bytes(std::span(&contents, 1))); };
  EXPECT_FALSE(refused(header, "", text(), false));
  EXPECT_TRUE(refused(header, "k", text(), false));
  EXPECT_TRUE(refused(header, "", text().substr(1), false));
  contents.status = static_cast<StoreStatus>(200);
  EXPECT_TRUE(refused(header, "", text(), false));
}

TEST_F(TailwindObjectManager, AFullReplayMayBePurged) {
  Rng rng(4, 0, "full");
  Store dead(env), heir(env, 4);
  fill(dead, rng, 3'000);
  heir.write("other", "value", {}, 3);
  heir.objects.begin_replay(kBothTables);
  EXPECT_EQ(heir.objects.replay(dead.log.entries()), Position());
  heir.objects.end_replay();
  EXPECT_GT(heir.objects.keys(), 1U);
  heir.objects.purge(kBothTables);
  EXPECT_EQ(heir.objects.keys(), 1U);
  EXPECT_EQ(heir.objects.results().count(), 0U);
  EXPECT_EQ(heir.contents().begin()->first, (std::pair<std::uint64_t, std::string>(3, "other")));
  EXPECT_EQ(heir.log.live_bytes(), heir.known_bytes());
}

TEST_F(TailwindObjectManager, APurgeForgetsItsRangesAlone) {
  Rng rng(5, 0, "purge");
  Store store(env);
  fill(store, rng, 2'000);
  Store::Contents expected = store.contents();
  std::uint64_t newest = 0;
  for (const auto& [name, object] : expected) newest = std::max(newest, object.first);
  const std::uint64_t half = std::uint64_t{1} << 63;
  const std::vector<HashRange> ranges{{1, half, ~std::uint64_t{0}}};
  const std::uint64_t results = store.objects.results().count();
  store.objects.purge(ranges);
  std::erase_if(expected, [&](const auto& object) {
    const auto& [table, key] = object.first;
    return ranges[0].has(table, key_hash(table, view_of(key)));
  });
  EXPECT_EQ(store.contents(), expected);
  EXPECT_LT(store.objects.results().count(), results);
  EXPECT_GT(store.objects.results().count(), results / 2);
  EXPECT_EQ(store.log.live_bytes(), store.known_bytes());
  store.objects.purge(kBothTables);
  EXPECT_EQ(store.objects.keys(), 0U);
  EXPECT_GT(store.write("key", "value").version, newest) << "a version is not given twice";
}

// Threads replay parts of one log at once.
TEST(TailwindObjectManagerThreads, ShareAReplay) {
  ThreadWorld world;
  ThreadEnvOptions options;
  options.clock = Clock::calibrate();
  ThreadEnv env(options, world);
  Rng rng(6, 0, "shared");
  Store dead(env), heir(env);
  fill(dead, rng, 5'000);
  const std::vector<Entry> entries = dead.log.entries();
  heir.objects.begin_replay(kBothTables);
  std::vector<Position> ends(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t number = 0; number < ends.size(); ++number) {
      threads.emplace_back([&, number] {
        std::vector<Entry> part;
        for (std::size_t i = number; i < entries.size(); i += ends.size())
          part.push_back(entries[i]);
        ends[number] = heir.objects.replay(part).value();
      });
    }
  }
  heir.objects.end_replay();
  EXPECT_EQ(std::ranges::count(ends, Position()), 0);
  EXPECT_EQ(heir.contents(), dead.contents());
  EXPECT_EQ(heir.log.live_bytes(), heir.known_bytes());
}

}  // namespace
}  // namespace pyrdma::tailwind
