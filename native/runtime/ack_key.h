// The key of an asynchronous operation: whether the RDMA operations behind it have completed (LOCO,
// sections 5.2 and A.1).
//
// A key is a bitset with one bit per post in flight. The caller writes the word of posted bits, the
// polling thread the word of completed ones, so a query is a comparison, and no thread needs an
// atomic instruction. The requests of a post complete in order, so only the last one asks for a
// completion (LOCO's paper has a bit for each). A completion finds its bit by its wr_id: the
// address of a block of bits, and the bit's number in the 6 low bits that the block's alignment
// leaves free.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/units.h"
#include "env/env.h"
#include "fabric/types.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime {

class Caller;

/// Up to kMost posts. Of one caller; marked by any thread that polls, one at a time.
struct alignas(kCacheLine) AckBits {
  static constexpr std::size_t kMost = 63;
  static constexpr std::uint64_t kNoBit = 63;  // of the requests before the last of a post

  std::atomic<std::uint64_t> done{0};                            // written by the polling thread
  std::atomic<fabric::Status> status{fabric::Status::kSuccess};  // the first error; likewise
  NodeId failed_peer = fabric::kNoNode;                          // of the first error; likewise
  std::uint64_t posted = 0;                                      // written by the caller
  Caller& caller;
  AckBits* next = nullptr;  // of the same key, or of the same list of free blocks
  MemRef buffer;            // used by the operations; goes back to its pool when they have ended

  explicit AckBits(Caller& owner) : caller(owner) {}
  bool has_room() const { return posted != ~std::uint64_t{0} >> 1; }
  /// The wr_id of the last request of another post. Requires has_room().
  std::uint64_t add() {
    const auto bit = static_cast<std::uint64_t>(std::countr_one(posted));
    posted |= 1ULL << bit;
    return address() | bit;
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(this); }
  static AckBits* of(std::uint64_t wr_id) {
    return reinterpret_cast<AckBits*>(wr_id & ~std::uint64_t{63});
  }
  bool ended() const { return done.load(std::memory_order_acquire) == posted; }
  /// The post's last request. The others complete only if they fail, and the last one then too.
  static bool ends_post(std::uint64_t wr_id) { return (wr_id & 63) != kNoBit; }
  /// A request of a post to `peer` has failed. Before end() of the post.
  static void fail(std::uint64_t wr_id, fabric::Status why, NodeId peer) {
    AckBits* bits = of(wr_id);
    if (bits->status.load(std::memory_order_relaxed) != fabric::Status::kSuccess) return;
    bits->failed_peer = peer;
    bits->status.store(why, std::memory_order_release);
  }
  /// A post has ended. A caller that then finds it ended sees the bytes that it read.
  static void end(std::uint64_t wr_id) {
    AckBits* bits = of(wr_id);
    const std::uint64_t done = bits->done.load(std::memory_order_relaxed);
    bits->done.store(done | 1ULL << (wr_id & 63), std::memory_order_release);
  }
};

/// Movable, used by the thread whose operations it tracks. Dropping it forgets the operations; they
/// go on, and the buffers that they use still belong to the NIC until they end.
class AckKey {
 public:
  AckKey() = default;
  explicit AckKey(AckBits* bits) : bits_(bits) {}
  AckKey(AckKey&& other) noexcept : bits_(std::exchange(other.bits_, nullptr)) {}
  AckKey& operator=(AckKey&& other) noexcept {
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~AckKey() {
    if (bits_ != nullptr) release();
  }

  /// True once every operation has completed, with success or not. Makes no progress by itself
  /// where callers poll: wait() and Runtime::turn() do.
  bool query() const {
    for (const AckBits* b = bits_; b != nullptr; b = b->next) {
      if (!b->ended()) return false;
    }
    return true;
  }
  /// The first error of a completed operation.
  fabric::Status status() const;
  /// The node that the operation of status() went to; kNoNode without an error.
  NodeId failed_peer() const;
  /// Blocks until query() holds, and returns status(). Throws Error(kTimeout), naming the peers
  /// that do not answer, after the runtime's wait_timeout; connections report the death of a peer
  /// earlier, by themselves.
  fabric::Status wait();
  /// Takes the operations of `other`, of the same caller, over. Cost: the number of blocks.
  void unite(AckKey&& other);
  /// Keeps a buffer that the operations use until they have ended, even if the key is dropped
  /// before. One buffer per key that is not united.
  void keep(MemRef&& buffer) {
    if (bits_ != nullptr) bits_->buffer = std::move(buffer);
  }

 private:
  friend class AckPool;
  const AckBits* failed() const;
  void release();
  AckBits* bits_ = nullptr;
};

/// The blocks of one caller. A block whose key was dropped while operations were in flight is taken
/// again only after they have ended.
class AckPool {
 public:
  explicit AckPool(Caller& caller) : caller_(caller) {}
  /// A block of `key`, of this caller, that has a bit left.
  AckBits& room_in(AckKey& key) {
    if (key.bits_ == nullptr) [[likely]] {
      key.bits_ = take();
    } else if (!key.bits_->has_room()) {
      key.unite(AckKey(take()));
    }
    return *key.bits_;
  }
  AckBits* take() {
    if (free_ == nullptr && !reclaim()) [[unlikely]]
      return &all_.emplace_back(caller_);
    AckBits* bits = free_;
    free_ = bits->next;
    bits->next = nullptr;
    bits->posted = 0;
    bits->done.store(0, std::memory_order_relaxed);
    bits->status.store(fabric::Status::kSuccess, std::memory_order_relaxed);
    return bits;
  }
  void give_back(AckBits* bits);

 private:
  bool reclaim();
  Caller& caller_;
  AckBits* free_ = nullptr;
  AckBits* abandoned_ = nullptr;
  std::deque<AckBits> all_;
};

}  // namespace pyrdma::runtime
