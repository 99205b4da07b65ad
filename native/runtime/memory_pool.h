// Registered memory of a node. The node registers a few large pages and cuts regions and temporary
// blocks from them, because a registration is slow and a NIC caches few translations (LOCO, section
// A.2). Regions with different rights of peers lie in different pages, because a NIC checks rights
// per registration.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "env/sync.h"
#include "fabric/fabric.h"

namespace pyrdma::runtime {

/// The place of a region. Memory on the NIC is faster for remote requests, but the CPU cannot reach
/// it. It suits state that only the network touches, such as the words of a lock.
enum class Placement : std::uint8_t { kHost, kDevice };

/// A contiguous part of a registered page. Plain data; the page outlives it.
struct LocalRegion {
  std::byte* data = nullptr;  // nullptr for memory on the NIC
  std::uint64_t addr = 0;
  std::uint64_t bytes = 0;
  std::uint32_t lkey = 0, rkey = 0;

  fabric::Sge sge(std::uint64_t offset, std::uint32_t length) const {
    return {addr + offset, length, lkey};
  }
  /// The address, length and key by which a peer reaches the region.
  fabric::RemoteRegion remote() const { return {addr, bytes, rkey, fabric::kNoNode}; }
};

class MemoryPool {
 public:
  /// `page_bytes` is the size of a registration; a larger region gets a larger registration.
  MemoryPool(Env& env, fabric::ProtectionDomain& pd, std::uint64_t page_bytes);

  /// Returns a zeroed region, aligned to a cache line, that exists as long as the pool. `access` is
  /// an or of fabric::Access: peers have the rights that it names, by default none. Regions are
  /// never given back, so a late write of a peer never hits the memory of another region. Any
  /// thread may call. Some calls register a page. kDevice falls back to host memory if the device
  /// has no memory. Throws Error(kExhausted) when there is no memory left.
  LocalRegion allocate(std::uint64_t bytes, std::uint32_t access = fabric::kLocalWrite,
                       Placement placement = Placement::kHost);

 private:
  struct Page {
    std::unique_ptr<fabric::MemoryRegion> region;
    std::uint64_t used = 0;
    std::uint32_t access = fabric::kLocalWrite;
    Placement placement = Placement::kHost;
  };
  Page& page_with(std::uint64_t bytes, std::uint32_t access, Placement placement);

  Env& env_;
  fabric::ProtectionDomain& pd_;
  std::uint64_t page_bytes_;
  Mutex mutex_;
  std::vector<Page> pages_;
};

class BlockPool;

/// A temporary block of registered memory for the input or output of a request (LOCO's mem_ref).
/// Movable; its destructor returns it to its pool. It belongs to the NIC while a request uses it.
class MemRef {
 public:
  MemRef() = default;
  MemRef(BlockPool* pool, std::byte* data) : pool_(pool), data_(data) {}
  MemRef(MemRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  MemRef& operator=(MemRef&& other) noexcept {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    return *this;
  }
  ~MemRef() { release(); }
  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  fabric::Sge sge(std::uint32_t length, std::uint32_t offset = 0) const;

 private:
  void release();
  BlockPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Blocks of one size for one thread at a time. The pool outlives its blocks; the memory outlives
/// both.
class BlockPool {
 public:
  BlockPool(MemoryPool& memory, std::uint32_t block_bytes, std::uint32_t blocks);
  /// Throws Error(kInvalidArgument) when `bytes` exceeds a block, naming the option to raise. Takes
  /// more memory when no block is left. Cost: a few instructions without a lock.
  MemRef take(std::uint32_t bytes);
  void give_back(std::byte* block) { free_.push_back(block); }
  std::uint32_t lkey_of(const std::byte* block) const {
    for (const LocalRegion& region : regions_) {
      if (static_cast<std::uint64_t>(block - region.data) < region.bytes) return region.lkey;
    }
    PYRDMA_ASSERT(false);
  }
  std::uint32_t block_bytes() const { return block_bytes_; }

 private:
  void grow();
  MemoryPool& memory_;
  std::uint32_t block_bytes_, blocks_;
  std::vector<LocalRegion> regions_;
  std::vector<std::byte*> free_;
};

inline void MemRef::release() {
  if (pool_ != nullptr) pool_->give_back(data_);
}

inline fabric::Sge MemRef::sge(std::uint32_t length, std::uint32_t offset) const {
  return {reinterpret_cast<std::uint64_t>(data_) + offset, length, pool_->lkey_of(data_)};
}

}  // namespace pyrdma::runtime
