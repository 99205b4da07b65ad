#include "env/sim/disk_blocks.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace pyrdma {
namespace {

constexpr std::uint64_t kBlock = sizeof(DiskBlock);

/// Calls act(block, offset in it, offset in the bytes, number of bytes) for each block.
template <class Act>
void for_blocks(std::uint64_t offset, std::size_t bytes, Act&& act) {
  for (std::size_t done = 0; done < bytes;) {
    const std::uint64_t in_block = (offset + done) % kBlock;
    const auto count = std::min<std::size_t>(bytes - done, kBlock - in_block);
    act((offset + done) / kBlock, in_block, done, count);
    done += count;
  }
}

/// Each byte equals the next one.
bool is_zero(std::span<const std::byte> bytes) {
  return bytes[0] == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

std::shared_ptr<DiskBlock> BlockPool::keep(std::span<const std::byte> bytes) {
  std::weak_ptr<DiskBlock>& place = blocks_[crc32c(bytes)];
  std::shared_ptr<DiskBlock> known = place.lock();
  if (known != nullptr && std::memcmp(known->data(), bytes.data(), kBlock) == 0) return known;
  const auto fresh = std::make_shared<DiskBlock>();
  std::memcpy(fresh->data(), bytes.data(), kBlock);
  place = fresh;
  if (blocks_.size() >= forget_at_) forget_unused();
  return fresh;
}

std::size_t BlockPool::blocks() {
  forget_unused();
  return blocks_.size();
}

void BlockPool::forget_unused() {
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.expired(); });
  forget_at_ = std::max<std::size_t>(1024, 2 * blocks_.size());
}

void DiskContent::grow(std::uint64_t size) {
  if (size <= size_) return;
  blocks_.resize((size + kBlock - 1) / kBlock);
  size_ = size;
}

void DiskContent::write(std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  grow(offset + data.size());
  for_blocks(offset, data.size(),
             [&](std::uint64_t block, std::uint64_t at, std::size_t done, std::size_t count) {
               std::shared_ptr<DiskBlock>& place = blocks_[block];
               if (count == kBlock) {
                 const auto bytes = data.subspan(done, count);
                 place = is_zero(bytes) ? nullptr : pool_->keep(bytes);
                 return;
               }
               if (place == nullptr)
                 place = std::make_shared<DiskBlock>();
               else if (place.use_count() > 1)
                 place = std::make_shared<DiskBlock>(*place);
               std::memcpy(place->data() + at, data.data() + done, count);
             });
}

void DiskContent::read(std::uint64_t offset, std::span<std::byte> data) const {
  for_blocks(offset, data.size(),
             [&](std::uint64_t block, std::uint64_t at, std::size_t done, std::size_t count) {
               if (blocks_[block] == nullptr)
                 std::memset(data.data() + done, 0, count);
               else
                 std::memcpy(data.data() + done, blocks_[block]->data() + at, count);
             });
}

}  // namespace pyrdma
