// The table from keys to places in the log, as RAMCloud's: a bucket is one cache line, so a lookup
// touches one line of the table and one of the log (Ousterhout et al., "The RAMCloud Storage
// System", ACM TOCS 2015, section 4).
//
// A slot has 16 bits of the key's hash and a place of 47 bits. The caller compares the key that
// lies at the place: other keys have the same bits. A full bucket goes on in another line, to which
// its last slot then points: an address of a user's memory has 47 bits. Lines stay where they are.
//
// Threads may work on different buckets at once. Those that work on one bucket need a lock for it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "env/env.h"
#include "env/scope.h"
#include "env/sync.h"
#include "systems/tailwind/log/log_memory.h"

namespace pyrdma::tailwind {

class HashTable {
 public:
  static constexpr std::uint32_t kSlots = 8;  // of a line
  static constexpr int kPlaceBits = 47;

  /// Makes room for about `keys` keys, which then fill four fifths of the buckets' slots: 10 B for
  /// a key. Throws Error(kInvalidArgument) unless 1 <= keys <= 2^40.
  HashTable(Env& env, std::uint64_t keys);

  std::uint64_t buckets() const { return lines_.size(); }
  std::uint64_t bucket_of(std::uint64_t hash) const {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * buckets()) >> 64);
  }
  /// Starts to fetch the line of a key.
  void prefetch(std::uint64_t hash) const { env_.prefetch(footprint_, &lines_[bucket_of(hash)]); }
  /// Returns the place of the key with this hash for which is_key(place) is true, or 0.
  template <class IsKey>
  Place find(std::uint64_t hash, IsKey&& is_key) const {
    const Slot* slot = find_slot(hash, is_key);
    return slot == nullptr ? 0 : place_of(*slot);
  }
  /// Sets the place of a key, and returns the one before it or 0.
  template <class IsKey>
  Place set(std::uint64_t hash, Place place, IsKey&& is_key) {
    if (const Slot* known = find_slot(hash, is_key))
      return place_of(std::exchange(*const_cast<Slot*>(known), slot_of(hash, place)));
    *free_slot(hash) = slot_of(hash, place);
    keys_.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  /// Forgets a key, and returns its place or 0.
  template <class IsKey>
  Place erase(std::uint64_t hash, IsKey&& is_key) {
    const Slot* known = find_slot(hash, is_key);
    if (known == nullptr) return 0;
    keys_.fetch_sub(1, std::memory_order_relaxed);
    return place_of(std::exchange(*const_cast<Slot*>(known), 0));
  }
  /// Calls act(place) for each key of a bucket.
  template <class Act>
  void for_bucket(std::uint64_t bucket, Act&& act) const {
    for (const Line* line = &lines_[bucket]; line != nullptr; line = next_of(*line)) {
      for (const Slot slot : line->slots)
        if (slot != 0 && (slot & kChain) == 0) act(place_of(slot));
    }
  }
  std::uint64_t keys() const { return keys_.load(std::memory_order_relaxed); }
  /// Lines beyond the buckets. No other thread may change the table meanwhile.
  std::uint64_t overflow_lines() const { return overflow_.size(); }

 private:
  using Slot = std::uint64_t;  // 16 bits of the hash, the chain bit, the place; 0: free
  static constexpr Slot kChain = Slot{1} << kPlaceBits;
  static constexpr int kHashShift = kPlaceBits + 1;
  struct alignas(64) Line {
    Slot slots[kSlots] = {};
  };
  static_assert(sizeof(Line) == 64);

  static Place place_of(Slot slot) { return slot & (kChain - 1); }
  static Slot slot_of(std::uint64_t hash, Place place) { return hash << kHashShift | place; }
  static Line* line_of(Slot chain) {
    return reinterpret_cast<Line*>(static_cast<std::uintptr_t>(place_of(chain)));
  }
  const Line* next_of(const Line& line) const {
    const Slot last = line.slots[kSlots - 1];
    return (last & kChain) == 0 ? nullptr : line_of(last);
  }
  /// The low bits of the hash stand in the slot; the high ones have chosen the bucket.
  template <class IsKey>
  const Slot* find_slot(std::uint64_t hash, IsKey&& is_key) const {
    for (const Line* line = &lines_[bucket_of(hash)]; line != nullptr; line = next_of(*line)) {
      env_.charge_walk(footprint_, line);
      for (const Slot& slot : line->slots) {
        if (slot >> kHashShift == (hash & 0xffff) && slot != 0 && (slot & kChain) == 0 &&
            is_key(place_of(slot)))
          return &slot;
      }
    }
    return nullptr;
  }
  /// Returns a free slot of the key's bucket, which gets another line if it has none.
  Slot* free_slot(std::uint64_t hash);
  Line& new_line();

  Env& env_;
  std::vector<Line> lines_;
  Mutex overflow_mutex_{env_};
  std::deque<Line> overflow_;  // takes memory in chunks
  std::atomic<std::uint64_t> keys_{0};
  Footprint footprint_;
};

}  // namespace pyrdma::tailwind
