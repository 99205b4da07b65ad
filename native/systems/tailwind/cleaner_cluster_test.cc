// The cleaner in a running store: the log is written many times over, and servers die.
#include <algorithm>
#include <map>
#include <set>

#include "fuzz/small_test.h"
#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using runtime::Kill;

constexpr NodeId kOwner = 1;  // of all keys

Options cleaner_options(const std::string& world, Replication replication) {
  Options options = small_options(world, replication);
  // The thread sanitizer keeps memory for each byte that threads share.
  const std::uint32_t part = fuzz::kSlowed && world == "shm" ? 4 : 1;
  options.log_bytes = (10U << 20) / part;
  options.segment_bytes = (512U << 10) / part;
  options.buffers = 24;
  options.partition_bytes = 1U << 20;  // of a log that several servers recover
  return options;
}

/// The store of a test. What its servers counted is known when they have ended.
class CleanedStore {
 public:
  explicit CleanedStore(const Options& options, Bugs bugs = {}) : options_(options), bugs_(bugs) {}

  void run(const std::string& world,
           const std::function<void(Env&, Client&, std::uint64_t table, const Kill&)>& load) {
    std::atomic<bool> is_done{false};
    const auto is_over = [&] { return is_done.load(); };
    runtime::run_world(world, options_.servers + 2, [&](Env& env, const Kill& kill) {
      if (env.node() < options_.servers) {
        for (std::uint32_t life = 0; !is_over(); ++life) serve(env, life, is_over);
      } else if (env.node() == options_.coordinator) {
        Coordinator coordinator(env, options_);
        coordinator.run(is_over);
        if (testing::Test::HasFailure()) {
          for (const RecoveryReport& report : coordinator.recoveries())
            ADD_FAILURE() << text_of(report);
        }
      } else {
        {
          Client client(env, options_, 0, patience(world));
          client.await_servers(options_.servers);
          try {
            load(env, client, client.create_table("first", {kOwner}), kill);
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
        }
        is_done.store(true);
      }
    });
  }
  /// Those of the server that had the keys first, when it ended or died.
  CleanerCounters counters;

 private:
  void serve(Env& env, std::uint32_t life, FunctionRef<bool()> is_over) {
    Server server(env, options_, life, bugs_);
    server.run([&] {
      if (env.node() == kOwner && life == 0) counters = server.log().cleaner_counters();
      return is_over();
    });
  }
  const Options options_;
  const Bugs bugs_;
};

/// What a client has stored.
class Contents {
 public:
  Contents(Env& env, Client& client, std::uint64_t table)
      : env_(env), client_(client), table_(table), rng_(env.rng("test")) {
    for (std::size_t i = 0; i < kMostValue; ++i)
      body_ += static_cast<char>('a' + (i + i / 251) % 26);
  }

  /// Begins a write. Several may be under way, of different keys.
  void write(std::uint32_t key, std::size_t bytes) {
    make_way(key);
    const std::string begin = std::to_string(++next_) + "/";
    const std::string value = begin + body_.substr(0, bytes);
    const Known before = known_[key];
    known_[key] = {begin, value.size(), true};
    start(Opcode::kWrite, key, value, [this, key, before](StoreStatus status) {
      if (status == StoreStatus::kLogFull) known_[key] = before;
      refusals += status == StoreStatus::kLogFull;
      failures += status != StoreStatus::kOk && status != StoreStatus::kLogFull;
    });
  }
  void remove(std::uint32_t key) {
    make_way(key);
    const Known before = known_[key];
    known_[key].is_there = false;
    start(Opcode::kRemove, key, {}, [this, key, before](StoreStatus status) {
      if (status == StoreStatus::kLogFull) known_[key] = before;
      refusals += status == StoreStatus::kLogFull;
      failures += status != StoreStatus::kOk && status != StoreStatus::kNoObject &&
                  status != StoreStatus::kLogFull;
    });
  }
  /// Reads all keys.
  void check() {
    std::uint32_t wrong = 0;
    for (const auto& [key, known] : known_) {
      make_way(key);
      client_.start(Opcode::kRead, table_, bytes_of(name(key)), {},
                    [&wrong, this, known = known](const Result& result) {
                      const std::string text = text_of(result.value);
                      const std::size_t first = known.begin.size();
                      wrong += known.is_there ? result.status != StoreStatus::kOk ||
                                                    text.size() != known.bytes ||
                                                    !text.starts_with(known.begin) ||
                                                    !body_.starts_with(text.substr(first))
                                              : result.status != StoreStatus::kNoObject;
                    });
    }
    await_all();
    EXPECT_EQ(wrong, 0U) << "of " << known_.size() << " keys";
    EXPECT_EQ(failures, 0U);
  }
  void await_all() {
    EXPECT_TRUE(client_.run_until([&] { return client_.under_way() == 0; }, deadline()));
  }
  Rng& rng() { return rng_; }
  std::uint32_t failures = 0, refusals = 0;  // refusals: of full logs

 private:
  struct Known {
    std::string begin;
    std::size_t bytes = 0;
    bool is_there = false;
  };
  static std::string name(std::uint32_t key) { return "key " + std::to_string(key); }
  Time deadline() { return env_.now() + 100 * kSecond; }
  void start(Opcode opcode, std::uint32_t key, const std::string& value,
             std::function<void(StoreStatus)> on_end) {
    busy_.insert(key);
    client_.start(opcode, table_, bytes_of(name(key)), bytes_of(value),
                  [this, key, on_end](const Result& result) {
                    busy_.erase(key);
                    on_end(result.status);
                  });
  }
  void make_way(std::uint32_t key) {
    EXPECT_TRUE(client_.run_until([&] { return client_.under_way() < 16 && !busy_.contains(key); },
                                  deadline()));
  }
  Env& env_;
  Client& client_;
  const std::uint64_t table_;
  Rng rng_;
  std::string body_;  // of all values, behind what is each one's own
  std::uint64_t next_ = 0;
  std::map<std::uint32_t, Known> known_;
  std::set<std::uint32_t> busy_;
};

class TailwindCleanerCluster : public testing::TestWithParam<std::tuple<std::string, Replication>> {
 protected:
  std::string world() const { return std::get<0>(GetParam()); }
  Options options() const { return cleaner_options(world(), std::get<1>(GetParam())); }
  std::uint32_t keys_of(std::uint32_t percent) const {
    return static_cast<std::uint32_t>(options().log_bytes * percent / 100 / kMean);
  }
  static void load(Contents& contents, std::uint32_t keys) {
    for (std::uint32_t key = 0; key < keys; ++key) contents.write(key, kMean);
  }
  /// Overwrites or removes keys, from the first one on, until so many bytes are written.
  static void churn(Contents& contents, std::uint32_t first, std::uint32_t keys,
                    std::uint64_t bytes) {
    for (std::uint64_t written = 0; written < bytes;) {
      const std::uint32_t key =
          first + static_cast<std::uint32_t>(contents.rng().below(keys - first));
      if (contents.rng().below(12) == 0) {
        contents.remove(key);
        written += 100;
      } else {
        const std::size_t size = 500 + contents.rng().below(2 * (kMean - 500));
        contents.write(key, size);
        written += size;
      }
    }
  }
  /// A log of which so much is live is written over, then its server dies.
  void overwrite_and_recover(std::uint32_t percent) {
    CleanedStore store(options());
    store.run(world(), [&](Env& env, Client& client, std::uint64_t table, const Kill& kill) {
      Contents contents(env, client, table);
      const std::uint32_t keys = keys_of(percent);
      load(contents, keys);
      churn(contents, keys / 8, keys, 2 * options().log_bytes);
      kill(kOwner);
      contents.check();
      churn(contents, 0, keys, options().log_bytes / 8);
      contents.check();
      EXPECT_EQ(contents.refusals, 0U);
    });
    const CleanerCounters& counters = store.counters;
    EXPECT_GT(counters.compactions + counters.cleanings, 0U);
    if (world() != "sim") return;  // real threads clean when they get a core
    EXPECT_GT(counters.compactions, 20U);
    EXPECT_GE(counters.cleanings, 2U);
    EXPECT_GT(counters.survivors, 2U);
    EXPECT_GT(counters.segments_cleaned, counters.survivors);
    EXPECT_GT(counters.bytes_cleaned, counters.survivor_bytes);
    EXPECT_GT(counters.tombstones, 100U);
    EXPECT_LE(counters.used_bytes, counters.log_bytes);
    EXPECT_LE(counters.live_bytes, counters.used_bytes);
  }
  static constexpr std::uint32_t kMean = 2'900;  // bytes of a value
};

TEST_P(TailwindCleanerCluster, AHalfFullLogIsOverwrittenAndRecovered) { overwrite_and_recover(50); }

// The cleaner beside the workers, as real threads.
class TailwindCleanerThreads : public TailwindCleanerCluster {};
TEST_P(TailwindCleanerThreads, AHalfFullLogIsOverwrittenAndRecovered) { overwrite_and_recover(50); }

TEST_P(TailwindCleanerCluster, AnAlmostFullLogIsOverwrittenAndRecovered) {
  overwrite_and_recover(66);
}

// Here tombstones would soon fill the rest: they go with the segments that they name, however full
// those are.
TEST_P(TailwindCleanerCluster, ALogThatIsLiveToNinetyPercentIsOverwritten) {
  CleanedStore store(options());
  store.run(world(), [&](Env& env, Client& client, std::uint64_t table, const Kill& kill) {
    Contents contents(env, client, table);
    const auto bytes = static_cast<std::uint32_t>(sizeof(EntryHeader) + sizeof("key 1234/1234") +
                                                  kMean + sizeof(ChecksumEntry));
    const auto keys = static_cast<std::uint32_t>(options().log_bytes * 9 / 10 / bytes);
    load(contents, keys);
    for (std::uint32_t turn = 0; turn < keys; ++turn)
      contents.write(static_cast<std::uint32_t>(contents.rng().below(keys)), kMean);
    contents.await_all();
    EXPECT_EQ(contents.refusals, 0U);
    kill(kOwner);
    contents.check();
  });
  EXPECT_GT(store.counters.cleanings, 2U);
  EXPECT_GT(store.counters.live_bytes, store.counters.log_bytes * 89 / 100);
}

// Small values leave free seglets here and there. Large ones lie in what there is.
TEST_P(TailwindCleanerCluster, LargeValuesFitInAFragmentedLog) {
  Options large = options();
  large.log_bytes = 16U << 20;
  large.segment_bytes = 2U << 20;
  large.buffers = 10;
  CleanedStore store(large);
  store.run(world(), [&](Env& env, Client& client, std::uint64_t table, const Kill& kill) {
    Contents contents(env, client, table);
    const std::uint32_t small = keys_of(60), first = 1'000'000;
    load(contents, small);
    churn(contents, 0, small, large.log_bytes / 4);
    for (int turn = 0; turn < 16; ++turn) {
      const std::uint32_t key = first + static_cast<std::uint32_t>(contents.rng().below(4));
      contents.write(key, (100U << 10) + contents.rng().below(kMostValue - (101U << 10)));
      churn(contents, 0, small, 100U << 10);
    }
    contents.write(first, kMostValue - 100);
    contents.await_all();
    EXPECT_EQ(contents.refusals, 0U);
    contents.check();
    kill(kOwner);
    contents.check();
  });
}

// Old versions of the removed keys lie between keys that nobody changes, in segments that are not
// worth cleaning. The segments of the last versions are cleaned, and with them the tombstones.
TEST_P(TailwindCleanerCluster, WhatIsRemovedStaysRemoved) {
  CleanedStore store(options());
  store.run(world(), [&](Env& env, Client& client, std::uint64_t table, const Kill& kill) {
    Contents contents(env, client, table);
    const std::uint32_t cold = keys_of(30), keys = keys_of(50);
    load(contents, cold);
    for (std::uint32_t key = 0; key < cold; key += 40) contents.write(key, kMean);
    churn(contents, cold, keys, options().log_bytes / 8);
    for (std::uint32_t key = 0; key < cold; key += 40) contents.remove(key);
    churn(contents, cold, keys, 3 * options().log_bytes);
    kill(kOwner);
    contents.check();
  });
  EXPECT_GE(store.counters.cleanings, 2U);
}

// A backup that dies leaves replicas to be made anew, of what compaction has left in memory. What
// the heir had before it got the keys does not count when its own log is recovered; what it got
// counts, wherever the cleaner has moved it.
TEST_P(TailwindCleanerCluster, ThreeServersDie) {
  Options six = options();
  six.servers = 6;
  six.coordinator = 6;
  six.partition_bytes = 1U << 30;  // one heir
  CleanedStore store(six);
  store.run(world(), [&](Env& env, Client& client, std::uint64_t table, const Kill& kill) {
    Contents others(env, client, client.create_table("of all"));
    load(others, keys_of(12));
    churn(others, 0, keys_of(12), options().log_bytes / 8);
    others.await_all();
    Contents contents(env, client, table);
    const std::uint32_t keys = keys_of(45);
    load(contents, keys);
    contents.await_all();
    kill(kOwner);
    contents.check();
    churn(contents, keys / 8, keys, 3 * options().log_bytes / 2);
    contents.await_all();
    const auto first = std::ranges::find_if(
        client.view().tablets, [&](const Tablet& tablet) { return tablet.range.table == table; });
    const NodeId heir = first->owner.node;
    kill(heir == 5 ? 4 : 5);
    others.check();
    churn(contents, keys / 8, keys, options().log_bytes / 4);
    contents.await_all();
    kill(heir);
    contents.check();
    others.check();
    EXPECT_EQ(contents.refusals, 0U);
  });
}

TEST_P(TailwindCleanerCluster, AFullLogLosesNothing) {
  CleanedStore store(options());
  store.run(world(), [&](Env& env, Client& client, std::uint64_t table, const Kill& kill) {
    Contents contents(env, client, table);
    std::uint32_t keys = 0;
    while (contents.refusals < 20 && keys < keys_of(120)) contents.write(keys++, kMean);
    contents.await_all();
    EXPECT_GE(contents.refusals, 20U);
    EXPECT_GT(keys, keys_of(80));
    contents.check();
    const std::uint32_t refusals = contents.refusals;
    for (std::uint32_t key = 0; key < keys; ++key) {
      if (key % 3 != 0) contents.remove(key);
    }
    for (std::uint32_t key = keys; key < keys + keys / 3; ++key) contents.write(key, kMean);
    contents.check();
    EXPECT_EQ(contents.refusals, refusals);
    kill(kOwner);
    contents.check();
  });
}

std::string name_of(const testing::TestParamInfo<std::tuple<std::string, Replication>>& each) {
  const auto replication = static_cast<std::size_t>(std::get<1>(each.param));
  return std::get<0>(each.param) + "_" + std::string(kReplicationNames[replication]);
}

// Tombstones that name a survivor stay from its first entry on.
TEST(TailwindCleanerHost, ASurvivorIsInTheLogBeforeDigestsNameIt) {
  runtime::run_world("sim", 1, [](Env& env, const Kill&) {
    Options one;
    one.servers = 1;
    one.coordinator = one.replicas = 0;
    one.log_bytes = 2U << 20;
    one.segment_bytes = 128U << 10;
    one.keys = 100;
    Server server(env, one);
    const std::unique_ptr<Segment> made = server.log().make_survivor();
    ASSERT_NE(made, nullptr);
    EXPECT_TRUE(server.log().is_in_log(made->id()));
    EXPECT_FALSE(server.log().is_in_log(made->id() + 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, TailwindCleanerCluster,
                         testing::Combine(testing::Values(std::string("sim")),
                                          testing::Values(Replication::kRamcloud,
                                                          Replication::kTailwind)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Worlds, TailwindCleanerThreads,
                         testing::Combine(testing::Values(std::string("shm")),
                                          testing::Values(Replication::kRamcloud,
                                                          Replication::kTailwind)),
                         name_of);

}  // namespace
}  // namespace pyrdma::tailwind
