// The key of an asynchronous operation: whether the RDMA operations behind it have completed (LOCO,
// sections 5.2 and A.1).
//
// A key is a bitset with one bit per post in flight. The caller writes the word of posted bits, and
// the polling thread writes the word of completed bits. So a query is a comparison, and no thread
// needs an atomic instruction. The requests of a post complete in order, so only the last request
// asks for a completion (LOCO's paper has a bit for each request). The wr_id of a completion names
// its bit: the address of a block of bits, with the number of the bit in the 6 low bits that the
// alignment of the block leaves free.
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

/// A block of bits for up to kMost posts of one caller. Any polling thread marks bits, one thread
/// at a time.
struct alignas(kCacheLine) AckBits {
  static constexpr std::size_t kMost = 63;
  // The bits in the wr_id of the requests before the last of a post.
  static constexpr std::uint64_t kNoBit = 63;

  std::atomic<std::uint64_t> done{0};  // written by the polling thread
  // The first error and its peer; written by the polling thread.
  std::atomic<fabric::Status> status{fabric::Status::kSuccess};
  NodeId failed_peer = fabric::kNoNode;
  std::uint64_t posted = 0;  // written by the caller
  Caller& caller;
  AckBits* next = nullptr;  // the next block of the same key or of the same free list
  MemRef buffer;            // used by the operations; goes back to its pool after they end

  explicit AckBits(Caller& owner) : caller(owner) {}
  bool has_room() const { return posted != ~std::uint64_t{0} >> 1; }
  /// Returns the wr_id of the last request of another post. Requires has_room().
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
  /// The last request of a post has completed. The other requests complete only if they fail, and
  /// then the last one completes too.
  static bool ends_post(std::uint64_t wr_id) { return (wr_id & 63) != kNoBit; }
  /// A request of a post to `peer` has failed. Called before end() of the post.
  static void fail(std::uint64_t wr_id, fabric::Status why, NodeId peer) {
    AckBits* bits = of(wr_id);
    if (bits->status.load(std::memory_order_relaxed) != fabric::Status::kSuccess) return;
    bits->failed_peer = peer;
    bits->status.store(why, std::memory_order_release);
  }
  /// A post has ended. A caller that afterwards finds it ended sees the bytes that the post has
  /// read.
  static void end(std::uint64_t wr_id) {
    AckBits* bits = of(wr_id);
    const std::uint64_t done = bits->done.load(std::memory_order_relaxed);
    bits->done.store(done | 1ULL << (wr_id & 63), std::memory_order_release);
  }
};

/// Movable; used by the thread whose operations it tracks. A dropped key forgets its operations:
/// they go on, and their buffers belong to the NIC until they end.
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

  /// Returns true if no operation was posted with the key.
  bool empty() const { return bits_ == nullptr; }
  /// Returns true once every operation has completed, with or without an error. Where the callers
  /// poll, query() makes no progress; wait() and Runtime::turn() do.
  bool query() const {
    for (const AckBits* b = bits_; b != nullptr; b = b->next) {
      if (!b->ended()) return false;
    }
    return true;
  }
  /// Returns the first error of a completed operation.
  fabric::Status status() const;
  /// Returns the peer of the operation that status() reports; kNoNode without an error.
  NodeId failed_peer() const;
  /// Blocks until query() holds, and returns status(). Throws Error(kTimeout) after the runtime's
  /// wait_timeout, naming the peers that do not answer. A connection reports the death of its peer
  /// earlier.
  fabric::Status wait();
  /// Takes over the operations of `other`, a key of the same caller. Cost: the number of blocks.
  void unite(AckKey&& other);
  /// Keeps a buffer until the operations that use it have ended, even if the key is dropped
  /// earlier. Holds one buffer per key; a key with a buffer is not united.
  void keep(MemRef&& buffer) {
    if (bits_ != nullptr) bits_->buffer = std::move(buffer);
  }

 private:
  friend class AckPool;
  friend struct InFlight;
  void outlive(MemRef&& block);
  const AckBits* failed() const;
  void release();
  AckBits* bits_ = nullptr;
};

/// A block of memory and the key of the requests that use it. If it is dropped while requests are
/// in flight, the caller keeps both until they have ended, so that the NIC never writes into a
/// block that has another user. Movable; used by the thread of the caller.
struct InFlight {
  MemRef block;
  AckKey key;

  InFlight() = default;
  explicit InFlight(MemRef&& memory) : block(std::move(memory)) {}
  InFlight(InFlight&&) noexcept = default;
  InFlight& operator=(InFlight&& other) noexcept {
    drop();
    block = std::move(other.block);
    key = std::move(other.key);
    return *this;
  }
  ~InFlight() { drop(); }

 private:
  void drop() {
    if (block.data() != nullptr && !key.query()) [[unlikely]]
      key.outlive(std::move(block));
  }
};

/// The blocks of one caller. If a key is dropped while its operations are in flight, its block is
/// reused only after they have ended.
class AckPool {
 public:
  explicit AckPool(Caller& caller) : caller_(caller) {}
  /// Returns a block of `key`, a key of this caller, with a free bit.
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
