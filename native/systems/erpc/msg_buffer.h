// Message buffers (eRPC, sections 4.2.1 and 4.2.2). A buffer holds one message, of one or several
// packets, in memory that the NIC reads:
//
//   | header 1 | data, contiguous ... | header 2 | header 3 | ...
//
// The first header is beside its data, so the NIC fetches a small message with one read. A later
// packet takes two reads: its header, and its piece of the data.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "env/scope.h"
#include "env/sync.h"
#include "runtime/memory_pool.h"
#include "systems/erpc/packet_header.h"

namespace pyrdma::erpc {

class BufferPool;

/// Copies a piece of a message. Short pieces take no call.
inline void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes - 16 <= 16) {  // two halves, which may overlap
    std::memcpy(to, from, 16);
    std::memcpy(to + bytes - 16, from + bytes - 16, 16);
  } else {
    std::memcpy(to, from, bytes);
  }
}

/// A message buffer. The application owns it, except from enqueue_request until the continuation:
/// then the endpoint owns the buffers of the request and of the response.
class MsgBuffer {
 public:
  std::byte* data() const { return data_; }
  std::uint32_t size() const { return size_; }
  std::uint32_t capacity() const { return capacity_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  /// Sets the length of the message. Throws Error(kInvalidArgument) above the capacity.
  void resize(std::uint32_t bytes) {
    if (bytes > capacity_) [[unlikely]]
      throw_too_long(bytes);
    size_ = bytes;
  }

  /// Place of the header of packet `n`. The word before it is free for a checksum.
  std::byte* header(std::uint32_t n) const {
    return n == 0 ? data_ - kHeaderBytes
                  : data_ + (capacity_ + 7) / 8 * 8 + (n - 1) * kHeaderRoom + kChecksumBytes;
  }
  std::uint32_t lkey() const { return lkey_; }
  BufferPool& pool() const { return *pool_; }
  /// What a copy of a piece walks: a message of several packets leaves the core's own cache. Null
  /// for a buffer of one packet.
  const Footprint* footprint() const { return footprint_ ? &*footprint_ : nullptr; }

 private:
  friend class BufferPool;
  [[noreturn, gnu::cold, gnu::noinline]] void throw_too_long(std::uint32_t bytes) const;
  std::byte* data_ = nullptr;
  std::uint32_t size_ = 0, capacity_ = 0, lkey_ = 0, size_class_ = 0;
  BufferPool* pool_ = nullptr;
  std::optional<Footprint> footprint_;
};

/// Buffers in classes of sizes, each a power of two. Memory of the pool is never given back. A pool
/// that is shared may be used by several threads at once, at the price of a lock.
class BufferPool {
 public:
  /// `payload` is the number of data bytes of a packet.
  BufferPool(Env& env, runtime::MemoryPool& memory, std::uint32_t payload,
             std::uint32_t max_message, bool is_shared);
  /// Returns a buffer of that size. Throws Error(kInvalidArgument) above the longest message, and
  /// Error(kExhausted) without memory. Cost: a few instructions; registers memory when none is
  /// left, which takes some 30 us for each 256 KiB. So the first long requests stop a server's
  /// event loop: those of 50 clients with 128 KiB each for 0.86 ms.
  [[gnu::noinline]] MsgBuffer* take(std::uint32_t bytes);
  [[gnu::noinline]] void give_back(MsgBuffer* buffer);

 private:
  static constexpr std::uint32_t kLeastClass = 5, kClasses = 25;  // 32 bytes to 16 MiB
  static std::uint32_t class_of(std::uint32_t bytes);
  void grow(std::uint32_t size_class);

  Env& env_;
  runtime::MemoryPool& memory_;
  const std::uint32_t payload_, max_message_;
  const bool is_shared_;
  Mutex mutex_;
  std::deque<MsgBuffer> buffers_;
  std::array<std::vector<MsgBuffer*>, kClasses> free_;
};

}  // namespace pyrdma::erpc
