// The key-value store (paper, section 6 and appendix C): a lookup that takes no lock, and
// insertion, removal and update under ticket locks.
//
// Values lie in slots of a shared_region, those that a node inserted in its own part. Every node
// has an index of all keys. A key's lock (its hash modulo their number) makes changes to it follow
// one another; insertions and removals are told to all indices on the inserting node's tracker, a
// ring buffer, and end when all have acknowledged. Section 6 of the paper is one file a step:
// insert.cc, remove.cc, update.cc, lookup.cc, tracker.cc.
//
// Deviations: the hash is not CityHash64; counters are of 24 bits; the index is a compact table
// (see index.h); and a slot's checksum covers its counter too, so that a value never passes for one
// that was in its slot before.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/sync.h"
#include "systems/loco/kvstore/index.h"
#include "systems/loco/kvstore/operation.h"
#include "systems/loco/kvstore/slot.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

struct KvOptions {
  std::uint64_t keys = 1U << 16;  // of all nodes together; the index takes 20 bytes for each
  std::uint64_t slots = 0;        // of this node's values; 0: its share of keys
  std::uint32_t value_bytes = 8;  // of every value; a temporary block holds it and 16 bytes
  std::uint32_t locks = 4096;     // NUM_LOCKS
  TicketLockOptions lock;         // of each; see Preset
  std::uint64_t tracker_bytes = 64 * kKiB;
  bool fence = true;  // updates are placed, not only completed, when they release their lock
  Time tracker_pause = 100 * kMicrosecond;  // of an idle tracker thread, at most
};

class KvStore : public Channel {
 public:
  /// The last caller of the manager becomes the tracker's thread; the others are the application's.
  /// All nodes give equal options. Throws Error(kInvalidArgument) for an option out of its bounds.
  KvStore(Manager& manager, std::string name, const KvOptions& options,
          std::vector<NodeId> participants = {});
  ~KvStore() override;

  const KvOptions& options() const { return options_; }

  /// Fills the store with the keys 0 to count-1, key k at participant k modulo their number, with
  /// `value_of(k)` as the first 8 bytes of the value. Every node calls it, before any operation and
  /// before a barrier: each writes its own slots and computes where the others' are, so nothing is
  /// broadcast. `stored`: put the keys in the index's table; else it computes them (see Index).
  /// Throws Error(kExhausted), with the numbers, when they do not fit.
  void load(
      std::uint64_t count, bool stored = true,
      std::uint64_t (*value_of)(Key) = [](Key key) { return key; });

  // Blocking forms, of any caller but the last: KvOperation (operation.h) with a wait. Outcomes are
  // values; lookups give the value in `value`, value_bytes long. Throw as KvOperation::poll().
  Outcome lookup(Caller& me, Key key, std::span<std::byte> value);
  Outcome insert(Caller& me, Key key, std::span<const std::byte> value);
  Outcome update(Caller& me, Key key, std::span<const std::byte> value);
  Outcome remove(Caller& me, Key key);

  /// What an outcome means, with the numbers of this store.
  std::string describe(Outcome outcome) const;
  void prefetch(Key key) const { index_.prefetch(key); }
  /// Slots of this node that hold no value.
  std::uint64_t free_slots();
  std::uint64_t index_bytes() const { return index_.bytes(); }

 private:
  friend class KvOperation;
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
  void apply(const TrackerMessage& message);

  KvOptions options_;
  std::uint64_t slot_bytes_;
  std::uint64_t slots_;
  Index index_;
  SharedRegion values_;
  TicketLocks locks_;
  std::vector<std::unique_ptr<RingBuffer>> trackers_;  // by rank of the writer
  Mutex announcing_;                                   // callers of this node share its tracker
  Mutex slots_mutex_;
  std::vector<std::uint32_t> freed_;  // slots that held a value before
  std::uint32_t fresh_ = 0;           // slots from here on never did
  std::atomic<bool> stopping_{false};
  std::unique_ptr<Thread> tracker_;
};

}  // namespace pyrdma::loco
