// The event queue of the simulator, ordered by (time, ticket). A ticket counts pushes, so events of
// equal time keep the order of their pushes on every machine.
//
// The queue is a calendar. Near events lie unsorted in buckets; only the current bucket is sorted.
// Far events (timers) wait in a heap and move to a bucket as the calendar advances. Most events are
// at most some microseconds ahead, so a push is an append and a pop takes the last entry of a short
// array. More nodes make narrower buckets. An event for the current bucket or an earlier one is
// inserted while the bucket is short, and goes to a second heap when the bucket is long: many nodes
// that wake at one instant fill it with thousands.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace pyrdma {

using Picos = std::int64_t;  // picoseconds of virtual time
inline constexpr Picos kNever = std::numeric_limits<Picos>::max();

/// An event happens at a time. The code that schedules it owns it and keeps it alive until it has
/// fired.
class SimEvent {
 public:
  enum class Kind : std::uint8_t { kCallback, kThread };
  explicit SimEvent(Kind kind = Kind::kCallback) : kind_(kind) {}
  virtual ~SimEvent() = default;
  virtual void fire(Picos now) = 0;
  /// Prefetches the data that the event will use, because it fires soon. Changes nothing.
  virtual void prefetch() const {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

class EventQueue {
 public:
  struct Entry {
    Picos time;
    std::uint64_t ticket;
    SimEvent* event;
  };
  explicit EventQueue(std::uint32_t nodes = 1)
      : width_bits_(std::max(10, 15 - (static_cast<int>(std::bit_width(nodes)) - 4) / 2)),
        count_(Picos{1} << (kWindowBits - width_bits_)),
        buckets_(static_cast<std::size_t>(count_), kNone),
        occupied_(buckets_.size() / 64) {}

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  /// Returns true if an event comes before `time`. Does not move the calendar: it would move to the
  /// next timer, and all events that are pushed before that timer would miss their buckets.
  bool has_before(Picos time) const {
    if (!current_.empty() && current_.back().time < time) return true;
    if (!early_.empty() && early_.front().time < time) return true;
    if (near_ == 0) return !far_.empty() && far_.front().time < time;
    const Picos slot = next_occupied();
    if (slot != time >> width_bits_) return slot < time >> width_bits_;
    for (std::uint32_t node = buckets_[index_of(slot)]; node != kNone; node = nodes_[node].next)
      if (nodes_[node].entry.time < time) return true;
    return false;
  }

  std::uint64_t push(Picos time, SimEvent* event) {
    const Entry entry{time, ++tickets_, event};
    ++size_;
    const Picos slot = time >> width_bits_;
    if (slot <= slot_) {
      insert(entry);
    } else if (slot < slot_ + count_) {
      put(entry, slot);
    } else {
      far_.push_back(entry);
      std::push_heap(far_.begin(), far_.end(), Later{});
    }
    return entry.ticket;
  }

  Entry pop() {
    if (current_.empty() && early_.empty()) advance();
    --size_;
    if (current_.size() > kAhead) current_[current_.size() - 1 - kAhead].event->prefetch();
    if (early_is_next()) {
      const Entry next = early_.front();
      std::pop_heap(early_.begin(), early_.end(), Later{});
      early_.pop_back();
      return next;
    }
    const Entry next = current_.back();
    current_.pop_back();
    return next;
  }

 private:
  static constexpr std::size_t kAhead = 4;  // events that are prefetched while earlier ones happen
  // The calendar spans 8 us, so a message in flight is in the calendar and not in the heap of
  // timers.
  static constexpr int kWindowBits = 23;
  static constexpr std::size_t kShort =
      32;  // entries that are cheaper to move than to keep in a heap

  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return key(a) > key(b); }
    // One comparison of 128 bits avoids a branch that is mispredicted half the time.
    static unsigned __int128 key(const Entry& entry) {
      return (static_cast<unsigned __int128>(entry.time) << 64) | entry.ticket;
    }
  };
  std::size_t index_of(Picos slot) const { return static_cast<std::size_t>(slot & (count_ - 1)); }
  bool early_is_next() const {
    return !early_.empty() && (current_.empty() || Later{}(current_.back(), early_.front()));
  }
  void insert(const Entry& entry) {
    if (current_.size() >= kShort) {
      early_.push_back(entry);
      std::push_heap(early_.begin(), early_.end(), Later{});
      return;
    }
    current_.push_back(entry);
    std::size_t i = current_.size() - 1;
    for (; i > 0 && Later{}(entry, current_[i - 1]); --i) current_[i] = current_[i - 1];
    current_[i] = entry;
  }
  // A bucket is a list of nodes from one pool. The pool reuses the node freed last first, because
  // that node is in the cache.
  void put(const Entry& entry, Picos slot) {
    const std::size_t index = index_of(slot);
    std::uint32_t node = free_;
    if (node == kNone) {
      node = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {entry, buckets_[index]};
    buckets_[index] = node;
    occupied_[index / 64] |= 1ULL << (index % 64);
    ++near_;
  }

  // Makes the next slot with events the current slot. Requires at least one event.
  void advance() {
    slot_ = near_ > 0 ? next_occupied() : far_.front().time >> width_bits_;
    while (!far_.empty() && far_.front().time >> width_bits_ < slot_ + count_) {
      const Entry entry = far_.front();
      std::pop_heap(far_.begin(), far_.end(), Later{});
      far_.pop_back();
      put(entry, entry.time >> width_bits_);
    }
    const std::size_t index = index_of(slot_);
    occupied_[index / 64] &= ~(1ULL << (index % 64));
    std::uint32_t last = kNone;
    for (std::uint32_t node = buckets_[index]; node != kNone; node = nodes_[node].next) {
      current_.push_back(nodes_[node].entry);
      const auto* event = reinterpret_cast<const char*>(nodes_[node].entry.event);
      __builtin_prefetch(event);
      __builtin_prefetch(event + 64);
      last = node;
    }
    near_ -= current_.size();
    if (last != kNone) {
      nodes_[last].next = free_;
      free_ = std::exchange(buckets_[index], kNone);
    }
    // The list yields events of one moment in order.
    if (!std::is_sorted(current_.begin(), current_.end(), Later{}))
      std::sort(current_.begin(), current_.end(), Later{});
  }

  Picos next_occupied() const {
    const std::size_t start = index_of(slot_ + 1);
    std::size_t word = start / 64;
    std::uint64_t bits = occupied_[word] & (~0ULL << (start % 64));
    while (bits == 0) {
      word = (word + 1) % occupied_.size();
      bits = occupied_[word];
    }
    const std::size_t index = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    return slot_ + 1 + static_cast<Picos>((index - start) & (buckets_.size() - 1));
  }

  int width_bits_;  // of a bucket, in picoseconds: 32 ns for a few nodes, 1 ns for many thousands
  Picos count_;     // number of buckets, a power of two
  std::vector<Entry> current_;  // entries of slot_ and earlier, the next one last
  std::vector<Entry> early_;    // heap
  static constexpr std::uint32_t kNone = ~0u;
  struct Node {
    Entry entry;
    std::uint32_t next;
  };
  std::vector<Node> nodes_;
  std::uint32_t free_ = kNone;
  std::vector<std::uint32_t> buckets_;  // first node
  std::vector<std::uint64_t> occupied_;
  std::vector<Entry> far_;  // a heap
  Picos slot_ = 0;
  std::size_t near_ = 0, size_ = 0;
  std::uint64_t tickets_ = 0;
};

}  // namespace pyrdma
