// Splits beside other operations. Public re-implementations of RACE leave resizing out, or have a
// lock that returns at once, or take a prefix of a key for the key; client_test.cc has the first of
// these.
#include <atomic>

#include "systems/krcore/race/worlds_test.h"

namespace pyrdma::krcore::race {
namespace {

class RaceSplits : public RaceWorlds {};

ClientOptions never_overtaken() {
  ClientOptions options;
  options.timeout = 60 * kSecond;
  options.lease = 30 * kSecond;
  options.split_groups = 1;
  return options;
}

std::uint64_t insert_until(Client& client, std::uint64_t from,
                           const std::function<bool()>& is_enough) {
  while (!is_enough()) {
    EXPECT_EQ(client.insert(bytes_of(key_of(from)), bytes_of(key_of(from))), Outcome::kOk);
    ++from;
  }
  return from;
}

// The first client stops at each step of its split, until the second one has looked up all keys.
TEST_P(RaceSplits, LookupsWaitForNoSplit) {
  std::atomic<int> stops{0}, looks{0};
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> inserted{0};
  run({1, 2, small_table()}, [&](ClientNode& node) {
    ClientOptions options = never_overtaken();
    if (node.number == 1) {
      const auto client = node.client(options);
      Bytes value;
      while (!is_over) {
        await(node.env, [&] { return is_over || looks < stops; });
        for (std::uint64_t i = 0; i < inserted; ++i) {
          EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk) << i;
          EXPECT_EQ(text_of(value), key_of(i));
        }
        EXPECT_EQ(client->lookup(bytes_of("absent"), value), Outcome::kMissing);
        looks = stops.load();
      }
      return;
    }
    options.at_step = [&](Step step) {
      if (step < Step::kSplitLocked) return;
      ++stops;
      await(node.env, [&] { return looks == stops; });
    };
    const auto client = node.client(options);
    for (std::uint64_t i = 0; i < 300; ++i) {
      EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of(key_of(i))), Outcome::kOk);
      inserted = i + 1;
    }
    is_over = true;
    EXPECT_GE(stops, 4 * 9);
  });
}

// While one client holds the lock, another one that needs room waits. It splits nothing itself, and
// its insertion goes on when the split has ended.
TEST_P(RaceSplits, AHeldLockHoldsOthersUp) {
  std::atomic<bool> is_held{false};
  std::atomic<int> tries{0};
  run(
      {1, 2, small_table()},
      [&](ClientNode& node) {
        ClientOptions options = never_overtaken();
        if (node.number == 1) {
          await(node.env, [&] { return is_held.load(); });
          options.at_step = [&](Step step) {
            if (step == Step::kBlockWritten) ++tries;  // each look at the full buckets
            if (step == Step::kSplitLocked) {
              EXPECT_FALSE(is_held) << "two clients hold the lock of one subtable";
            }
          };
          const auto client = node.client(options);
          for (std::uint64_t i = 1000; i < 1060; ++i)
            EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of("x")), Outcome::kOk);
          return;
        }
        options.at_step = [&](Step step) {
          if (step != Step::kSplitLocked) return;
          is_held = true;
          await(node.env, [&] { return tries > 100; });
          is_held = false;
        };
        const auto client = node.client(options);
        insert_until(*client, 0, [&] { return client->global_depth() >= 1; });
      },
      [](const TableAddress& table, const Regions& regions) {
        expect_whole(audit(table, regions));
      });
}

// The keys begin alike, have one length and one fingerprint.
TEST_P(RaceSplits, KeysThatBeginAlikeAreDifferent) {
  run({1, 1, small_table()}, [](ClientNode& node) {
    const auto client = node.client();
    std::vector<std::string> keys;
    for (std::uint64_t i = 100'000; keys.size() < 20; ++i) {
      const std::string key = "the same beginning " + std::to_string(i);
      if (KeyHash::of(bytes_of(key)).fingerprint() == 77) keys.push_back(key);
    }
    Bytes value;
    for (const std::string& key : keys) {
      EXPECT_EQ(client->lookup(bytes_of(key), value), Outcome::kMissing) << key;
      EXPECT_EQ(client->insert(bytes_of(key), bytes_of(key)), Outcome::kOk) << key;
    }
    for (const std::string& key : keys) {
      EXPECT_EQ(client->lookup(bytes_of(key), value), Outcome::kOk) << key;
      EXPECT_EQ(text_of(value), key);
    }
    EXPECT_EQ(client->remove(bytes_of(keys[3])), Outcome::kOk);
    EXPECT_EQ(client->remove(bytes_of(keys[3])), Outcome::kMissing);
    EXPECT_EQ(client->lookup(bytes_of(keys[4]), value), Outcome::kOk);
  });
}

// A client dies after it has published a new subtable. The slots that it should have cleaned point
// to blocks that are used otherwise by now; keys of the old subtable may have their fingerprints.
TEST_P(RaceSplits, WhatADeadSplitLeavesHoldsNoLookupUp) {
  std::atomic<std::uint64_t> inserted{0};
  std::atomic<bool> is_dead{false};
  Shape shape{1, 2, small_table()};
  shape.victim = 1;
  run(shape, [&](ClientNode& node) {
    ClientOptions options = never_overtaken();
    if (node.number == 0) {
      options.at_step = [&](Step step) {
        if (step != Step::kPublished) return;
        is_dead = true;
        node.kill(node.env.node());
        node.env.sleep_until(node.env.now() + kSecond);  // it ends here
      };
      const auto client = node.client(options);
      for (std::uint64_t i = 0; i < 200; ++i, ++inserted)
        EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of("x")), Outcome::kOk);
      return;
    }
    await(node.env, [&] { return is_dead.load(); });
    options.timeout = kSecond;
    const auto client = node.client(options);
    const std::uint32_t groups = node.table.groups;
    Bytes value;
    std::uint32_t moved = 0;
    for (std::uint64_t i = 0; i < inserted; ++i) {
      const KeyHash hash = KeyHash::of(bytes_of(key_of(i)));
      if (hash.index(1) == 0) continue;
      EXPECT_EQ(client->remove(bytes_of(key_of(i))), Outcome::kOk);
      if (++moved % 4 != 0) continue;
      for (std::uint64_t other = 1000;; ++other) {
        const KeyHash like = KeyHash::of(bytes_of(key_of(other)));
        if (like.index(1) != 0 || like.fingerprint() != hash.fingerprint() ||
            like.combined(0, groups) != hash.combined(0, groups) ||
            like.combined(1, groups) != hash.combined(1, groups))
          continue;
        EXPECT_EQ(client->lookup(bytes_of(key_of(other)), value), Outcome::kMissing);
        break;
      }
    }
    EXPECT_GT(moved, 8U);
  });
}

// A client whose directory is older than several splits finds all keys, and learns the way.
TEST_P(RaceSplits, AnOldDirectoryIsRenewed) {
  std::atomic<int> phase{0};
  run({2, 2, small_table()}, [&](ClientNode& node) {
    const auto client = node.client(never_overtaken());
    if (node.number == 0) {
      await(node.env, [&] { return phase == 1; });
      for (std::uint64_t i = 0; i < 800; ++i)
        EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of(key_of(i))), Outcome::kOk);
      phase = 2;
      return;
    }
    EXPECT_EQ(client->global_depth(), 0U);
    phase = 1;
    await(node.env, [&] { return phase == 2; });
    Bytes value;
    for (int round = 0; round < 2; ++round) {
      const std::uint64_t before = client->reads();
      for (std::uint64_t i = 0; i < 800; ++i)
        EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk) << i;
      // Two buckets and a block; now and then another block with an equal fingerprint.
      if (round == 1) {
        EXPECT_LT(client->reads() - before, 800 * 3 + 200U);
      }
    }
    EXPECT_GE(client->global_depth(), 4U);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RaceSplits, race_worlds(),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace pyrdma::krcore::race
