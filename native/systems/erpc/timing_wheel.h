// The timing wheel of the rate limiter: entries leave it in the order of their times. Source: A.
// Saeed et al., "Carousel: scalable traffic shaping at end hosts", SIGCOMM 2017, section 4, which
// eRPC uses (paper, section 5.2.1).
//
// Time is cut into slots. An entry joins the slot that begins at its time or, if none does, the
// next one: so no entry leaves early, and with a reap per slot none leaves more than one slot late.
// The entries of a slot leave in the order in which they came.
//
// Nothing is removed before its time. An owner that no longer wants an entry knows that by itself,
// and ignores the entry when it comes out (appendix C says why eRPC does so). An owner that wants
// to know whether a session has entries here counts them.
//
// Cost: insert and reap take a few nanoseconds per entry and allocate nothing once the pool has had
// its greatest number of entries. A reap of nothing is a comparison. 8 bytes per slot, 64 bytes for
// each few entries. Not thread-safe: the thread of an endpoint owns it.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace pyrdma::erpc {

template <class Entry>
class TimingWheel {
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_default_constructible_v<Entry>);

 public:
  static constexpr std::uint64_t kMostSlots = 1 << 24;

  /// Makes a wheel for times up to `horizon_ns` ahead; time begins at `start`. The caller derives
  /// the horizon from the least rate of a session and the bytes that a session may have in the
  /// wheel (RateBounds::longest). Throws Error(kInvalidArgument) for times below 1 ns and for more
  /// than kMostSlots slots.
  TimingWheel(Time slot_width_ns, Time horizon_ns, Time start)
      : width_(slot_width_ns), start_(start) {
    if (slot_width_ns < 1 || horizon_ns < 1 ||
        static_cast<std::uint64_t>(horizon_ns / slot_width_ns) >= kMostSlots - 2)
      throw Error(ErrorCode::kInvalidArgument,
                  "a timing wheel has slots of " + std::to_string(slot_width_ns) +
                      " ns and a horizon of " + std::to_string(horizon_ns) +
                      " ns; give both at least 1 ns, and fewer than " +
                      std::to_string(kMostSlots - 2) + " slots");
    reach_ = static_cast<std::uint64_t>((horizon_ns - 1) / slot_width_ns + 1);
    const std::uint64_t count = std::bit_ceil(std::max<std::uint64_t>(reach_ + 2, 64));
    mask_ = count - 1;
    slots_.resize(count);
    full_.resize(count / 64);
  }

  /// Puts `entry` into the slot of `at`, or of `now` if that is later. Returns false when the entry
  /// will leave before `at`, because that is beyond the horizon or the owner has not reaped for
  /// long; it then joins the last slot that the wheel has. So an owner reaps before it inserts.
  bool insert(const Entry& entry, Time at, Time now) {
    next_ = std::max(next_, slot_of(now));
    const std::uint64_t wanted = std::max(slot_of(at), next_);
    const std::uint64_t limit = std::min(next_ + reach_, std::min(first_, next_) + mask_);
    append(std::min(wanted, limit), entry);
    return wanted <= limit;
  }

  /// Calls `take` with each entry whose slot has begun by `now`, in the order of the slots.
  /// `take` may insert: entries that are due by `now` come in the same call. It must not throw
  /// except to end the node. Returns the number of entries.
  template <class Take>
  std::size_t reap(Time now, Take&& take) {
    std::size_t count = 0;
    while (first_ != kNoSlot && now >= due_) count += empty(first_, take);
    return count;
  }

  std::size_t size() const { return size_; }
  /// Returns the buckets that the pool has allocated so far.
  std::size_t pooled() const { return buckets_.size(); }
  /// Returns the time at which the first entry is due, kForever for an empty wheel.
  Time next_due() const { return due_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};
  static constexpr std::size_t kPerBucket =
      sizeof(Entry) <= 28 ? (64 - 2 * sizeof(std::uint32_t)) / sizeof(Entry) : 1;
  struct Bucket {
    std::uint32_t next = kNone;
    std::uint32_t count = 0;
    std::array<Entry, kPerBucket> entries;
  };
  struct Chain {  // buckets of one slot, oldest first
    std::uint32_t first = kNone, last = kNone;
  };

  // Slots have numbers from `start_` on that never wrap; slot n lies at n & mask_. An entry is due
  // when its slot begins.
  std::uint64_t slot_of(Time at) const {
    if (at <= start_) return 0;
    return (static_cast<std::uint64_t>(at) - static_cast<std::uint64_t>(start_) - 1) /
               static_cast<std::uint64_t>(width_) +
           1;
  }
  void set_first(std::uint64_t slot) {
    first_ = slot;
    due_ = slot == kNoSlot ? kForever : start_ + static_cast<Time>(slot) * width_;
  }

  void append(std::uint64_t slot, const Entry& entry) {
    Chain& chain = slots_[slot & mask_];
    if (chain.last == kNone) {
      chain.first = chain.last = take_bucket();
      full_[(slot & mask_) / 64] |= std::uint64_t{1} << (slot % 64);
      ++full_slots_;
      if (slot < first_) set_first(slot);
    } else if (buckets_[chain.last].count == kPerBucket) {
      const std::uint32_t fresh = take_bucket();
      buckets_[chain.last].next = fresh;
      chain.last = fresh;
    }
    Bucket& bucket = buckets_[chain.last];
    bucket.entries[bucket.count++] = entry;
    ++size_;
  }

  template <class Take>
  std::size_t empty(std::uint64_t slot, Take& take) {
    Chain& chain = slots_[slot & mask_];
    std::uint32_t index = std::exchange(chain.first, kNone);
    chain.last = kNone;
    full_[(slot & mask_) / 64] &= ~(std::uint64_t{1} << (slot % 64));
    next_ = std::max(next_, slot + 1);
    set_first(--full_slots_ == 0 ? kNoSlot : first_full(slot + 1));
    std::size_t count = 0;
    while (index != kNone) {
      // A copy: `take` may insert, and the pool may then move or use the bucket again.
      const Bucket bucket = buckets_[index];
      buckets_[index].next = std::exchange(free_, index);
      index = bucket.next;
      count += bucket.count;
      size_ -= bucket.count;
      for (std::uint32_t i = 0; i < bucket.count; ++i) take(bucket.entries[i]);
    }
    return count;
  }

  /// Returns the first slot from `from` on that has entries. There must be one.
  std::uint64_t first_full(std::uint64_t from) const {
    const std::uint64_t begin = from & mask_;
    std::uint64_t word = begin / 64;
    std::uint64_t bits = full_[word] & (~std::uint64_t{0} << (begin % 64));
    while (bits == 0) {
      word = (word + 1) & (full_.size() - 1);
      bits = full_[word];
    }
    const std::uint64_t at = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    return from + ((at - begin) & mask_);
  }

  std::uint32_t take_bucket() {
    if (free_ == kNone) {
      buckets_.emplace_back();
      return static_cast<std::uint32_t>(buckets_.size() - 1);
    }
    const std::uint32_t index = std::exchange(free_, buckets_[free_].next);
    buckets_[index].next = kNone;
    buckets_[index].count = 0;
    return index;
  }

  Time width_, start_;
  std::uint64_t reach_ = 0;  // slots of the horizon
  std::uint64_t mask_ = 0;
  // Entries join slots from `next_` on. All slots with entries lie within `mask_` slots from the
  // lower one of `first_` and `next_` on; neither that nor `next_` ever falls.
  std::uint64_t next_ = 0;
  std::uint64_t first_ = kNoSlot;  // with entries
  Time due_ = kForever;            // when that slot begins
  std::size_t size_ = 0;
  std::size_t full_slots_ = 0;
  std::vector<Chain> slots_;
  std::vector<std::uint64_t> full_;  // a bit per slot: it has entries
  std::vector<Bucket> buckets_;
  std::uint32_t free_ = kNone;
};

}  // namespace pyrdma::erpc
