// The key-value store (paper, section 6 and appendix C): a lookup that takes no lock, and
// insertion, removal and update under ticket locks.
//
// Values lie in slots of a shared_region. A node puts the values that it inserts into its own part.
// Every node has an index of all keys. The lock of a key (its hash modulo the number of locks)
// serialises changes to the key. The inserting node announces insertions and removals to all
// indices on its tracker, a ring buffer; they end when all indices have acknowledged. Each step of
// section 6 of the paper is one file: insert.cc, remove.cc, update.cc, lookup.cc, tracker.cc.
//
// Deviations: the hash is not CityHash64; counters have 24 bits; the index is a compact table (see
// index.h); and a slot's checksum covers its counter too, so that a reader never takes an earlier
// value of the slot for the present value.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/scope.h"
#include "env/sync.h"
#include "systems/loco/kvstore/index.h"
#include "systems/loco/kvstore/operation.h"
#include "systems/loco/kvstore/slot.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

struct KvOptions {
  std::uint64_t keys = 1U << 16;  // keys of all nodes together; the index takes 20 bytes for each
  std::uint64_t slots = 0;        // slots on this node; 0: its share of keys
  std::uint32_t value_bytes = 8;  // bytes of every value; a temporary block holds them and 16 more
  std::uint32_t locks = 4096;     // number of locks (NUM_LOCKS)
  TicketLockOptions lock;         // options of each lock; see Preset
  std::uint64_t tracker_bytes = 64 * kKiB;
  bool fence = true;  // an update is placed, not only completed, before it releases its lock
  Time tracker_pause = 100 * kMicrosecond;  // longest pause of an idle tracker thread
  // For tests.
  Time tracker_hold = 0;  // the longest time for which the tracker's thread leaves a ring alone
  std::uint32_t first_counter = 1;   // of each slot, which counts modulo 2^24 without 0
  std::uint64_t first_position = 0;  // of the trackers' rings (ring_buffer.h)
};

class KvStore : public Channel {
 public:
  /// The last caller of the manager belongs to the tracker's thread; the others belong to the
  /// application. All nodes give equal options. Throws Error(kInvalidArgument) for an option
  /// outside its bounds.
  KvStore(Manager& manager, std::string name, const KvOptions& options,
          std::vector<NodeId> participants = {});
  ~KvStore() override;

  const KvOptions& options() const { return options_; }

  /// Fills the store with the keys 0 to count-1, key k at participant k modulo the number of
  /// participants, with `value_of(k)` as the first 8 bytes of the value. Every node calls it before
  /// any operation and before a barrier, once. Each node writes its own slots and computes the
  /// places of the other slots, so no node broadcasts. `stored` true: the keys go into the table of
  /// the index; false: the index computes them (see Index). Throws Error(kExhausted), with the
  /// numbers, when they do not fit, and Error(kInvalidArgument) after an insertion or another
  /// load().
  void load(
      std::uint64_t count, bool stored = true,
      std::uint64_t (*value_of)(Key) = [](Key key) { return key; });

  // Blocking forms, for any caller but the last: KvOperation (operation.h) with a wait. They return
  // the outcome; lookups put the value into `value`, value_bytes long. They throw as
  // KvOperation::poll() does.
  Outcome lookup(Caller& me, Key key, std::span<std::byte> value);
  Outcome insert(Caller& me, Key key, std::span<const std::byte> value);
  Outcome update(Caller& me, Key key, std::span<const std::byte> value);
  Outcome remove(Caller& me, Key key);

  /// Describes an outcome, with the numbers of this store.
  std::string describe(Outcome outcome) const;
  void prefetch(Key key) const { index_.prefetch(key); }
  std::uint64_t index_bytes() const { return index_.bytes(); }

  // The state of this node, for tests.
  std::optional<Location> locate(Key key) { return index_.find(key); }
  std::uint64_t indexed() const { return index_.size(); }
  std::uint64_t free_slots();

 private:
  friend class KvOperation;
  friend class Bugs;
  void lost(NodeId peer) override { lost_.store(peer, std::memory_order_relaxed); }
  void check_options();
  std::uint64_t lock_of(Key key) const { return hash_of(key) % locks_.count(); }
  std::byte* slot(std::uint32_t number) const {
    return values_.local() + std::uint64_t{number} * slot_bytes_;
  }
  std::uint64_t sum_of(const std::byte* value, std::uint32_t counter) const;
  void write_slot(std::uint32_t number, std::uint32_t counter, bool valid, const std::byte* value);
  void set_valid(std::uint32_t number, std::uint32_t counter, bool valid);
  bool take_slot(std::uint32_t& number);
  void give_slot(std::uint32_t number);
  Outcome run(Caller& me, KvOperation& operation);

  // tracker.cc
  RingBuffer& tracker_of(NodeId node) { return *trackers_[rank_of(node)]; }
  void track();
  bool apply_news(Caller& me);
  bool held_back(NodeId node);
  void apply(const TrackerMessage& message);

  KvOptions options_;
  std::uint64_t slot_bytes_;
  std::uint64_t slots_;
  // An entry for each key that has a slot, and for each key whose removal has freed its slot, but
  // is not yet applied here. Such a removal still holds the lock of its key, so there are at most
  // as many as locks. A node may apply an insertion into a freed slot before the removal that freed
  // it.
  Index index_;
  SharedRegion values_;
  Footprint footprint_;  // of this node's slots
  TicketLocks locks_;
  std::vector<std::unique_ptr<RingBuffer>> trackers_;  // by rank of the writer
  Mutex announcing_;  // several callers of this node share its tracker
  Mutex slots_mutex_;
  std::vector<std::uint32_t> freed_;  // slots that have held a value
  bool loaded_ = false;
  std::uint32_t fresh_ = 0;  // slots from this one on have never held a value
  Rng hold_draws_;
  NodeId held_ = 0;
  Time held_until_ = 0;
  // A node that hears nothing more of this node's changes to the index.
  std::atomic<NodeId> lost_{fabric::kNoNode};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<Thread> tracker_;
};

}  // namespace pyrdma::loco
