#include "runtime/memory_pool.h"

#include <algorithm>
#include <mutex>

#include "base/assert.h"
#include "base/error.h"

namespace pyrdma::runtime {

MemoryPool::MemoryPool(Env& env, fabric::ProtectionDomain& pd, std::uint64_t page_bytes)
    : env_(env), pd_(pd), page_bytes_(page_bytes), mutex_(env) {}

LocalRegion MemoryPool::allocate(std::uint64_t bytes, std::uint32_t access, Placement placement) {
  if (!env_.device().capabilities().device_memory) placement = Placement::kHost;
  const std::uint64_t rounded =
      (std::max<std::uint64_t>(bytes, 1) + kCacheLine - 1) & ~(kCacheLine - 1);
  const std::lock_guard lock(mutex_);
  Page& page = page_with(rounded, access, placement);
  LocalRegion region;
  region.data = page.region->data() == nullptr ? nullptr : page.region->data() + page.used;
  region.addr = page.region->addr() + page.used;
  region.bytes = bytes;
  region.lkey = page.region->lkey();
  region.rkey = page.region->rkey();
  page.used += rounded;
  return region;
}

MemoryPool::Page& MemoryPool::page_with(std::uint64_t bytes, std::uint32_t access,
                                        Placement placement) {
  for (Page& page : pages_) {
    if (page.placement == placement && page.access == access &&
        page.region->size() - page.used >= bytes)
      return page;
  }
  Page page;
  page.access = access;
  page.placement = placement;
  // Memory on the NIC is small, so each of its regions is an allocation of its own.
  page.region = placement == Placement::kDevice
                    ? env_.device().allocate_device_memory(pd_, bytes, access)
                    : env_.device().allocate(pd_, std::max(bytes, page_bytes_), access);
  return pages_.emplace_back(std::move(page));
}

BlockPool::BlockPool(MemoryPool& memory, std::uint32_t block_bytes, std::uint32_t blocks)
    : memory_(memory),
      block_bytes_((block_bytes + kCacheLine - 1) & ~std::uint32_t{kCacheLine - 1}),
      blocks_(blocks) {
  grow();
}

void BlockPool::grow() {
  const LocalRegion& region =
      regions_.emplace_back(memory_.allocate(std::uint64_t{block_bytes_} * blocks_));
  // The first block goes on top of the stack, so that the pool reuses memory that was used lately.
  for (std::uint32_t i = blocks_; i-- > 0;)
    free_.push_back(region.data + std::size_t{i} * block_bytes_);
}

MemRef BlockPool::take(std::uint32_t bytes) {
  if (bytes > block_bytes_) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument, "temporary block of " + std::to_string(bytes) +
                                                 " bytes requested; each block has " +
                                                 std::to_string(block_bytes_) +
                                                 ": raise block_bytes");
  }
  if (free_.empty()) [[unlikely]]
    grow();
  std::byte* block = free_.back();
  free_.pop_back();
  return {this, block};
}

}  // namespace pyrdma::runtime
