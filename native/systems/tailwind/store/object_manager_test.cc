// The store beside a map, with random operations and with threads.
#include "systems/tailwind/store/object_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/rng.h"
#include "env/thread/thread_env.h"
#include "systems/tailwind/store/object_manager_test.h"

namespace pyrdma::tailwind {
namespace {

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

TEST_F(TailwindObjectManager, WhatMovesIsFoundAtItsNewPlace) {
  Store store(env);
  store.write("key", "old");
  store.write("key", "value", {7, 1, 0});
  store.remove("key2", {7, 2, 0});
  std::set<Place> places;
  store.log.log.segments().begin()->second->for_entries(
      [&](const Entry&, Place place) { places.insert(place); });
  int moved = 0, dead = 0;
  for (const Place from : places) {
    const WholeEntry whole = store.log.memory().entry(from);
    const Entry original = *whole;
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
      EXPECT_TRUE(store.objects.is_live(*store.log.memory().entry(to), to));
    }
  }
  EXPECT_EQ(moved, 3) << "an object and two results";
  EXPECT_EQ(dead, 3) << "the first object, and what begins the segment";
  std::string value;
  EXPECT_EQ(store.read("key", value).status, StoreStatus::kOk);
  EXPECT_EQ(value, "value");
  EXPECT_EQ(store.write("key", "value", {7, 1, 0}).version, 2U);
}

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

}  // namespace
}  // namespace pyrdma::tailwind
