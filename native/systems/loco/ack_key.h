// What an asynchronous operation returns: whether the RDMA operations behind it have completed
// (paper, sections 5.2 and A.1).
//
// A key is a bitset with one bit per operation in flight, registered with whoever polls the node's
// completion queue, who clears the bits. So a query is a comparison with zero. A completion finds
// its bit by its wr_id: the address of a block of 64 bits, and the bit's number in the 6 low bits
// that the block's alignment leaves free.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/units.h"
#include "fabric/types.h"
#include "systems/loco/network_memory.h"

namespace pyrdma::loco {

class Caller;

/// Up to 64 operations in flight. Of one caller; cleared by any thread that polls.
struct alignas(kCacheLine) AckBits {
  std::atomic<std::uint64_t> in_flight{0};
  std::atomic<fabric::Status> status{fabric::Status::kSuccess};  // the first error
  std::uint8_t used = 0;                                         // bits that were given out
  Caller* caller = nullptr;
  AckBits* next = nullptr;  // of the same key, or of the same list of free blocks
  MemRef buffer;            // what the operations use; goes back to its pool when they have ended

  /// The wr_id of the next operation, whose bit is set. Requires used < 64.
  std::uint64_t add() {
    in_flight.fetch_or(1ULL << used, std::memory_order_relaxed);
    return reinterpret_cast<std::uint64_t>(this) | used++;
  }
  static AckBits* of(std::uint64_t wr_id) {
    return reinterpret_cast<AckBits*>(wr_id & ~std::uint64_t{63});
  }
  /// Clears the bit of a completed operation. What the operation read is visible to a caller that
  /// then finds the bit clear.
  static void complete(std::uint64_t wr_id, fabric::Status outcome) {
    AckBits* bits = of(wr_id);
    if (outcome != fabric::Status::kSuccess) [[unlikely]] {
      fabric::Status none = fabric::Status::kSuccess;
      bits->status.compare_exchange_strong(none, outcome, std::memory_order_relaxed);
    }
    bits->in_flight.fetch_and(~(1ULL << (wr_id & 63)), std::memory_order_release);
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
  /// where callers poll: wait() and Manager::turn() do.
  bool query() const {
    for (const AckBits* b = bits_; b != nullptr; b = b->next) {
      if (b->in_flight.load(std::memory_order_acquire) != 0) return false;
    }
    return true;
  }
  /// The first error of a completed operation.
  fabric::Status status() const;
  /// Blocks until query() holds, and returns status(). Throws Error(kTimeout), naming the peers
  /// that do not answer, when the manager's patience is over; connections report the death of a
  /// peer earlier, by themselves.
  fabric::Status wait();
  /// Takes the operations of `other`, of the same caller, over. Cost: the number of blocks.
  void unite(AckKey&& other);
  /// Keeps a buffer that the operations use until they have ended, even if the key is dropped
  /// before. Requires operations; one buffer per post.
  void keep(MemRef&& buffer) { bits_->buffer = std::move(buffer); }

 private:
  friend class Caller;
  void release();
  AckBits* bits_ = nullptr;
};

/// The blocks of one caller. A block whose key was dropped while operations were in flight is taken
/// again only after they have ended.
class AckPool {
 public:
  explicit AckPool(Caller& caller) : caller_(caller) {}
  AckBits* take();
  void give_back(AckBits* bits);

 private:
  bool reclaim();
  Caller& caller_;
  AckBits* free_ = nullptr;
  AckBits* abandoned_ = nullptr;
  std::deque<AckBits> all_;
};

}  // namespace pyrdma::loco
