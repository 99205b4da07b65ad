// Both sides of the rings of layout.h. A writer or taker is open over one batch of requests and
// holds the ring's lock meanwhile. A thread holds at most one ring of each kind at a time, receives
// before completions. `self` is the holder_word() of the caller's node.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <span>
#include <type_traits>

#include "fabric/post_rules.h"
#include "fabric/shm/copy.h"
#include "fabric/shm/lock.h"
#include "fabric/shm/peer.h"

namespace pyrdma::fabric::shm {

/// Returns the number that marks the entry at `position` as written.
inline std::uint32_t sequence_of(std::uint64_t position) {
  return static_cast<std::uint32_t>(position + 1);
}

// A claim may read the words of a posted receive while the owner writes those of the next receive
// in the same place; it then fails. The sanitizer must see that nothing else depends on them.
template <class T>
T load_word(T& word) {
#if defined(PYRDMA_THREAD_SANITIZER)
  return std::atomic_ref<T>(word).load(std::memory_order_relaxed);
#else
  return word;
#endif
}
template <class T>
void store_word(T& word, std::type_identity_t<T> value) {
#if defined(PYRDMA_THREAD_SANITIZER)
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
#else
  word = value;
#endif
}
inline void load_sge(Sge& from, Sge& to) {
#if defined(PYRDMA_THREAD_SANITIZER)
  to = {load_word(from.addr), load_word(from.length), load_word(from.lkey)};
#else
  to = from;
#endif
}
inline void store_sge(Sge& to, const Sge& from) {
#if defined(PYRDMA_THREAD_SANITIZER)
  store_word(to.addr, from.addr);
  store_word(to.length, from.length);
  store_word(to.lkey, from.lkey);
#else
  to = from;
#endif
}

/// The result of opening a ring.
enum class Opened : std::uint8_t {
  kYes,
  kGone,  // the queue has been destroyed
  kBusy,  // a node that lives holds the lock
};

/// CompletionWriter produces completions of receives, for a queue pair of any node.
class CompletionWriter {
 public:
  Opened open(const CompletionView& view, std::uint32_t self, const SessionBlock& session,
              Time patience) {
    if (view.ring == nullptr) return Opened::kGone;
    if (!lock(view.ring->head.lock, self, session, patience)) return Opened::kBusy;
    view_ = view;
    if (relaxed(view.ring->head.id) != view.id) {
      close();
      return Opened::kGone;
    }
    // No entry of a queue that has overrun is polled any more, so none may be promised.
    if (relaxed(view.first->overrun) != 0) [[unlikely]]
      view_.capacity = 0;
    produced_ = relaxed(view.ring->produced);
    // A writer may have died after it published an entry and before it counted the entry.
    for (std::uint32_t n = 0; n <= view_.mask; ++n, ++produced_) {
      if (relaxed(view_.entry(produced_).sequence) != sequence_of(produced_)) break;
    }
    return Opened::kYes;
  }
  bool is_open() const { return view_.ring != nullptr; }

  /// Returns false when the queue overruns or has overrun, which kills it.
  bool push(const Completion& c) {
    if (!has_room()) [[unlikely]]
      return false;
    CompletionEntry& entry = view_.entry(produced_);
    set_relaxed(entry.bytes, c.byte_count | c.stride << 16);
    set_relaxed(entry.immediate, c.immediate);
    set_relaxed(entry.source, c.source_node << 24 | c.source_qpn);
    publish(entry, c.wr_id, c.qp_num,
            {static_cast<std::uint8_t>(c.status), static_cast<std::uint8_t>(c.opcode), c.flags,
             CompletionKind::kReceive});
    return true;
  }
  /// Does the same for a datagram in a receive of `qp_num`.
  [[gnu::always_inline]] bool push_datagram(std::uint64_t wr_id, std::uint32_t qp_num,
                                            std::uint32_t bytes, std::uint32_t stride,
                                            NodeId source, std::uint32_t source_qpn) {
    if (!has_room()) [[unlikely]]
      return false;
    CompletionEntry& entry = view_.entry(produced_);
    set_relaxed(entry.bytes, bytes | stride << 16);
    set_relaxed(entry.immediate, 0U);
    set_relaxed(entry.source, source << 24 | source_qpn);
    publish(entry, wr_id, qp_num,
            {static_cast<std::uint8_t>(Status::kSuccess),
             static_cast<std::uint8_t>(Opcode::kReceive), kHasGrh, CompletionKind::kReceive});
    return true;
  }
  void close() {
    unlock(view_.ring->head.lock);
    view_.ring = nullptr;
  }

 private:
  bool has_room() {
    CompletionRing& ring = *view_.ring;
    if (produced_ - relaxed(ring.consumed_seen) < view_.capacity) [[likely]]
      return true;
    const std::uint64_t consumed = ring.consumed.load(std::memory_order_acquire);
    set_relaxed(ring.consumed_seen, consumed);
    if (produced_ - consumed < view_.capacity) return true;
    view_.first->overrun.store(1, std::memory_order_release);
    return false;
  }
  void publish(CompletionEntry& entry, std::uint64_t wr_id, std::uint32_t qp_num,
               CompletionTags tags) {
    set_relaxed(entry.wr_id, wr_id);
    set_relaxed(entry.qp_num, qp_num);
    set_relaxed(entry.tags, std::bit_cast<std::uint32_t>(tags));
    entry.sequence.store(sequence_of(produced_++), std::memory_order_release);
    set_relaxed(view_.ring->produced, produced_);
    fetch_to_write(&view_.entry(produced_ + 8));
  }

  CompletionView view_;
  std::uint64_t produced_ = 0;
};

/// TakenReceive is a private copy of a taken receive, safe from later writes of the peer.
struct TakenReceive {
  std::uint64_t wr_id = 0;
  std::uint32_t sge_count = 0;
  std::uint32_t stride = 0;
  std::array<Sge, kMaxSges> sges;
};

/// ReceiveTaker takes posted receives, or strides of them; the requester uses it.
class ReceiveTaker {
 public:
  Opened open(const ReceiveView& view, std::uint32_t self, const SessionBlock& session,
              Time patience) {
    if (view.ring == nullptr) return Opened::kGone;
    if (!lock(view.ring->head.lock, self, session, patience)) return Opened::kBusy;
    view_ = view;
    if (relaxed(view.ring->head.id) != view.id) {
      close();
      return Opened::kGone;
    }
    taken_ = relaxed(view.ring->taken);
    posted_ = view.ring->posted.load(std::memory_order_acquire);
    return Opened::kYes;
  }
  bool is_open() const { return view_.ring != nullptr; }

  /// Copies the next stride of the oldest receive into `receive`; returns false when no receive is
  /// left.
  bool peek(TakenReceive& receive) {
    if (!has_next()) [[unlikely]]
      return false;
    copy_entry(view_, oldest(), receive);
    receive.stride = stride();
    receive.sges[0].length >>= view_.stride_bits;
    receive.sges[0].addr += std::uint64_t{receive.stride} * receive.sges[0].length;
    return true;
  }
  /// Takes a receive of a ring that several queue pairs share, without the lock: a requester that
  /// is stopped then holds up nobody. Returns false when none is left. The copy of the entry is
  /// whole if the counter has not moved since, because the owner writes no entry before it is
  /// taken. The counter has the ring's id, so the claim fails if the ring's space serves another
  /// queue.
  static bool claim(const ReceiveView& view, TakenReceive& receive) {
    if (view.ring == nullptr) return false;
    std::uint64_t taken = view.ring->taken.load(std::memory_order_acquire);
    for (;;) {
      const std::uint64_t posted = view.ring->posted.load(std::memory_order_acquire);
      if (taken == posted || taken >> 40 != first_of_shared(view.id) >> 40) return false;
      copy_entry(view, taken, receive);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (view.ring->taken.compare_exchange_strong(taken, taken + 1, std::memory_order_acq_rel,
                                                   std::memory_order_acquire)) {
        return true;
      }
    }
  }
  /// The buffer of a receive, for all its strides.
  struct Buffer {
    std::uint64_t wr_id = 0;
    Sge sge;
  };
  bool has_next() {
    if (oldest() != posted_) [[likely]]
      return true;
    posted_ = view_.ring->posted.load(std::memory_order_acquire);
    return oldest() != posted_;
  }
  /// The number of the oldest receive, and of its next stride.
  std::uint64_t oldest() const { return taken_ >> view_.stride_bits; }
  std::uint32_t stride() const {
    return static_cast<std::uint32_t>(taken_ & ((std::uint64_t{1} << view_.stride_bits) - 1));
  }
  std::uint32_t stride_bits() const { return view_.stride_bits; }
  /// Returns a copy of the buffer of the oldest receive, if that has one piece; else one of key 0.
  Buffer buffer() const {
    const ReceiveEntry& entry = view_.entry(oldest());
    const Buffer buffer{entry.wr_id, entry.first};
    const bool is_whole = entry.sge_count == 1;
    // The fence keeps the compiler from reading the entry again.
    std::atomic_signal_fence(std::memory_order_acq_rel);
    return is_whole ? buffer : Buffer{};
  }
  /// Returns the first buffer of the receive `count` positions later, if there is one. It is an
  /// unchecked hint.
  Sge ahead(std::uint64_t count) const {
    return posted_ - oldest() > count ? view_.entry(oldest() + count).first : Sge{};
  }
  /// Takes a stride. Must precede the write of the completion, so that a requester's death never
  /// completes a stride twice.
  void take() { view_.ring->taken.store(++taken_, std::memory_order_release); }
  /// Takes all strides that are left of the oldest receive.
  void take_whole() {
    taken_ |= (std::uint64_t{1} << view_.stride_bits) - 1;
    take();
  }
  void close() {
    unlock(view_.ring->head.lock);
    view_.ring = nullptr;
  }

 private:
  static void copy_entry(const ReceiveView& view, std::uint64_t position, TakenReceive& receive) {
    ReceiveEntry& entry = view.entry(position);
    receive.wr_id = load_word(entry.wr_id);
    load_sge(entry.first, receive.sges[0]);
    std::uint32_t count = load_word(entry.sge_count);
    // The fence keeps the compiler from reading the count again from the ring.
    std::atomic_signal_fence(std::memory_order_acq_rel);
    if (count > view.max_sges) count = view.max_sges;
    receive.sge_count = count;
    receive.stride = 0;
    Sge* more = view.more_sges(position);
    for (std::uint32_t i = 1; i < count; ++i) load_sge(more[i - 1], receive.sges[i]);
  }

  ReceiveView view_;
  std::uint64_t taken_ = 0, posted_ = 0;  // messages; receives
};

/// ReceivePoster is the owner's side of a receive ring.
class ReceivePoster {
 public:
  ReceivePoster() = default;
  ReceivePoster(const ReceiveView& view, std::uint32_t capacity)
      : view_(view),
        capacity_(capacity),
        posted_(relaxed(view.ring->posted)),
        taken_seen_(posted_) {}
  const ReceiveView& view() const { return view_; }

  PostResult post(std::span<const ReceiveRequest> requests) {
    PostResult result;
    for (const ReceiveRequest& request : requests) {
      if (!has_pieces_up_to(view_.max_sges, request) ||
          !has_strides(1U << view_.stride_bits, request)) {
        result.error = PostError::kInvalid;
        break;
      }
      if (posted_ - taken_seen_ >= capacity_) {
        taken_seen_ = view_.ring->taken.load(std::memory_order_acquire) >> view_.stride_bits;
        // A bad `taken` from a peer costs this queue its receives, nothing else.
        if (posted_ - taken_seen_ >= capacity_) {
          result.error = PostError::kQueueFull;
          break;
        }
      }
      ReceiveEntry& entry = view_.entry(posted_);
      store_word(entry.wr_id, request.wr_id);
      store_word(entry.sge_count, request.sge_count);
      if (request.sge_count != 0) store_sge(entry.first, request.sges[0]);
      Sge* more = view_.more_sges(posted_);
      for (std::uint32_t i = 1; i < request.sge_count; ++i) store_sge(more[i - 1], request.sges[i]);
      ++posted_;
      ++result.accepted;
    }
    // The store is sequentially consistent with the state of the queue pair, see
    // ShmQueuePair::post_receive.
    if (result.accepted != 0) view_.ring->posted.store(posted_);
    return result;
  }

 private:
  ReceiveView view_;
  std::uint32_t capacity_ = 0;
  std::uint64_t posted_ = 0, taken_seen_ = 0;
};

}  // namespace pyrdma::fabric::shm
