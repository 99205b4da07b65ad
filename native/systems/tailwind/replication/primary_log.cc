#include "systems/tailwind/replication/primary_log.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "fabric/overrun.h"
#include "systems/tailwind/recovery/find_log.h"
#include "systems/tailwind/replication/placement.h"
#include "systems/tailwind/replication/requests.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

PrimaryLog::PrimaryLog(Transport& transport, const Options& options, Bugs bugs)
    : env_(transport.env()),
      transport_(transport),
      options_(options),
      bugs_(bugs),
      self_(transport.self()),
      coordinator_{options.coordinator, Transport::kNewest},
      region_(env_.device().allocate(transport.domain(), options.log_bytes)),
      memory_({region_->data(), region_->size()}, LogMemory::seglet_for(options.segment_bytes)),
      max_sges_(std::min<std::uint32_t>(env_.device().capabilities().max_sges, 4)),
      mutex_(env_),
      rng_(env_.rng("tailwind/placement/" + std::to_string(self_.life))),
      awaits_group_until_(env_.now() + 10 * options.call_timeout),
      log_(memory_, self_.number(), options.segment_bytes, options.first_segment),
      order_(*this, options.replicas, bugs) {
  const std::uint32_t most = env_.device().capabilities().max_completions;
  completions_ = env_.device().create_completion_queue(
      std::min<std::uint32_t>(most, kSendEntries * std::max<std::uint32_t>(options.servers, 2)));
  if (options.cleaner) {
    // A pass of the cleaner needs room for survivors of more than one segment.
    const std::uint32_t all = memory_.seglets();
    const std::uint32_t of_segment = options.segment_bytes / memory_.seglet();
    kept_for_cleaner_ = std::min(all / 8, std::max(all / 32, of_segment + of_segment / 4 + 8));
    kept_for_removals_ = std::min(kept_for_cleaner_, std::max(all / 128, 1U));
  }
  const std::lock_guard<Mutex> lock(mutex_);
  if (!roll(0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "log_bytes is " + std::to_string(options.log_bytes) +
                    ", which has no room for the first entries of a segment; give more");
  }
}

PrimaryLog::~PrimaryLog() = default;

Time PrimaryLog::deadline() const { return env_.now() + options_.call_timeout; }

ReplicationCounters PrimaryLog::counters() {
  const std::lock_guard<Mutex> lock(mutex_);
  return counters_;
}

std::uint64_t PrimaryLog::used_bytes() {
  const std::lock_guard<Mutex> lock(mutex_);
  return std::uint64_t{memory_.seglets() - memory_.free_seglets()} * memory_.seglet();
}

std::size_t PrimaryLog::replicas() {
  const std::lock_guard<Mutex> lock(mutex_);
  return held_.size();
}

// ---- the log ----

// Data for the new head wait in memory until the last one is closed.
bool PrimaryLog::roll(std::uint32_t keeps_free) {
  Segment* next = log_.prepare(keeps_free);
  if (next == nullptr) return false;
  const Segment* last = log_.head();
  order_.begin(next->id(), next->end());
  chain_.push_back(next->id());
  head_.store(next->id(), std::memory_order_release);
  log_.advance();
  if (last != nullptr) order_.complete(last->id());
  ++counters_.rolls;
  return true;
}

Position PrimaryLog::append(std::span<const NewEntry> entries, Place* places,
                            std::span<const Place> dropped) {
  const Scope cost(env_, scope::append);
  const std::lock_guard<Mutex> lock(mutex_);
  if (!entries.empty() && !append_or_roll(entries, places, dropped)) {
    failed_at_ = drops_;
    wants_room_ = true;
    return {};
  }
  for (const Place place : dropped) log_.drop(place);
  drops_ += dropped.size();
  ++counters_.appends;
  const Segment& head = *log_.head();
  order_.append(head.id(), head.end());
  step();
  return {head.id(), head.end()};
}

void PrimaryLog::hold() {
  const std::lock_guard<Mutex> lock(mutex_);
  is_held_ = true;
}

void PrimaryLog::release(bool is_local) {
  const std::lock_guard<Mutex> lock(mutex_);
  is_held_ = false;
  for (const std::uint64_t segment : chain_)
    if (is_local && segment != chain_.back() && order_.is_at_rest(segment)) order_.skip(segment);
  step();
}

bool PrimaryLog::append_or_roll(std::span<const NewEntry> entries, Place* places,
                                std::span<const Place> dropped) {
  Segment& head = *log_.head();
  const bool removes = entries.front().header.type == EntryType::kTombstone;
  const std::uint32_t keeps_free = kept_for_cleaner_ + (removes ? 0 : kept_for_removals_);
  head.keeps_free = keeps_free;
  if (append_to_head(entries, places, dropped)) return true;
  const bool is_new = head.entries() == 2;  // another one would have no more room
  const bool is_memory_full = head.has_room(all_entries_.empty() ? entries : all_entries_);
  if (is_memory_full || is_new || !roll(keeps_free)) return false;
  return append_to_head(entries, places, dropped);
}

// A tombstone of an object in the head would go with the object.
bool PrimaryLog::append_to_head(std::span<const NewEntry> entries, Place* places,
                                std::span<const Place> dropped) {
  Segment& head = *log_.head();
  all_entries_.clear();
  if (kept_for_cleaner_ != 0 && !dropped.empty()) {
    olds_.clear();
    named_.clear();
    named_.reserve(dropped.size());
    for (const Place place : dropped) {
      const Entry& old = *olds_.emplace_back(memory_.header_and_key(place));
      const Segment* holder = memory_.owner(place);
      if (old.type() != EntryType::kObject || holder == &head) continue;
      const bool has_one = std::ranges::any_of(entries, [&](const NewEntry& entry) {
        return entry.header.type == EntryType::kTombstone &&
               entry.header.version == old.version() && entry.header.table == old.table() &&
               std::ranges::equal(entry.key, old.key());
      });
      if (has_one) continue;
      if (all_entries_.empty()) all_entries_.assign(entries.begin(), entries.end());
      named_.push_back(holder->id());
      NewEntry& tombstone = all_entries_.emplace_back();
      tombstone.header.type = EntryType::kTombstone;
      tombstone.header.table = old.table();
      tombstone.header.version = old.version();
      tombstone.key = old.key();
      tombstone.value = std::as_bytes(std::span(&named_.back(), 1));
    }
    if (!named_.empty()) {
      all_places_.resize(all_entries_.size());
      if (!log_.append(all_entries_, all_places_.data())) return false;
      std::copy_n(all_places_.begin(), entries.size(), places);
      count_tombstones(head, all_entries_);
      cleaner_counters_.tombstones += named_.size();
      return true;
    }
  }
  if (!log_.append(entries, places)) return false;
  count_tombstones(head, entries);
  return true;
}

void PrimaryLog::count_tombstones(Segment& segment, std::span<const NewEntry> entries) {
  for (const NewEntry& entry : entries) {
    std::uint64_t named = 0;
    if (entry.header.type != EntryType::kTombstone || entry.value.size() != sizeof named) continue;
    std::memcpy(&named, entry.value.data(), sizeof named);
    segment.tombstones[named] += taken_by(entry);
    naming_bytes_[named] += taken_by(entry);
  }
}

void PrimaryLog::uncount_tombstones(const Segment& segment) {
  for (const auto& [named, bytes] : segment.tombstones) {
    const auto naming = naming_bytes_.find(named);
    if (naming != naming_bytes_.end()) naming->second -= bytes;
  }
}

bool PrimaryLog::is_whole() {
  const std::lock_guard<Mutex> lock(mutex_);
  return !order_.is_mending();
}

bool PrimaryLog::is_whole_for(ServerId backup) {
  const std::lock_guard<Mutex> lock(mutex_);
  return std::ranges::binary_search(up_, backup) && !order_.is_mending();
}

Position PrimaryLog::end() {
  const std::lock_guard<Mutex> lock(mutex_);
  return end_of_log();
}

bool PrimaryLog::commit(Worker& worker, Position to, Time deadline) {
  const Scope cost(env_, scope::commit);
  if (is_committed(to)) return true;
  const Time begin = env_.now();
  const auto has_ended = [&] {
    if (mutex_.try_lock()) {
      const bool moves = poll_completions();
      mutex_.unlock();
      if (moves) env_.notify(completions_->watch());
    }
    return is_committed(to) || is_deposed();
  };
  worker.wait(has_ended, deadline, &completions_->watch());
  worker.replicating += env_.now() - begin;
  return is_committed(to);
}

void PrimaryLog::step() {
  if (is_held_) return;
  order_.step();
  advance_committed();
  if (cleaning_) go_on_cleaning();
  if (!compacted_.empty()) replace_compacted();
}

// Only the first segment of the chain may have bytes that are not committed, and those behind it.
// The coordinator first learns that the log has begun. Who has not told it that had nothing, and no
// backup needs to have a replica.
void PrimaryLog::advance_committed() {
  if (!has_begun_) {
    if (has_asked_to_begin_ || order_.committed(chain_.front()) == 0) return;
    has_asked_to_begin_ = true;
    return raise_version(kLogItself, 1, [this] { has_begun_ = true; });
  }
  while (true) {
    const std::uint64_t first = chain_.front();
    const std::uint32_t committed = order_.committed(first);
    const Segment& segment = *log_.segments().at(first);
    committed_.store(
        std::max(committed_.load(std::memory_order_relaxed), Position{first, committed}.word()),
        std::memory_order_release);
    if (chain_.size() == 1 || committed < segment.end()) return;
    chain_.pop_front();
  }
}

void PrimaryLog::depose() {
  is_deposed_.store(true, std::memory_order_release);
  env_.notify(completions_->watch());
}

// ---- backups ----

void PrimaryLog::update(const ClusterView& view) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (view.epoch < epoch_) return;  // another thread had a newer one
  epoch_ = view.epoch;
  up_.clear();
  for (const ListedServer& server : view.servers) {
    met_.insert(server.id.node);
    if (server.state == ServerState::kUp) up_.push_back(server.id);
  }
  std::ranges::sort(up_);
  std::set<ServerId> lost;
  for (const auto& [id, held] : held_)
    if (!std::ranges::binary_search(up_, held.backup)) lost.insert(held.backup);
  for (const ServerId backup : lost) {
    std::erase_if(held_, [&](const auto& each) { return each.second.backup == backup; });
    order_.lost(backup.node);
  }
  const auto is_gone = [this](const auto& each) {
    return !std::ranges::binary_search(up_, each.first);
  };
  std::erase_if(replicas_at_, is_gone);
  std::erase_if(links_, is_gone);
  step();
}

void PrimaryLog::tick() {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (is_deposed()) return;
    if (completions_->overrun())
      throw fabric::overrun_error(*completions_, self_.node, "the log of " + to_string(self_));
    refused_.clear();
    poll_completions();
    for (auto& [id, held] : held_)
      if (held.posted < held.wanted) pump(id, held);
    step();
    if (!unsent_.empty()) free_unsent();
  }
  env_.notify(completions_->watch());
}

}  // namespace pyrdma::tailwind
