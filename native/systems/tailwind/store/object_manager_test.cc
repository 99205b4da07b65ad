// The store beside a map, with random operations, with threads, and after recoveries.
#include "systems/tailwind/store/object_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "base/rng.h"
#include "env/thread/thread_env.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "systems/tailwind/store/object_log_test.h"

namespace pyrdma::tailwind {
namespace {

ByteView view_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A store and its log.
struct Store {
  explicit Store(Env& env, std::uint32_t seglets = 256, Bugs bugs = {})
      : log(env, seglets), objects(env, log, 1000, bugs) {}
  Outcome write(const std::string& key, const std::string& value, const UpdateId& id = {},
                std::uint64_t table = 1) {
    return objects.write(table, key_hash(table, view_of(key)), view_of(key), view_of(value), id);
  }
  Outcome remove(const std::string& key, const UpdateId& id = {}, std::uint64_t table = 1) {
    return objects.remove(table, key_hash(table, view_of(key)), view_of(key), id);
  }
  Outcome read(const std::string& key, std::string& value, std::uint64_t table = 1) {
    Bytes bytes;
    const Outcome result = objects.read(table, key_hash(table, view_of(key)), view_of(key), bytes);
    value = text_of(bytes);
    return result;
  }
  using Contents =
      std::map<std::pair<std::uint64_t, std::string>, std::pair<std::uint64_t, std::string>>;
  Contents contents() {
    Contents result;
    objects.for_all([&](std::uint64_t table, ByteView key, std::uint64_t version, ByteView value) {
      const bool is_new =
          result.emplace(std::pair(table, text_of(key)), std::pair(version, text_of(value))).second;
      EXPECT_TRUE(is_new) << "a key is there twice";
    });
    return result;
  }
  /// Bytes of all entries that the store knows.
  std::uint64_t known_bytes() {
    std::uint64_t result = 0;
    for (const auto& [number, segment] : log.log.segments()) {
      segment->for_entries([&](const Entry& entry, Place place) {
        // No tombstone is dropped.
        if (entry.type() == EntryType::kTombstone || objects.is_live(entry, place))
          result += taken_by(entry);
      });
    }
    return result;
  }
  UnreplicatedLog log;
  ObjectManager objects;
};

const std::vector<HashRange> kTable1{{1, 0, ~std::uint64_t{0}}};
const std::vector<HashRange> kBothTables{{1, 0, ~std::uint64_t{0}}, {2, 0, ~std::uint64_t{0}}};

class TailwindObjectManager : public testing::Test {
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

TEST_F(TailwindObjectManager, AgreesWithAMap) {
  Store store(env, 1024);
  Store::Contents model;
  std::map<std::pair<std::uint64_t, std::string>, std::uint64_t> removed;
  Rng rng(1, 0, "objects");
  std::uint64_t sequence = 0;
  Position last;
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::uint64_t table = 1 + rng.below(2);
    const std::string key = "key" + std::to_string(rng.below(300));
    const auto name = std::pair(table, key);
    const auto known = model.find(name);
    UpdateId id;
    if (rng.below(2) == 0) id = {7, ++sequence, sequence > 5 ? sequence - 5 : 0};
    std::string value(rng.below(200), static_cast<char>('a' + rng.below(26)));
    switch (rng.below(3)) {
      case 0: {
        const Outcome outcome = store.write(key, value, id, table);
        ASSERT_EQ(outcome.status, StoreStatus::kOk);
        if (known != model.end()) {
          ASSERT_EQ(outcome.version, known->second.first + 1);
        }
        ASSERT_GT(outcome.version, removed[name]);
        ASSERT_GT(outcome.position, last);
        last = outcome.position;
        model[name] = {outcome.version, value};
        break;
      }
      case 1: {
        const Outcome outcome = store.remove(key, id, table);
        if (known == model.end()) {
          ASSERT_EQ(outcome.status, StoreStatus::kNoObject);
        } else {
          ASSERT_EQ(outcome.status, StoreStatus::kOk);
          ASSERT_EQ(outcome.version, known->second.first);
          ASSERT_GT(outcome.position, last);
          removed[name] = outcome.version;
          model.erase(known);
        }
        last = std::max(last, outcome.position);
        break;
      }
      default: {
        const Outcome outcome = store.read(key, value, table);
        ASSERT_EQ(outcome.status, known == model.end() ? StoreStatus::kNoObject : StoreStatus::kOk);
        if (known != model.end()) {
          ASSERT_EQ(outcome.version, known->second.first);
          ASSERT_EQ(value, known->second.second);
        }
      }
    }
  }
  EXPECT_EQ(store.contents(), model);
  EXPECT_EQ(store.objects.keys(), model.size());
  EXPECT_LE(store.objects.results().count(), 6U);
  EXPECT_EQ(store.log.live_bytes(), store.known_bytes());
}

// Whoever reads waits for the commit of what it has read, or of the removal.
TEST_F(TailwindObjectManager, AReadNamesTheLastAppendOfItsKey) {
  std::string value;
  for (const Bug bug : {Bug::kNone, Bug::kReadDoesNotWait}) {
    Store store(env, 64, bug);
    const bool waits = bug == Bug::kNone;
    const Position written = store.write("key", "value").position;
    EXPECT_EQ(store.read("key", value).position, waits ? written : Position{});
    const Position removed = store.remove("key").position;
    EXPECT_GT(removed, written);
    EXPECT_EQ(store.read("key", value).position, waits ? removed : Position{});
    EXPECT_EQ(store.remove("key").position, removed) << "it says that nothing is there";
  }
}

TEST_F(TailwindObjectManager, AnUpdateThatIsSentAgainHappensOnce) {
  Store store(env);
  const UpdateId first{7, 1, 0}, second{7, 2, 0}, third{7, 3, 0};
  const Outcome written = store.write("key", "one", first);
  EXPECT_EQ(store.write("key", "two").version, written.version + 1);
  const Outcome again = store.write("key", "one", first);
  EXPECT_EQ(again.status, StoreStatus::kOk);
  EXPECT_EQ(again.version, written.version);
  EXPECT_EQ(again.position, written.position);
  std::string value;
  store.read("key", value);
  EXPECT_EQ(value, "two");

  EXPECT_EQ(store.remove("absent", second).status, StoreStatus::kNoObject);
  EXPECT_EQ(store.write("absent", "now here").status, StoreStatus::kOk);
  EXPECT_EQ(store.remove("absent", second).status, StoreStatus::kNoObject);
  EXPECT_EQ(store.read("absent", value).status, StoreStatus::kOk);

  const Outcome removed = store.remove("key", third);
  EXPECT_EQ(store.remove("key", third).version, removed.version);
  EXPECT_EQ(store.remove("key", third).status, StoreStatus::kOk);
  EXPECT_EQ(store.objects.results().count(), 3U);

  // The client knows the first two results.
  EXPECT_EQ(store.write("key", "three", {7, 4, 3}).status, StoreStatus::kOk);
  EXPECT_EQ(store.objects.results().count(), 2U);
  EXPECT_EQ(store.write("key", "one", first).status, StoreStatus::kTooOld);
  EXPECT_EQ(store.remove("key", second).status, StoreStatus::kTooOld);
  EXPECT_EQ(store.write("key", "four", {7, 5, 6}).status, StoreStatus::kBadRequest);
  store.read("key", value);
  EXPECT_EQ(value, "three");
  EXPECT_EQ(store.log.live_bytes(), store.known_bytes());
  EXPECT_EQ(store.write("key", "another client's", {8, 1, 0}).status, StoreStatus::kOk);
}

TEST_F(TailwindObjectManager, AResultThatIsNotKeptIsNoticed) {
  Store store(env, 64, Bug::kResultNotKept);
  const Outcome first = store.write("key", "value", {7, 1, 0});
  EXPECT_NE(store.write("key", "value", {7, 1, 0}).version, first.version);
}

TEST_F(TailwindObjectManager, AKeyOrAValueThatIsTooLongIsRefused) {
  Store store(env, 256);
  const std::string key(kMostKey, 'k'), value(1 << 17, 'v');
  EXPECT_EQ(store.write(key, value, {7, 1, 0}).status, StoreStatus::kOk);
  EXPECT_EQ(store.write(key + "k", "value").status, StoreStatus::kBadRequest);
  EXPECT_EQ(store.remove(key + "k").status, StoreStatus::kBadRequest);
  EXPECT_EQ(store.write("key", std::string(kMostValue + 1, 'v')).status, StoreStatus::kBadRequest);
  std::string found;
  EXPECT_EQ(store.read(key, found).status, StoreStatus::kOk);
  EXPECT_EQ(found, value);
}

TEST_F(TailwindObjectManager, WithoutMemoryNothingChanges) {
  Store store(env, 8);
  std::uint64_t sequence = 0;
  const std::string value(20'000, 'v');
  Outcome outcome;
  std::uint64_t written = 0;
  for (;; ++written) {
    outcome = store.write("key" + std::to_string(written % 10), value, {7, ++sequence, 0});
    if (outcome.status != StoreStatus::kOk) break;
  }
  EXPECT_GT(written, 10U);
  EXPECT_EQ(outcome.status, StoreStatus::kLogFull);
  EXPECT_EQ(outcome.position, Position{});
  const Store::Contents before = store.contents();
  EXPECT_EQ(store.objects.results().count(), written);
  EXPECT_EQ(store.write("key1", value, {7, sequence, 0}).status, StoreStatus::kLogFull)
      << "it is not in progress";
  EXPECT_EQ(store.log.live_bytes(), store.known_bytes());
  // What the client knows is dropped nevertheless.
  EXPECT_EQ(store.write("new", value, {7, sequence, 5}).status, StoreStatus::kLogFull);
  EXPECT_EQ(store.objects.results().count(), written - 4);
  EXPECT_EQ(store.contents(), before);
  EXPECT_EQ(store.log.live_bytes(), store.known_bytes());
}

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
  const Position end = heir.objects.replay(dead.log.entries());
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
    const bool is_refused = store.objects.replay({&entry, 1}) == Position();
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

TEST_F(TailwindObjectManager, WhatMovesIsFoundAtItsNewPlace) {
  Store store(env);
  store.write("key", "old");
  store.write("key", "value", {7, 1, 0});
  store.remove("key2", {7, 2, 0});
  std::map<Place, Entry> places;
  store.log.log.segments().begin()->second->for_entries(
      [&](const Entry& entry, Place place) { places.emplace(place, entry); });
  int moved = 0, dead = 0;
  for (const auto& [place, entry] : places) {
    const Place from = place;
    const Entry original = entry;
    Place to = 0;
    const auto copy = [&] {
      EntryHeader header;
      header.type = original.type();
      header.table = original.table();
      header.version = original.version();
      const NewEntry again{header, original.key(), original.value()};
      const std::lock_guard lock(store.log.mutex);
      EXPECT_TRUE(store.log.log.append({&again, 1}, &to));
      return to;
    };
    const bool is_live = store.objects.is_live(original, from);
    EXPECT_EQ(store.objects.relocate(original, from, copy),
              is_live ? ObjectManager::Move::kMoved : ObjectManager::Move::kDead);
    if (to == 0) {
      ++dead;
    } else {
      ++moved;
      EXPECT_FALSE(store.objects.is_live(original, from));
      EXPECT_TRUE(store.objects.is_live(Entry(store.log.memory().at(to)), to));
    }
  }
  EXPECT_EQ(moved, 3) << "an object and two results";
  EXPECT_EQ(dead, 3) << "the first object, and what begins the segment";
  std::string value;
  EXPECT_EQ(store.read("key", value).status, StoreStatus::kOk);
  EXPECT_EQ(value, "value");
  EXPECT_EQ(store.write("key", "value", {7, 1, 0}).version, 2U);
}

/// Real threads, without a fabric.
class ThreadWorld final : public ThreadHost {
 public:
  void on_slow_turn() override {}
  bool crowded() const override { return true; }
  void thread_runs(int /*change*/) override {}
};

// Each thread has its own keys, so it knows what it reads. All share the buckets and the log.
TEST(TailwindObjectManagerThreads, WorkAtOnce) {
  ThreadWorld world;
  ThreadEnvOptions options;
  options.clock = Clock::calibrate();
  ThreadEnv env(options, world);
  Store store(env, 1024);
  constexpr std::uint64_t kThreads = 4;
  std::vector<Store::Contents> models(kThreads);
  const auto run = [&](std::uint64_t number) {
    Rng rng(number, 0, "thread");
    Store::Contents& model = models[number];
    int wrong = 0;
    for (std::uint64_t sequence = 1; sequence <= 5'000; ++sequence) {
      const std::string key = std::to_string(number) + "/" + std::to_string(rng.below(200));
      const UpdateId id{number + 1, sequence, sequence > 3 ? sequence - 3 : 0};
      const auto name = std::pair(std::uint64_t{1}, key);
      const auto known = model.find(name);
      switch (rng.below(4)) {
        case 0:
          wrong += store.remove(key, id).status !=
                   (known == model.end() ? StoreStatus::kNoObject : StoreStatus::kOk);
          model.erase(name);
          break;
        case 1: {
          std::string value;
          const Outcome outcome = store.read(key, value);
          wrong += known == model.end() ? outcome.status != StoreStatus::kNoObject
                                        : std::pair(outcome.version, value) != known->second;
          break;
        }
        default: {
          const std::string value(rng.below(200), static_cast<char>('a' + rng.below(26)));
          const Outcome outcome = store.write(key, value, id);
          wrong += outcome.status != StoreStatus::kOk;
          wrong += store.write(key, "again", id).version != outcome.version;
          model[name] = {outcome.version, value};
        }
      }
    }
    return wrong;
  };
  std::vector<int> wrong(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t number = 0; number < kThreads; ++number)
      threads.emplace_back([&, number] { wrong[number] = run(number); });
  }
  Store::Contents all;
  for (Store::Contents& model : models) all.merge(model);
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
  EXPECT_EQ(store.contents(), all);
  EXPECT_EQ(store.log.live_bytes(), store.known_bytes());
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
        ends[number] = heir.objects.replay(part);
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
