// The cleaner beside a store that changes: it must lose nothing, and bring nothing back.
#include "systems/tailwind/store/cleaner.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/rng.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "systems/tailwind/store/object_log_test.h"

namespace pyrdma::tailwind {
namespace {

constexpr std::uint32_t kCapacity = 256U << 10;  // of a segment

/// A log whose segments are at their backups as soon as they are closed.
class SimpleHost final : public CleanerHost {
 public:
  explicit SimpleHost(UnreplicatedLog& log) : log_(log) {}
  std::vector<SegmentUse> candidates() override {
    std::vector<SegmentUse> result;
    for (const auto& [number, segment] : log_.log.segments()) {
      if (segment.get() != log_.log.head())
        result.push_back({number, segment->seglets(), segment->live_bytes, segment->born, 0, 0});
    }
    return result;
  }
  const Segment& segment(std::uint64_t number) override { return *log_.log.segments().at(number); }
  bool is_in_log(std::uint64_t number) override {
    return log_.log.segments().contains(number) || survivors_.contains(number);
  }
  std::unique_ptr<Segment> make_survivor() override {
    const std::lock_guard lock(log_.mutex);
    std::unique_ptr<Segment> made = log_.log.make_survivor();
    if (made != nullptr) survivors_.insert(made->id());
    return made;
  }
  std::unique_ptr<Segment> make_compacted(std::uint64_t number) override {
    return log_.log.make_compacted(number);
  }
  Place append(Segment& survivor, const NewEntry& entry) override {
    const std::lock_guard lock(log_.mutex);
    Place place = 0;
    if (!survivor.has_room({&entry, 1}) || !survivor.append({&entry, 1}, &place)) return 0;
    if (entry.header.type != EntryType::kSegment && entry.header.type != EntryType::kDigest)
      survivor.live_bytes += taken_by(entry);
    return place;
  }
  void compacted(std::unique_ptr<Segment> segment) override {
    const std::lock_guard lock(log_.mutex);
    log_.log.adopt(std::move(segment));
    ++compactions;
  }
  void finish(std::span<const std::uint64_t> cleaned,
              std::vector<std::unique_ptr<Segment>> survivors) override {
    const std::lock_guard lock(log_.mutex);
    for (std::unique_ptr<Segment>& survivor : survivors) log_.log.adopt(std::move(survivor));
    for (const std::uint64_t number : cleaned) log_.log.free(number);
    survivors_.clear();
    ++cleanings;
  }
  int compactions = 0, cleanings = 0;

 private:
  UnreplicatedLog& log_;
  std::set<std::uint64_t> survivors_;
};

class TailwindCleaner : public testing::Test {
 protected:
  static fabric::sim::SimOptions options() {
    fabric::sim::SimOptions result;
    result.nodes = 1;
    result.profile = fabric::sim::test_profile();
    return result;
  }
  using Contents = std::map<std::string, std::pair<std::uint64_t, std::string>>;
  static std::string text(ByteView bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static Contents contents_of(ObjectManager& objects) {
    Contents result;
    objects.for_all([&](std::uint64_t, ByteView key, std::uint64_t version, ByteView value) {
      result[text(key)] = {version, text(value)};
    });
    return result;
  }
  /// What a recovery of the log finds.
  Contents recovered(const UnreplicatedLog& log) {
    UnreplicatedLog own(env, 512);
    ObjectManager heir(env, own, 1000);
    const std::vector<HashRange> all{{1, 0, ~std::uint64_t{0}}};
    heir.begin_replay(all);
    EXPECT_NE(heir.replay(log.entries()), Position());
    heir.end_replay();
    return contents_of(heir);
  }
  /// Random updates in a memory that holds a fifth of them; after each job a recovery must find
  /// what is there. Returns how often it did not.
  int run(std::uint64_t seed, Bugs bugs, SimpleHost*& used) {
    UnreplicatedLog& log =
        *logs.emplace_back(std::make_unique<UnreplicatedLog>(env, 100, kCapacity));
    ObjectManager objects(env, log, 1000);
    SimpleHost& host = *hosts.emplace_back(std::make_unique<SimpleHost>(log));
    used = &host;
    Cleaner cleaner(host, objects, bugs);
    Rng rng(seed, 0, "cleaner");
    Contents model;
    int wrong = 0;
    for (std::uint64_t turn = 1; turn <= 12'000; ++turn) {
      const std::string key = "key" + std::to_string(rng.below(rng.below(2) == 0 ? 100 : 800));
      const ByteView bytes = std::as_bytes(std::span(key));
      const UpdateId id{7, turn, turn > 10 ? turn - 10 : 0};
      if (rng.below(3) == 0) {
        const Outcome outcome = objects.remove(1, key_hash(1, bytes), bytes, id);
        EXPECT_NE(outcome.status, StoreStatus::kLogFull);
        model.erase(key);
      } else {
        const std::string value(rng.below(4000), static_cast<char>('a' + rng.below(26)));
        const Outcome outcome =
            objects.write(1, key_hash(1, bytes), bytes, std::as_bytes(std::span(value)), id);
        EXPECT_EQ(outcome.status, StoreStatus::kOk) << turn;
        if (outcome.status != StoreStatus::kOk) return wrong;
        model[key] = {outcome.version, value};
      }
      if (log.memory().free_seglets() > 40) continue;
      const std::vector<SegmentUse> candidates = host.candidates();
      const std::vector<std::uint64_t> chosen =
          choose_cleaning(candidates, log.log.head()->id(), 4 * kCapacity, kCapacity);
      const std::optional<std::uint64_t> one = choose_compaction(candidates, kCapacity);
      if (one && rng.below(2) != 0) {
        cleaner.compact(*one);
      } else {
        cleaner.clean(chosen);
      }
      EXPECT_TRUE(cleaner.run());
      EXPECT_EQ(contents_of(objects), model) << "turn " << turn;
      wrong += recovered(log) != model;
      for (std::uint64_t sequence = turn > 10 ? turn - 10 : 1; sequence <= turn; ++sequence) {
        EXPECT_FALSE(objects.results().wants(7, sequence));
      }
    }
    std::uint64_t live = 0;
    for (const auto& [number, segment] : log.log.segments()) {
      segment->for_entries([&](const Entry& entry, Place place) {
        if (entry.type() == EntryType::kTombstone || objects.is_live(entry, place))
          live += taken_by(entry);
      });
    }
    EXPECT_EQ(log.live_bytes(), live);
    return wrong;
  }
  fabric::sim::SimCluster cluster{options()};
  Env& env = cluster.env(0);
  std::vector<std::unique_ptr<UnreplicatedLog>> logs;
  std::vector<std::unique_ptr<SimpleHost>> hosts;
};

TEST_F(TailwindCleaner, LosesNothingAndBringsNothingBack) {
  int compactions = 0, cleanings = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SimpleHost* host = nullptr;
    EXPECT_EQ(run(seed, Bug::kNone, host), 0);
    compactions += host->compactions;
    cleanings += host->cleanings;
  }
  EXPECT_GT(compactions, 3);
  EXPECT_GT(cleanings, 12);
}

TEST_F(TailwindCleaner, ATombstoneThatIsCleanedEarlyIsNoticed) {
  SimpleHost* host = nullptr;
  EXPECT_GT(run(1, Bug::kTombstoneCleanedEarly, host), 0);
}

TEST_F(TailwindCleaner, CompactsWhatGivesTheMostForACopy) {
  const std::vector<SegmentUse> segments{
      {1, 4, 200'000, 1}, {2, 4, 100'000, 2}, {3, 4, 30'000, 3}, {4, 1, 10, 4}};
  EXPECT_EQ(choose_compaction(segments, kCapacity), 3U);
  EXPECT_EQ(choose_compaction(std::span(segments).first(2), kCapacity), 2U);
  EXPECT_FALSE(choose_compaction(std::span(segments).first(1), kCapacity));
  EXPECT_FALSE(choose_compaction(std::span(segments).last(1), kCapacity)) << "it has one seglet";
}

TEST_F(TailwindCleaner, CleansOldSegmentsEvenIfTheyAreFuller) {
  const std::vector<SegmentUse> segments{
      {90, 4, 60'000, 90}, {10, 4, 100'000, 10}, {95, 4, 20'000, 5}, {91, 4, 70'000, 91}};
  using Numbers = std::vector<std::uint64_t>;
  EXPECT_EQ(choose_cleaning(segments, 100, 130'000, kCapacity), (Numbers{95, 10}))
      << "the oldest first";
  EXPECT_EQ(choose_cleaning(segments, 100, 300'000, kCapacity), (Numbers{95, 10, 90, 91}));
  EXPECT_EQ(choose_cleaning(segments, 100, 20'000, kCapacity), Numbers())
      << "one survivor for one segment frees nothing";
}

TEST_F(TailwindCleaner, TakesTheJobThatFreesTheMostUnlessTheBackupsAreFull) {
  // Five segments of 4 seglets. One could do with a seglet, the others not with fewer.
  std::vector<SegmentUse> segments;
  for (std::uint64_t number = 1; number <= 5; ++number)
    segments.push_back({number, 4, 200'000, number, 100, 0});
  segments.push_back({6, 4, 50'000, 6, 100, 0});
  MemoryUse memory;
  memory.seglets = 1000;
  memory.free = 200;
  memory.spare = 40;
  memory.segments = 100;
  memory.most_segments = 200;
  EXPECT_FALSE(needs_cleaning(memory, 0.1));
  memory.free = 90;
  EXPECT_TRUE(needs_cleaning(memory, 0.1));
  const auto choose = [&] { return choose_job(segments, memory, 100, kCapacity); };
  EXPECT_EQ(choose().compaction, 6U);
  EXPECT_TRUE(choose().cleaning.empty());
  for (SegmentUse& segment : segments) segment.naming_bytes = 1'000'000;
  EXPECT_FALSE(choose().compaction) << "tombstones that name the segments take most";
  EXPECT_EQ(choose().cleaning.size(), 6U);
  for (SegmentUse& segment : segments) segment.naming_bytes = 0;
  memory.segments = 195;
  EXPECT_EQ(choose().cleaning.size(), 6U);
  memory.spare = 3;  // no survivor fits
  EXPECT_TRUE(choose().cleaning.empty());
  memory.spare = 40;
  memory.free = 200;
  EXPECT_TRUE(needs_cleaning(memory, 0.1)) << "the backups are full";
}

// Of full segments whose age says nothing, those that waste the most memory are merged.
TEST_F(TailwindCleaner, MergesSegmentsThatWasteMemory) {
  const std::vector<SegmentUse> segments{{1, 4, 4 * 65'536, 1, 0, 0},
                                         {2, 2, 66'000, 2, 0, 0},
                                         {3, 2, 67'000, 3, 0, 0},
                                         {4, 1, 1'000, 4, 0, 0}};
  using Numbers = std::vector<std::uint64_t>;
  EXPECT_EQ(choose_merging(segments, 140'000, kCapacity), (Numbers{2, 3, 4}));
  EXPECT_EQ(choose_merging(segments, 70'000, kCapacity), (Numbers{2, 4}));
}

// A job that has stopped for lack of memory goes on.
TEST_F(TailwindCleaner, AFullMemoryDelaysAJob) {
  UnreplicatedLog log(env, 11, kCapacity);
  ObjectManager objects(env, log, 1000);
  SimpleHost host(log);
  const std::string value(10'000, 'v');
  const auto write = [&](std::uint64_t number) {
    const std::string key = "key" + std::to_string(number);
    const ByteView bytes = std::as_bytes(std::span(key));
    return objects.write(1, key_hash(1, bytes), bytes, std::as_bytes(std::span(value)), {}).status;
  };
  std::uint64_t written = 0;
  while (write(written % 30) == StoreStatus::kOk) ++written;
  EXPECT_GT(written, 50U);
  const Contents before = contents_of(objects);
  Cleaner cleaner(host, objects);
  const std::vector<std::uint64_t> all{1, 2};
  cleaner.clean(all);
  EXPECT_FALSE(cleaner.run());
  EXPECT_FALSE(cleaner.is_idle());
  EXPECT_EQ(contents_of(objects), before);
  const std::vector<HashRange> some{{1, 0, ~std::uint64_t{0}}};
  objects.purge(some);
  EXPECT_TRUE(cleaner.run());
  EXPECT_TRUE(cleaner.is_idle());
  EXPECT_EQ(write(1), StoreStatus::kOk);
}

}  // namespace
}  // namespace pyrdma::tailwind
