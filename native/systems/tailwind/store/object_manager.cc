#include "systems/tailwind/store/object_manager.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/assert.h"
#include "systems/tailwind/log/segment.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

namespace {

/// Entries that a replay appends at once. More would leave the ends of seglets unused.
constexpr std::size_t kReplayBytes = 8U << 10;

bool are_equal(ByteView one, ByteView other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

auto is_place(Place place) {
  return [place](Place known) { return known == place; };
}

EntryHeader header_of(EntryType type, std::uint64_t table, std::uint64_t version) {
  EntryHeader header;
  header.type = type;
  header.table = table;
  header.version = version;
  return header;
}

ByteView bytes_of_number(const std::uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::string name_of_key(std::uint64_t table, ByteView key) {
  std::string name(sizeof table + key.size(), '\0');
  std::memcpy(name.data(), &table, sizeof table);
  if (!key.empty()) std::memcpy(name.data() + sizeof table, key.data(), key.size());
  return name;
}

bool is_in(std::span<const HashRange> ranges, std::uint64_t table, std::uint64_t hash) {
  return std::ranges::any_of(ranges,
                             [&](const HashRange& range) { return range.has(table, hash); });
}

}  // namespace

ObjectManager::ObjectManager(Env& env, ObjectLog& log, std::uint64_t keys, Bugs bugs)
    : env_(env),
      log_(log),
      memory_(log.memory()),
      bugs_(bugs),
      footprint_(env, memory_.at(memory_.seglet()),
                 std::uint64_t{memory_.seglets()} * memory_.seglet()),
      table_(env, keys),
      results_(env),
      replay_mutex_(env) {
  for (std::uint32_t i = 0; i < kStripes; ++i) stripes_.emplace_back(env);
}

Place ObjectManager::find(std::uint64_t table, std::uint64_t hash, ByteView key) {
  return table_.find(hash, [&](Place place) {
    env_.charge_walk(footprint_, memory_.at(place));
    const WholeEntry entry = memory_.header_and_key(place);
    return entry->table() == table && are_equal(entry->key(), key);
  });
}

std::optional<Outcome> ObjectManager::begin(Update& update) {
  if (update.id.client == 0) return std::nullopt;
  const Results::Begun begun = results_.begin(update.id, update.dropped);
  if (begun.state == Results::State::kNew) return std::nullopt;
  drop(update.dropped);
  switch (begun.state) {
    case Results::State::kDone:
      return begun.outcome;
    case Results::State::kInProgress:
      return Outcome{StoreStatus::kRetry, 0, {}};
    case Results::State::kTooOld:
      return Outcome{StoreStatus::kTooOld, 0, {}};
    default:
      return Outcome{StoreStatus::kBadRequest, 0, {}};
  }
}

Outcome ObjectManager::finish(Update& update, StoreStatus status, std::uint64_t version,
                              const NewEntry* change, Place before, Place* place) {
  const UpdateId& id = update.id;
  const bool has_result = id.client != 0;
  if (change == nullptr && !has_result) return {status, version, update.stripe.last};
  const ResultContents contents{update.table, update.hash, version, status};
  std::array<NewEntry, 2> entries;
  std::array<Place, 2> places{};
  std::size_t count = 0;
  if (change != nullptr) entries[count++] = *change;
  if (has_result) entries[count++] = result_entry(id.client, id.sequence, contents);
  const std::size_t known_results = update.dropped.size();
  if (before != 0) update.dropped.push_back(before);
  const Position position =
      log_.append(std::span(entries).first(count), places.data(), update.dropped);
  if (position == Position{}) {
    if (has_result) results_.abandon(id);
    drop(std::span(update.dropped).first(known_results));
    return {StoreStatus::kLogFull, 0, {}};
  }
  update.stripe.last = position;
  if (has_result) {
    if (bugs_.keeps_results()) {
      results_.complete(id.client, id.sequence, contents, position, places[count - 1]);
    } else {
      results_.abandon(id);
    }
  }
  *place = places[0];
  return {status, version, position};
}

Outcome ObjectManager::write(std::uint64_t table, std::uint64_t hash, ByteView key, ByteView value,
                             const UpdateId& id) {
  const Scope step(env_, scope::write_object);
  if (key.size() > kMostKey || value.size() > kMostValue) return {StoreStatus::kBadRequest, 0, {}};
  Stripe& stripe = stripes_[stripe_of(hash)];
  const std::lock_guard lock(stripe.mutex);
  Update update{table, hash, id, stripe, {}};
  if (const std::optional<Outcome> known = begin(update)) return *known;
  const Place before = find(table, hash, key);
  const std::uint64_t last =
      before == 0 ? gone_.load(std::memory_order_relaxed) : version_at(before);
  const NewEntry object{header_of(EntryType::kObject, table, last + 1), key, value};
  Place place = 0;
  const Outcome outcome = finish(update, StoreStatus::kOk, last + 1, &object, before, &place);
  // is_place(0) finds nothing, so a new key takes a free slot.
  if (outcome.status == StoreStatus::kOk) table_.set(hash, place, is_place(before));
  return outcome;
}

Outcome ObjectManager::remove(std::uint64_t table, std::uint64_t hash, ByteView key,
                              const UpdateId& id) {
  if (key.size() > kMostKey) return {StoreStatus::kBadRequest, 0, {}};
  Stripe& stripe = stripes_[stripe_of(hash)];
  const std::lock_guard lock(stripe.mutex);
  Update update{table, hash, id, stripe, {}};
  if (const std::optional<Outcome> known = begin(update)) return *known;
  const Place before = find(table, hash, key);
  Place place = 0;
  if (before == 0) return finish(update, StoreStatus::kNoObject, 0, nullptr, 0, &place);
  const std::uint64_t version = version_at(before), segment = memory_.owner(before)->id();
  const NewEntry tombstone{header_of(EntryType::kTombstone, table, version), key,
                           bytes_of_number(segment)};
  const Outcome outcome = finish(update, StoreStatus::kOk, version, &tombstone, before, &place);
  if (outcome.status == StoreStatus::kOk) {
    raise_gone(version);
    table_.erase(hash, is_place(before));
  }
  return outcome;
}

Outcome ObjectManager::read(std::uint64_t table, std::uint64_t hash, ByteView key, Bytes& value) {
  const Scope step(env_, scope::read_object);
  Stripe& stripe = stripes_[stripe_of(hash)];
  const std::lock_guard lock(stripe.mutex);
  const Position position = bugs_.reads_wait() ? stripe.last : Position{};
  const Place place = find(table, hash, key);
  if (place == 0) return {StoreStatus::kNoObject, 0, position};
  const WholeEntry entry = memory_.entry(place);
  const ByteView found = entry->value();
  env_.charge_copy(found.size(), &footprint_);
  value.assign(found.begin(), found.end());
  return {StoreStatus::kOk, entry->version(), position};
}

void ObjectManager::drop(std::span<const Place> places) {
  if (!places.empty()) log_.append({}, nullptr, places);
}

void ObjectManager::raise_gone(std::uint64_t version) {
  std::uint64_t known = gone_.load(std::memory_order_relaxed);
  while (known < version &&
         !gone_.compare_exchange_weak(known, version, std::memory_order_relaxed)) {
  }
}

// ---- recovery ----

/// What a part of a replay appends, and what then holds.
struct ObjectManager::ReplayBatch {
  struct Change {
    const ReplayItem* item;
    Place before;  // of the object that it replaces or removes
  };
  std::vector<NewEntry> entries;
  std::vector<Change> changes;  // one for each entry
  std::vector<Place> dropped;
  std::deque<std::uint64_t> segments;  // contents of tombstones
};

void ObjectManager::begin_replay(std::span<const HashRange> ranges) {
  const std::lock_guard lock(replay_mutex_);
  ++replays_;
  replay_ranges_.insert(replay_ranges_.end(), ranges.begin(), ranges.end());
}

void ObjectManager::end_replay() {
  const std::lock_guard lock(replay_mutex_);
  PYRDMA_ASSERT(replays_ > 0);
  if (--replays_ > 0) return;
  replay_ranges_.clear();
  tombstones_.clear();
}

std::optional<Position> ObjectManager::replay(std::span<const Entry> entries) {
  std::vector<HashRange> ranges;
  {
    const std::lock_guard lock(replay_mutex_);
    ranges = replay_ranges_;
  }
  std::vector<ReplayItem> items;
  for (const Entry& entry : entries) {
    if (!check(entry, ranges, items)) return std::nullopt;
  }
  Position result;
  // A batch has a key once: what is decided about the second entry of a key depends on the first.
  std::unordered_set<std::uint64_t> hashes;
  for (std::size_t first = 0, last = 0; first < items.size(); first = last) {
    hashes.clear();
    for (std::size_t bytes = 0; last < items.size(); ++last) {
      bytes += items[last].entry.size();
      const bool is_too_long = last > first && bytes > kReplayBytes;
      if (is_too_long || !hashes.insert(items[last].hash).second) break;
    }
    if (!replay_batch(std::span(items).subspan(first, last - first), result)) return Position();
  }
  // What was known already may still be uncommitted.
  return std::max(result, log_.append({}, nullptr, {}));
}

bool ObjectManager::check(const Entry& entry, std::span<const HashRange> ranges,
                          std::vector<ReplayItem>& items) {
  ReplayItem item{entry, entry.table(), 0};
  switch (entry.type()) {
    case EntryType::kObject:
    case EntryType::kTombstone:
      item.hash = key_hash(item.table, entry.key());
      break;
    case EntryType::kResult: {
      const std::optional<ResultContents> contents = read_result(entry);
      if (!contents) return false;
      item.table = contents->table;
      item.hash = contents->hash;
      break;
    }
    default:
      return true;  // of no key
  }
  if (!entry.is_whole()) return false;
  const std::size_t most =
      entry.type() == EntryType::kTombstone ? sizeof(std::uint64_t) : kMostValue;
  if (entry.value().size() > most) return false;
  // The next version would be 0: no primary has come so far.
  if (entry.version() == std::numeric_limits<std::uint64_t>::max()) return false;
  if (is_in(ranges, item.table, item.hash)) items.push_back(item);
  return true;
}

bool ObjectManager::replay_batch(std::span<const ReplayItem> items, Position& position) {
  std::vector<std::uint32_t> numbers;
  for (const ReplayItem& item : items) numbers.push_back(stripe_of(item.hash));
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<std::unique_lock<Mutex>> locks;
  for (const std::uint32_t number : numbers) locks.emplace_back(stripes_[number].mutex);

  ReplayBatch batch;
  for (const ReplayItem& item : items) choose(item, batch);
  if (batch.entries.empty()) return true;
  std::vector<Place> places(batch.entries.size());
  const Position end = log_.append(batch.entries, places.data(), batch.dropped);
  if (end == Position{}) return false;
  position = std::max(position, end);
  for (std::size_t i = 0; i < batch.changes.size(); ++i) {
    const auto& [item, before] = batch.changes[i];
    const Entry& entry = item->entry;
    stripes_[stripe_of(item->hash)].last = end;
    if (entry.type() == EntryType::kObject) {
      table_.set(item->hash, places[i], is_place(before));
    } else if (entry.type() == EntryType::kTombstone) {
      table_.erase(item->hash, is_place(before));
    } else {
      results_.complete(entry.table(), entry.version(), *read_result(entry), end, places[i]);
    }
  }
  return true;
}

void ObjectManager::choose(const ReplayItem& item, ReplayBatch& batch) {
  const Entry& entry = item.entry;
  if (entry.type() == EntryType::kResult) {
    if (results_.wants(entry.table(), entry.version())) {
      batch.entries.push_back(
          {header_of(entry.type(), entry.table(), entry.version()), {}, entry.value()});
      batch.changes.push_back({&item, 0});
    }
    return;
  }
  if (bugs_.keeps_removed_version()) raise_gone(entry.version());
  const Place before = find(item.table, item.hash, entry.key());
  const EntryHeader header = header_of(entry.type(), item.table, entry.version());
  if (entry.type() == EntryType::kTombstone) {
    {
      const std::lock_guard lock(replay_mutex_);
      std::uint64_t& newest = tombstones_[name_of_key(item.table, entry.key())];
      newest = std::max(newest, entry.version());
    }
    // The own log needs a tombstone for an object that it has; it names the own segment.
    if (before == 0 || version_at(before) > entry.version()) return;
    batch.segments.push_back(memory_.owner(before)->id());
    batch.entries.push_back({header, entry.key(), bytes_of_number(batch.segments.back())});
  } else {
    if (before != 0 && version_at(before) >= entry.version()) return;
    {
      const std::lock_guard lock(replay_mutex_);
      const auto removed = tombstones_.find(name_of_key(item.table, entry.key()));
      if (removed != tombstones_.end() && removed->second >= entry.version()) return;
    }
    batch.entries.push_back({header, entry.key(), entry.value()});
  }
  batch.changes.push_back({&item, before});
  if (before != 0) batch.dropped.push_back(before);
}

void ObjectManager::purge(std::span<const HashRange> ranges) {
  std::vector<Place> dropped;
  for (const HashRange& range : ranges) {
    // The buckets of a range are adjacent.
    const std::uint64_t last = table_.bucket_of(range.last);
    for (std::uint64_t bucket = table_.bucket_of(range.first); bucket <= last; ++bucket) {
      const std::lock_guard lock(stripes_[bucket % kStripes].mutex);
      std::vector<std::pair<std::uint64_t, Place>> gone;  // by hash
      table_.for_bucket(bucket, [&](Place place) {
        const WholeEntry entry = memory_.header_and_key(place);
        const std::uint64_t hash = key_hash(entry->table(), entry->key());
        if (range.has(entry->table(), hash)) gone.emplace_back(hash, place);
      });
      dropped.clear();
      for (const auto& [hash, place] : gone) {
        raise_gone(version_at(place));
        table_.erase(hash, is_place(place));
        dropped.push_back(place);
      }
      drop(dropped);
    }
  }
  dropped.clear();
  const std::lock_guard lock(stripes_.front().mutex);  // any: see wait_for_updates()
  results_.forget(ranges, dropped);
  drop(dropped);
}

// ---- for the cleaner ----

bool ObjectManager::is_live(const Entry& entry, Place place) {
  // A copy without room changes nothing, and says that the entry is of use.
  return relocate(entry, place, [] { return Place{0}; }) == Move::kNoRoom;
}

ObjectManager::Move ObjectManager::relocate(const Entry& entry, Place place,
                                            FunctionRef<Place()> copy) {
  if (entry.type() == EntryType::kObject) {
    const std::uint64_t hash = key_hash(entry.table(), entry.key());
    const std::lock_guard lock(stripes_[stripe_of(hash)].mutex);
    if (table_.find(hash, is_place(place)) == 0) return Move::kDead;
    const Place to = copy();
    if (to == 0) return Move::kNoRoom;
    table_.set(hash, to, is_place(place));
    return Move::kMoved;
  }
  const std::optional<ResultContents> contents = read_result(entry);
  if (!contents) return Move::kDead;
  const std::lock_guard lock(stripes_[stripe_of(contents->hash)].mutex);
  if (!results_.is_at(entry.table(), entry.version(), place)) return Move::kDead;
  const Place to = copy();
  if (to == 0) return Move::kNoRoom;
  // The client may have acknowledged it since.
  if (!results_.move(entry.table(), entry.version(), place, to)) {
    drop({&to, 1});
    return Move::kDead;
  }
  return Move::kMoved;
}

void ObjectManager::wait_for_updates() {
  for (Stripe& stripe : stripes_) const std::lock_guard lock(stripe.mutex);
}

}  // namespace pyrdma::tailwind
