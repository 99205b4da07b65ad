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

std::uint32_t seglets_for(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + LogMemory::kSeglet - 1) / LogMemory::kSeglet);
}

/// Memory that `bytes` of the segment take elsewhere, if the entries leave as much unused at the
/// ends of seglets as they do now.
std::uint64_t memory_of(const SegmentUse& segment, std::uint64_t bytes) {
  const std::uint64_t memory = std::uint64_t{segment.seglets} * LogMemory::kSeglet;
  if (segment.end == 0) return bytes;
  return std::min(memory, bytes * memory / segment.end);
}

/// What the cleaning of segments is expected to lead to.
struct Gain {
  std::int64_t seglets = 0, segments = 0;  // fewer than before
  std::uint32_t taken = 0;                 // seglets, until others are freed
};

Gain gain_of(std::span<const SegmentUse> segments, std::span<const std::uint64_t> chosen,
             std::uint32_t capacity) {
  std::uint64_t live = 0, memory = 0;
  Gain gain;
  for (const SegmentUse& segment : segments) {
    if (std::ranges::find(chosen, segment.number) == chosen.end()) continue;
    live += segment.live_bytes;
    memory += memory_of(segment, segment.live_bytes);
    gain.seglets += segment.seglets;
    ++gain.segments;
  }
  const auto survivors = static_cast<std::uint32_t>((live + capacity - 1) / capacity);
  gain.taken = seglets_for(memory) + 1 + kHeads;  // 1: entries may leave more unused than before
  gain.seglets -= gain.taken;
  gain.segments -= survivors + kHeads;
  return gain;
}

}  // namespace

std::optional<std::uint64_t> choose_compaction(std::span<const SegmentUse> segments,
                                               std::uint32_t capacity) {
  std::optional<std::uint64_t> best;
  double best_gain = 0;
  for (const SegmentUse& segment : segments) {
    const std::uint64_t bytes = segment.live_bytes + segment.first_bytes;
    const std::uint32_t after = seglets_for(memory_of(segment, bytes));
    if (bytes > capacity || after >= segment.seglets) continue;
    const double gain = static_cast<double>(segment.seglets - after) /
                        static_cast<double>(std::max<std::uint64_t>(segment.live_bytes, 1));
    if (gain > best_gain) {
      best_gain = gain;
      best = segment.number;
    }
  }
  return best;
}

std::vector<std::uint64_t> choose_cleaning(std::span<const SegmentUse> segments,
                                           std::uint64_t newest, std::uint64_t most_live,
                                           std::uint32_t capacity) {
  struct Ranked {
    double worth;
    const SegmentUse* segment;
  };
  std::vector<Ranked> ranked;
  for (const SegmentUse& segment : segments) {
    // live_bytes counts a checksum for each entry of a batch, so it may be more than there is.
    const double use =
        std::min(1.0, static_cast<double>(segment.live_bytes) / static_cast<double>(capacity));
    const auto age = static_cast<double>(newest - std::min(segment.born, newest));
    ranked.push_back({(1 - use) * age / (1 + use), &segment});
  }
  std::ranges::stable_sort(ranked, std::greater<>(), &Ranked::worth);
  std::vector<const SegmentUse*> chosen;
  std::uint64_t live = 0;
  for (const Ranked& one : ranked) {
    if (live + one.segment->live_bytes > most_live) continue;
    chosen.push_back(one.segment);
    live += one.segment->live_bytes;
  }
  if ((live + capacity - 1) / capacity >= chosen.size()) return {};
  std::ranges::stable_sort(chosen, std::less<>(), &SegmentUse::born);
  std::vector<std::uint64_t> numbers;
  for (const SegmentUse* segment : chosen) numbers.push_back(segment->number);
  return numbers;
}

bool needs_cleaning(const MemoryUse& memory, double clean_below) {
  return memory.wants_room || memory.free < clean_below * memory.seglets ||
         memory.segments > kFullDisk * memory.most_segments;
}

CleaningJob choose_job(std::span<const SegmentUse> segments, const MemoryUse& memory,
                       double clean_below, std::uint64_t newest, std::uint32_t capacity) {
  const bool is_disk_full = memory.segments > kFullDisk * memory.most_segments;
  const bool is_late = memory.free < clean_below / 5 * memory.seglets;
  const auto compaction = [&]() -> std::optional<std::uint64_t> {
    // It takes at most a seglet more than the segment has.
    std::vector<SegmentUse> fitting;
    for (const SegmentUse& segment : segments)
      if (segment.seglets < memory.spare) fitting.push_back(segment);
    return choose_compaction(fitting, capacity);
  };
  const auto cleaning = [&](std::span<const SegmentUse> from) {
    std::uint64_t most = kMostSegments * capacity;
    most = std::min(most, std::uint64_t{memory.spare} * LogMemory::kSeglet);
    while (most > 0) {
      std::vector<std::uint64_t> chosen = choose_cleaning(from, newest, most, capacity);
      const Gain gain = gain_of(from, chosen, capacity);
      if (gain.taken > memory.spare) {
        most -= (most + 15) / 16;
        continue;
      }
      if (gain.seglets > 0 || (is_disk_full && gain.segments > 0)) return chosen;
      break;
    }
    return std::vector<std::uint64_t>();
  };
  CleaningJob job;
  const bool cleans_first = is_disk_full || is_late;
  if (!cleans_first && (job.compaction = compaction())) return job;
  job.cleaning = cleaning(segments);
  if (job.cleaning.empty()) {
    // Those with the least in use free memory even where older ones do not.
    std::vector<SegmentUse> ageless(segments.begin(), segments.end());
    for (SegmentUse& segment : ageless) segment.born = 0;
    job.cleaning = cleaning(ageless);
  }
  if (job.cleaning.empty() && cleans_first) job.compaction = compaction();
  return job;
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
  segment.for_entries([&](const Entry& entry, Place place) { items_.push_back({entry, place}); });
  is_listed_ = true;
}

bool Cleaner::move(const Item& item) {
  switch (item.entry.type()) {
    case EntryType::kSegment:
    case EntryType::kDigest:
      // A survivor has its own; who reads the compacted segment looks for those that it began with.
      return !is_compaction_ || copy(item.entry) != 0;
    case EntryType::kTombstone: {
      // A recovery may find the object as long as its segment is in the log.
      std::uint64_t segment = 0;
      PYRDMA_ASSERT(item.entry.value().size() == sizeof segment);
      std::memcpy(&segment, item.entry.value().data(), sizeof segment);
      const bool is_live = bugs_.keeps_tombstones() && host_.is_in_log(segment);
      return !is_live || copy(item.entry) != 0;
    }
    default:
      return objects_.relocate(item.entry, item.place, [&] { return copy(item.entry); }) !=
             ObjectManager::Move::kNoRoom;
  }
}

Place Cleaner::copy(const Entry& entry) {
  NewEntry again{{}, entry.key(), entry.value()};
  again.header.type = entry.type();
  again.header.table = entry.table();
  again.header.version = entry.version();
  if (!survivors_.empty()) {
    const Place place = host_.append(*survivors_.back(), again);
    if (place != 0 || is_compaction_) return place;
  }
  std::unique_ptr<Segment> made = host_.make_survivor();
  if (made == nullptr) return 0;
  made->born = born_;
  survivors_.push_back(std::move(made));
  return host_.append(*survivors_.back(), again);
}

}  // namespace pyrdma::tailwind
