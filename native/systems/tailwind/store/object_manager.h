// The objects of a primary: what its log has, by key (Tailwind, section 4: RAMCloud's store).
//
// An operation holds the lock of its key's stripe, so the operations on a key happen one after the
// other. What it returns may leave the server when the log is committed up to a position. That is
// so for reads, too: what a read returns must survive a crash. A stripe therefore knows the end of
// what was appended last for one of its keys.
//
// Any thread may call it. Locks are taken in this order: stripes, by their numbers; results or
// what is replayed; the log.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "env/env.h"
#include "env/scope.h"
#include "env/sync.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/store/hash_table.h"
#include "systems/tailwind/store/object_log.h"
#include "systems/tailwind/store/results.h"

namespace pyrdma::tailwind {

class ObjectManager {
 public:
  using Outcome = tailwind::Outcome;
  static constexpr std::uint32_t kStripes = 4096;

  /// `log` outlives it. Makes room for about `keys` keys, see HashTable.
  ObjectManager(Env& env, ObjectLog& log, std::uint64_t keys, Bugs bugs = {});

  /// The operations of clients. `hash` is key_hash(table, key). With id.client != 0 an update that
  /// is sent again returns what it has returned first, or kTooOld after its acknowledgement.
  ///
  /// Stores an object. Its version is the last one's + 1; that of a new key is above those of all
  /// keys that were removed here. kBadRequest: the key has more than kMostKey or the value more
  /// than kMostValue bytes, or the id acknowledges itself. kLogFull: nothing has changed. kRetry:
  /// the client has an update under way that has the same id.
  Outcome write(std::uint64_t table, std::uint64_t hash, ByteView key, ByteView value,
                const UpdateId& id);
  /// Removes an object, and returns its version, or kNoObject. Other statuses are those of write().
  Outcome remove(std::uint64_t table, std::uint64_t hash, ByteView key, const UpdateId& id);
  /// No key that is new from now on gets this version or a lower one.
  void raise_gone(std::uint64_t version);
  /// Copies the value of an object to `value`, and returns its version, or kNoObject.
  Outcome read(std::uint64_t table, std::uint64_t hash, ByteView key, Bytes& value);

  /// A recovery of some keys begins, or ends. Several may be under way, of disjoint ranges. Until
  /// the last of them ends, the tombstones that replay() has seen are kept: an older object may
  /// come after them.
  void begin_replay(std::span<const HashRange> ranges);
  void end_replay();
  /// Adds entries of a dead primary's log, in any order and as often as they come. Those of keys
  /// outside the ranges are skipped. The newest version of an object wins, also over one that is
  /// here. All that counts is appended to the own log; the entries hold when it is committed up to
  /// the position that is returned. Returns Position{} when no memory is left; the ranges may then
  /// have a part of the entries, and purge() is due. Returns nothing, and has done nothing, when an
  /// entry is damaged. The entries are from another node: they are within their bytes, and
  /// everything else is checked.
  std::optional<Position> replay(std::span<const Entry> entries);
  /// Forgets all keys and results of some ranges. Costs a walk over their part of the table. The
  /// log keeps the entries: who recovers it must not count them (Tablet::since).
  void purge(std::span<const HashRange> ranges);

  /// For the cleaner. An entry of the log is of use: an object or a result that is found at
  /// `place`. Others are not known here, and are not.
  bool is_live(const Entry& entry, Place place);
  enum class Move : std::uint8_t { kMoved, kDead, kNoRoom };
  /// Moves the entry at `place` if it is of use. `copy` appends it elsewhere and returns the new
  /// place, or 0 if there is no room. It runs under the stripe's lock, so that no copy exists of an
  /// object that is removed meanwhile: that copy would outlive the tombstone, which names the
  /// segment of the original.
  Move relocate(const Entry& entry, Place place, FunctionRef<Place()> copy);
  /// Waits until all operations have ended that are under way. Nobody then uses a place from
  /// before: a segment whose entries have moved may be freed.
  void wait_for_updates();

  /// Calls act(table, key, version, value) for each object, under its stripe's lock.
  template <class Act>
  void for_all(Act&& act) {
    for (std::uint64_t bucket = 0; bucket < table_.buckets(); ++bucket) {
      const std::lock_guard lock(stripes_[bucket % kStripes].mutex);
      table_.for_bucket(bucket, [&](Place place) {
        const WholeEntry entry = memory_.entry(place);
        act(entry->table(), entry->key(), entry->version(), entry->value());
      });
    }
  }
  std::uint64_t keys() const { return table_.keys(); }
  const LogMemory& memory() const { return memory_; }
  Results& results() { return results_; }

 private:
  struct alignas(64) Stripe {
    explicit Stripe(Env& env) : mutex(env) {}
    Mutex mutex;
    Position last;  // the end of what was appended last for one of its keys
  };
  /// An update, under its stripe's lock.
  struct Update {
    std::uint64_t table, hash;
    const UpdateId& id;
    Stripe& stripe;
    std::vector<Place> dropped;  // results that the client knows
  };
  struct ReplayItem {
    Entry entry;
    std::uint64_t table, hash;  // of the key
  };
  struct ReplayBatch;

  std::uint64_t version_at(Place place) const { return memory_.header_and_key(place)->version(); }
  std::uint32_t stripe_of(std::uint64_t hash) const {
    return static_cast<std::uint32_t>(table_.bucket_of(hash) % kStripes);
  }
  Place find(std::uint64_t table, std::uint64_t hash, ByteView key);
  /// Returns the outcome of an update that must not happen now.
  std::optional<Outcome> begin(Update& update);
  /// Appends `change` if it is not null, and the result if the client wants one, and drops the
  /// object at `before` if it is not 0. Sets `*place` to the place of the change.
  Outcome finish(Update& update, StoreStatus status, std::uint64_t version, const NewEntry* change,
                 Place before, Place* place);
  void drop(std::span<const Place> places);
  /// Adds the entry to `items` if it is of a key in the ranges. Returns false if it is damaged.
  static bool check(const Entry& entry, std::span<const HashRange> ranges,
                    std::vector<ReplayItem>& items);
  /// Returns false when no memory is left. Raises `position` to that of the last append.
  bool replay_batch(std::span<const ReplayItem> items, Position& position);
  void choose(const ReplayItem& item, ReplayBatch& batch);

  Env& env_;
  ObjectLog& log_;
  LogMemory& memory_;
  const Bugs bugs_;
  Footprint footprint_;  // of the log
  HashTable table_;
  Results results_;
  std::deque<Stripe> stripes_;
  std::atomic<std::uint64_t> gone_{0};  // no removed object has a higher version

  Mutex replay_mutex_;  // of all below
  std::uint32_t replays_ = 0;
  std::vector<HashRange> replay_ranges_;
  std::unordered_map<std::string, std::uint64_t> tombstones_;  // by table and key: newest version
};

}  // namespace pyrdma::tailwind
