// The part of a primary's log that the cleaner needs.
#include <algorithm>
#include <utility>

#include "systems/tailwind/replication/primary_log.h"

namespace pyrdma::tailwind {

// ---- any thread ----

Position PrimaryLog::begin_head() {
  const std::lock_guard<Mutex> lock(mutex_);
  const bool is_fresh = log_.head()->entries() == 2 && log_.head_is_newest();
  if (options_.cleaner && !is_fresh) {
    ++drops_;  // the last head can be cleaned
    if (!roll(kept_for_cleaner_)) {
      wants_room_ = true;
      return {};
    }
    step();
  }
  return end_of_log();
}

// The cleaner may have freed memory since the append failed, and then have found nothing more.
bool PrimaryLog::may_make_room(std::size_t bytes) {
  const std::lock_guard<Mutex> lock(mutex_);
  const bool may_be_room = drops_ != nothing_to_clean_at_ || failed_at_ != nothing_to_clean_at_;
  return options_.cleaner && may_be_room &&
         bytes + log_.head()->first_bytes + 1024 <= options_.segment_bytes;  // 1024: headers
}

CleanerCounters PrimaryLog::cleaner_counters() {
  const std::lock_guard<Mutex> lock(mutex_);
  CleanerCounters counters = cleaner_counters_;
  counters.log_bytes = std::uint64_t{memory_.seglets()} * memory_.seglet();
  counters.used_bytes =
      std::uint64_t{memory_.seglets() - memory_.free_seglets()} * memory_.seglet();
  counters.segments = log_.segments().size();
  for (const auto& [number, segment] : log_.segments()) {
    const auto newer = compacted_.find(number);
    counters.live_bytes +=
        (newer == compacted_.end() ? segment : newer->second.segment)->live_bytes;
  }
  return counters;
}

// A cleaner needs a tenth of a log to go on, and what is full of a dead server's objects would
// refuse the updates of those that live.
std::uint64_t PrimaryLog::room() {
  const CleanerCounters now = cleaner_counters();
  const std::uint64_t most = now.log_bytes / 100 * (options_.cleaner ? 85 : 95);
  const std::uint64_t taken = options_.cleaner ? now.live_bytes : now.used_bytes;
  return most - std::min(most, taken);
}

bool PrimaryLog::is_full_for_recovery() {
  const std::lock_guard<Mutex> lock(mutex_);
  return memory_.free_seglets() < memory_.seglets() / 20 + kept_for_cleaner_;
}

// ---- the cleaner's thread ----

std::vector<SegmentUse> PrimaryLog::candidates() {
  const std::lock_guard<Mutex> lock(mutex_);
  std::vector<SegmentUse> result;
  if (!has_begun_) return result;  // the chain needs all segments until then
  for (const auto& [number, segment] : log_.segments()) {
    if (segment.get() == log_.head() || compacted_.contains(number) || !order_.is_closed(number))
      continue;
    const auto naming = naming_bytes_.find(number);
    result.push_back({number, segment->seglets(), segment->live_bytes, segment->born,
                      order_.first_bytes(number),
                      naming == naming_bytes_.end() ? 0 : naming->second});
  }
  return result;
}

const Segment& PrimaryLog::segment(std::uint64_t number) {
  const std::lock_guard<Mutex> lock(mutex_);
  return *log_.segments().at(number);
}

bool PrimaryLog::is_in_log(std::uint64_t number) {
  const std::lock_guard<Mutex> lock(mutex_);
  return log_.segments().contains(number) || beside_.contains(number) || made_.contains(number);
}

std::unique_ptr<Segment> PrimaryLog::make_survivor() {
  const std::lock_guard<Mutex> lock(mutex_);
  std::unique_ptr<Segment> made = log_.make_survivor();
  if (made != nullptr) made_.insert(made->id());
  return made;
}

std::unique_ptr<Segment> PrimaryLog::make_compacted(std::uint64_t number) {
  return log_.make_compacted(number);
}

// The copy needs no lock: nobody knows the place yet.
Place PrimaryLog::append(Segment& survivor, const NewEntry& entry) {
  env_.catch_up();
  env_.charge_copy(entry.size());
  const std::span<const NewEntry> entries(&entry, 1);
  if (!survivor.has_room(entries)) return 0;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (!survivor.prepare(entries)) return 0;
    const EntryType type = entry.header.type;
    if (type != EntryType::kSegment && type != EntryType::kDigest)
      survivor.live_bytes += taken_by(entry);
    count_tombstones(survivor, entries);
  }
  Place place = 0;
  survivor.append(entries, &place);
  return place;
}

void PrimaryLog::compacted(std::unique_ptr<Segment> segment) {
  const std::lock_guard<Mutex> lock(mutex_);
  const std::uint64_t number = segment->id();
  compacted_[number] = {std::move(segment), end_of_log()};
  ++cleaner_counters_.compactions;
  env_.reached("tailwind/compacted");
  step();
}

// What the cleaner leaves out is of no use because the store has replaced it. A recovery must find
// whatever replaced it, or find it still. So all that was in the log by the end of the cleaner's
// work must be committed before a recovery may use what the cleaner has made: replicas of the
// compacted bytes, which it prefers, or a head whose digest lacks the cleaned segments. (RAMCloud's
// cleaner takes a version for dead as soon as the next one is in the hash table. A backup that dies
// with the primary then costs a version that was acknowledged.)
bool PrimaryLog::may_replace(Position end_of_work) const {
  return is_committed(end_of_work) || !bugs_.commits_before_cleaning();
}

// Replicas that are made anew, after the loss of a backup, get all their bytes from one of the two.
void PrimaryLog::replace_compacted() {
  for (auto at = compacted_.begin(); at != compacted_.end();) {
    const std::uint64_t number = at->first;
    if (!order_.is_at_rest(number) || !may_replace(at->second.end_of_work)) {
      ++at;
      continue;
    }
    const Segment& replaced = *log_.segments().at(number);
    const std::uint64_t before = replaced.seglets();
    const std::uint64_t after = at->second.segment->seglets();
    if (after < before) cleaner_counters_.compacted_bytes += (before - after) * memory_.seglet();
    order_.compact(number, at->second.segment->end());
    uncount_tombstones(replaced);
    log_.adopt(std::move(at->second.segment));
    at = compacted_.erase(at);
    ++drops_;  // there is room for an append that has failed
    wants_room_ = false;
  }
}

void PrimaryLog::finish(std::span<const std::uint64_t> cleaned,
                        std::vector<std::unique_ptr<Segment>> survivors) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    cleaning_ = Cleaning();
    cleaning_->end_of_work = end_of_log();
    cleaning_->cleaned.assign(cleaned.begin(), cleaned.end());
    for (std::unique_ptr<Segment>& survivor : survivors) {
      const std::uint64_t number = survivor->id();
      cleaning_->survivors.push_back(number);
      ++cleaner_counters_.survivors;
      cleaner_counters_.survivor_bytes += survivor->end();
      made_.erase(number);
      beside_[number] = std::move(survivor);
    }
    step();
  }
  while (!is_deposed() && !ends_cleaning_.load(std::memory_order_acquire)) {
    {
      const std::lock_guard<Mutex> lock(mutex_);
      if (!cleaning_) return;
      if (!poll_completions()) step();
    }
    env_.notify(completions_->watch());
    env_.sleep_until(env_.now() + options_.retry_pause);
  }
}

void PrimaryLog::go_on_cleaning() {
  Cleaning& job = *cleaning_;
  if (!job.has_begun) {
    const bool is_head_newer =
        job.survivors.empty() || log_.head()->id() > job.survivors.back() || roll(0);
    if (!is_head_newer) return;  // memory for it may come
    job.has_begun = true;
    for (const std::uint64_t number : job.survivors) {
      const Segment& survivor = *beside_.at(number);
      order_.begin_side(number, survivor.first_bytes, survivor.end());
    }
    order_.step();
  }
  if (!job.is_listed) {
    if (!may_replace(job.end_of_work) ||
        !std::ranges::all_of(job.survivors, [&](auto each) { return order_.is_closed(each); }))
      return;
    for (const std::uint64_t number : job.survivors) {
      log_.adopt(std::move(beside_.at(number)));
      beside_.erase(number);
    }
    for (const std::uint64_t number : job.cleaned) beside_[number] = log_.remove(number);
    job.is_listed = true;
  }
  if (!job.has_head) {
    if (!roll(0)) return;
    job.has_head = true;
    if (on_head_without_cleaned) on_head_without_cleaned();
    for (const std::uint64_t number : job.cleaned) order_.forget(number, log_.head()->id());
    order_.step();
  }
  if (std::ranges::any_of(job.cleaned, [&](auto each) { return beside_.contains(each); })) return;
  ++cleaner_counters_.cleanings;
  env_.reached("tailwind/cleaned");
  wants_room_ = false;
  cleaning_.reset();
}

// What is under way to a backup may still be read from the memory.
void PrimaryLog::free(std::uint64_t number) {
  const auto first = held_.lower_bound({number, 0}), last = held_.lower_bound({number + 1, 0});
  for (auto at = first; at != last; ++at) {
    --replicas_at_[at->second.backup];
    free_replica(at->second.backup, ReplicaName{number, at->second.attempt});
  }
  held_.erase(first, last);
  std::unique_ptr<Segment> freed = std::move(beside_.at(number));
  beside_.erase(number);
  ++cleaner_counters_.segments_cleaned;
  cleaner_counters_.bytes_cleaned += std::uint64_t{freed->seglets()} * memory_.seglet();
  uncount_tombstones(*freed);
  // Tombstones that name it are of no use any more.
  naming_bytes_.erase(number);
  const auto forget_tombstones = [&](Segment& segment) {
    const auto found = segment.tombstones.find(number);
    if (found == segment.tombstones.end()) return;
    segment.live_bytes -= found->second;
    segment.tombstones.erase(found);
  };
  for (const auto& [other, segment] : log_.segments()) forget_tombstones(*segment);
  for (const auto& [other, compacted] : compacted_) forget_tombstones(*compacted.segment);
  ++drops_;
  unsent_[number] = std::move(freed);
  free_unsent();
}

void PrimaryLog::free_unsent() {
  std::erase_if(unsent_, [&](const auto& entry) {
    return std::ranges::none_of(links_, [&](const auto& each) {
      return std::ranges::any_of(each.second.in_flight, [&](const InFlight& write) {
        return write.replica.segment == entry.first;
      });
    });
  });
}

void PrimaryLog::free_replica(ServerId backup, ReplicaName name) {
  ++counters_.control_rpcs;
  transport_.call(backup, Opcode::kFree, encoded_bytes(name), deadline(),
                  [=, this](CallEnd end, ByteView) {
                    if (end == CallEnd::kAnswered || is_deposed()) return;
                    transport_.defer(env_.now() + options_.retry_pause, [=, this] {
                      const std::lock_guard<Mutex> lock(mutex_);
                      if (std::ranges::binary_search(up_, backup)) free_replica(backup, name);
                    });
                  });
}

MemoryUse PrimaryLog::memory_use() {
  const std::lock_guard<Mutex> lock(mutex_);
  const std::uint32_t kept = kept_for_cleaner_ + kept_for_removals_;
  MemoryUse result;
  result.seglet = memory_.seglet();
  result.seglets = memory_.seglets() - kept;
  result.free = memory_.free_seglets() - std::min(memory_.free_seglets(), kept);
  result.spare = std::min(memory_.free_seglets(), kept_for_cleaner_);
  result.segments = static_cast<std::uint32_t>(log_.segments().size());
  result.most_segments =
      static_cast<std::uint32_t>(kDiskExpansion * options_.log_bytes / options_.segment_bytes);
  result.wants_room = wants_room_;
  result.drops = drops_;
  return result;
}

bool PrimaryLog::give_up_head() {
  const std::lock_guard<Mutex> lock(mutex_);
  const Segment& head = *log_.head();
  if (head.end() < head.live_bytes + head.first_bytes + memory_.seglet() || !roll(0)) return false;
  step();
  return true;
}

void PrimaryLog::note_nothing_to_clean(std::uint64_t drops) {
  const std::lock_guard<Mutex> lock(mutex_);
  const bool is_waiting =
      !has_begun_ || !compacted_.empty() ||
      std::ranges::any_of(log_.segments(), [&](const auto& each) {
        return each.second.get() != log_.head() && !order_.is_closed(each.first);
      });
  if (!is_waiting) nothing_to_clean_at_ = drops;
  wants_room_ = false;
}

bool PrimaryLog::has_nothing_to_clean() {
  const std::lock_guard<Mutex> lock(mutex_);
  return drops_ == nothing_to_clean_at_;
}

const Segment& PrimaryLog::held_segment(std::uint64_t number) const {
  const auto found = log_.segments().find(number);
  return *(found != log_.segments().end() ? found->second : beside_.at(number));
}

}  // namespace pyrdma::tailwind
