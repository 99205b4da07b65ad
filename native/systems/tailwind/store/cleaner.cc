#include "systems/tailwind/store/cleaner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace pyrdma::tailwind {

namespace {

constexpr double kFullDisk = 0.95;
/// Heads that a combined cleaning makes, with little in them.
constexpr std::uint32_t kHeads = 2;
/// Live bytes that it moves at most, in segments (RAMCloud's).
constexpr std::uint64_t kMostSegments = 10;

std::uint32_t seglets_for(std::uint64_t bytes, std::uint32_t seglet) {
  return static_cast<std::uint32_t>((bytes + seglet - 1) / seglet);
}

/// What the cleaning of segments is expected to lead to.
struct Gain {
  std::int64_t seglets = 0, segments = 0;  // fewer than before
  std::uint32_t taken = 0;                 // seglets, until others are freed
  std::uint64_t copied = 1;                // bytes
  double rate() const { return static_cast<double>(seglets) / static_cast<double>(copied); }
};

std::uint32_t compacted_seglets(const SegmentUse& segment, std::uint32_t seglet) {
  return seglets_for(segment.live_bytes + segment.first_bytes, seglet);
}

/// Seglets per byte that is copied.
double compaction_gain(const SegmentUse& segment, std::uint32_t seglet) {
  const std::uint32_t after = compacted_seglets(segment, seglet);
  if (after >= segment.seglets) return 0;
  return static_cast<double>(segment.seglets - after) /
         static_cast<double>(std::max<std::uint64_t>(segment.live_bytes, 1));
}

Gain gain_of(std::span<const SegmentUse> segments, std::span<const std::uint64_t> chosen,
             std::uint32_t capacity, std::uint32_t seglet) {
  std::uint64_t live = 0, naming = 0;
  Gain gain;
  for (const SegmentUse& segment : segments) {
    if (std::ranges::find(chosen, segment.number) == chosen.end()) continue;
    live += segment.live_bytes;
    naming += segment.naming_bytes;
    gain.seglets += segment.seglets;
    ++gain.segments;
  }
  const auto survivors = static_cast<std::uint32_t>((live + capacity - 1) / capacity);
  gain.copied = std::max<std::uint64_t>(live, 1);
  gain.taken = seglets_for(live, seglet) + 1 + kHeads;  // 1: survivors have first bytes
  gain.seglets += static_cast<std::int64_t>(naming / seglet) - gain.taken;
  gain.segments -= survivors + kHeads;
  return gain;
}

/// Those with the highest worth, the oldest first.
template <class Worth>
std::vector<std::uint64_t> choose_most_worth(std::span<const SegmentUse> segments,
                                             std::uint64_t most_live, std::uint32_t capacity,
                                             Worth&& worth) {
  std::vector<std::pair<double, const SegmentUse*>> ranked;
  for (const SegmentUse& segment : segments) ranked.emplace_back(worth(segment), &segment);
  std::ranges::stable_sort(ranked, std::greater<>(), [](const auto& each) { return each.first; });
  std::vector<const SegmentUse*> chosen;
  std::uint64_t live = 0;
  for (const auto& [value, segment] : ranked) {
    if (live + segment->live_bytes > most_live) continue;
    chosen.push_back(segment);
    live += segment->live_bytes;
  }
  if ((live + capacity - 1) / capacity >= chosen.size()) return {};
  std::ranges::stable_sort(chosen, std::less<>(), &SegmentUse::born);
  std::vector<std::uint64_t> numbers;
  for (const SegmentUse* segment : chosen) numbers.push_back(segment->number);
  return numbers;
}

}  // namespace

std::optional<std::uint64_t> choose_compaction(std::span<const SegmentUse> segments,
                                               std::uint32_t capacity, std::uint32_t seglet) {
  std::optional<std::uint64_t> best;
  double best_gain = 0;
  for (const SegmentUse& segment : segments) {
    const double gain = compaction_gain(segment, seglet);
    if (segment.live_bytes + segment.first_bytes <= capacity && gain > best_gain) {
      best_gain = gain;
      best = segment.number;
    }
  }
  return best;
}

std::vector<std::uint64_t> choose_cleaning(std::span<const SegmentUse> segments,
                                           std::uint64_t newest, std::uint64_t most_live,
                                           std::uint32_t capacity) {
  return choose_most_worth(segments, most_live, capacity, [&](const SegmentUse& segment) {
    // live_bytes counts a checksum for each entry of a batch, so it may be more than there is.
    const double use =
        std::min(1.0, static_cast<double>(segment.live_bytes) / static_cast<double>(capacity));
    const double naming = static_cast<double>(segment.naming_bytes) / static_cast<double>(capacity);
    const auto age = static_cast<double>(newest - std::min(segment.born, newest));
    return (1 - use + naming) * age / (1 + use);
  });
}

std::vector<std::uint64_t> choose_merging(std::span<const SegmentUse> segments,
                                          std::uint64_t most_live, std::uint32_t capacity,
                                          std::uint32_t seglet) {
  return choose_most_worth(segments, most_live, capacity, [=](const SegmentUse& segment) {
    const double memory = static_cast<double>(segment.seglets) * seglet;
    const auto live = static_cast<double>(segment.live_bytes);
    return (memory - live + static_cast<double>(segment.naming_bytes)) / (live + 1);
  });
}

bool needs_cleaning(const MemoryUse& memory, double clean_below) {
  return memory.wants_room || memory.free < clean_below * memory.seglets ||
         memory.segments > kFullDisk * memory.most_segments;
}

CleaningJob choose_job(std::span<const SegmentUse> segments, const MemoryUse& memory,
                       std::uint64_t newest, std::uint32_t capacity) {
  const bool is_disk_full = memory.segments > kFullDisk * memory.most_segments;
  const std::uint64_t most =
      std::min(kMostSegments * capacity, std::uint64_t{memory.spare} * memory.seglet);
  CleaningJob job;
  Gain best;
  const auto consider = [&](auto&& choose) {
    for (std::uint64_t live = most; live > 0; live -= (live + 15) / 16) {
      std::vector<std::uint64_t> chosen = choose(live);
      const Gain gain = gain_of(segments, chosen, capacity, memory.seglet);
      if (gain.taken > memory.spare) continue;
      const bool is_of_use = gain.seglets > 0 || (is_disk_full && gain.segments > 0);
      if (is_of_use && (job.cleaning.empty() || gain.rate() > best.rate())) {
        job.cleaning = std::move(chosen);
        best = gain;
      }
      return;
    }
  };
  consider([&](std::uint64_t live) { return choose_cleaning(segments, newest, live, capacity); });
  if (job.cleaning.empty())
    consider([&](std::uint64_t live) {
      return choose_merging(segments, live, capacity, memory.seglet);
    });
  if (is_disk_full && !job.cleaning.empty()) return job;
  std::vector<SegmentUse> fitting;
  for (const SegmentUse& segment : segments)
    if (compacted_seglets(segment, memory.seglet) <= memory.spare) fitting.push_back(segment);
  job.compaction = choose_compaction(fitting, capacity, memory.seglet);
  if (!job.compaction || job.cleaning.empty()) return job;
  const auto compacted = std::ranges::find(segments, *job.compaction, &SegmentUse::number);
  if (compaction_gain(*compacted, memory.seglet) < best.rate()) return {std::nullopt, job.cleaning};
  return {job.compaction, {}};
}

void Cleaner::compact(std::uint64_t number) {
  PYRDMA_ASSERT(is_idle());
  sources_ = {number};
  is_compaction_ = true;
}

void Cleaner::clean(std::span<const std::uint64_t> numbers) {
  PYRDMA_ASSERT(is_idle());
  sources_.assign(numbers.begin(), numbers.end());
  is_compaction_ = false;
}

bool Cleaner::run() {
  if (is_idle()) return true;
  if (is_compaction_ && survivors_.empty()) {
    std::unique_ptr<Segment> made = host_.make_compacted(sources_.front());
    if (made == nullptr) return false;
    made->born = host_.segment(sources_.front()).born;
    survivors_.push_back(std::move(made));
  }
  for (; source_ < sources_.size(); ++source_) {
    if (!is_listed_) list(sources_[source_]);
    for (; item_ < items_.size(); ++item_) {
      if (!move(items_[item_])) return false;
    }
    is_listed_ = false;
  }
  // Whoever has found a place before may still read or drop it.
  objects_.wait_for_updates();
  std::vector<std::unique_ptr<Segment>> survivors = std::exchange(survivors_, {});
  const std::vector<std::uint64_t> cleaned = std::exchange(sources_, {});
  source_ = 0;
  if (is_compaction_) {
    host_.compacted(std::move(survivors.front()));
  } else {
    host_.finish(cleaned, std::move(survivors));
  }
  return true;
}

void Cleaner::list(std::uint64_t number) {
  const Segment& segment = host_.segment(number);
  born_ = segment.born;
  items_.clear();
  item_ = 0;
  segment.for_entries([&](const Entry&, Place place) { items_.push_back(place); });
  is_listed_ = true;
}

bool Cleaner::move(Place place) {
  const WholeEntry whole = objects_.memory().entry(place);
  const Entry& entry = *whole;
  switch (entry.type()) {
    case EntryType::kSegment:
    case EntryType::kDigest:
      // A survivor has its own; who reads the compacted segment looks for those that it began with.
      return !is_compaction_ || copy(entry) != 0;
    case EntryType::kTombstone: {
      // A recovery may find the object as long as its segment is in the log.
      std::uint64_t segment = 0;
      PYRDMA_ASSERT(entry.value().size() == sizeof segment);
      std::memcpy(&segment, entry.value().data(), sizeof segment);
      const bool is_live = bugs_.keeps_tombstones() && host_.is_in_log(segment);
      return !is_live || copy(entry) != 0;
    }
    default:
      return objects_.relocate(entry, place, [&] { return copy(entry); }) !=
             ObjectManager::Move::kNoRoom;
  }
}

Place Cleaner::copy(const Entry& entry) {
  NewEntry again{{}, entry.key(), entry.value()};
  again.header.type = entry.type();
  again.header.table = entry.table();
  again.header.version = entry.version();
  if (!survivors_.empty()) {
    Segment& last = *survivors_.back();
    const Place place = host_.append(last, again);
    const bool is_memory_full = place == 0 && last.has_room({&again, 1});
    if (place != 0 || is_compaction_ || is_memory_full) return place;
  }
  std::unique_ptr<Segment> made = host_.make_survivor();
  if (made == nullptr) return 0;
  made->born = born_;
  survivors_.push_back(std::move(made));
  return host_.append(*survivors_.back(), again);
}

}  // namespace pyrdma::tailwind
