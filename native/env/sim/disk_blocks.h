// The bytes of simulated files, in blocks that are shared: equal blocks of all disks of a cluster
// are kept once, so three replicas of a log take the memory of one.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace pyrdma {

using DiskBlock = std::array<std::byte, 4096>;

/// Finds a block that has given bytes already.
class BlockPool {
 public:
  /// Returns a block with these bytes, DiskBlock's size of them.
  std::shared_ptr<DiskBlock> keep(std::span<const std::byte> bytes);
  /// Blocks that some file still holds.
  std::size_t blocks();

 private:
  void forget_unused();

  // By the checksum that a block had when it came here: it may have changed. Of two blocks with one
  // checksum the newer is shared.
  std::unordered_map<std::uint64_t, std::weak_ptr<DiskBlock>> blocks_;
  std::size_t forget_at_ = 1024;
};

/// The content of a file. A copy shares its blocks, and a write replaces those that are shared. A
/// write of whole blocks costs a checksum of its bytes, or a look at them where they are zeros.
class DiskContent {
 public:
  explicit DiskContent(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}
  std::uint64_t size() const { return size_; }
  /// New bytes are zeros.
  void grow(std::uint64_t size);
  void write(std::uint64_t offset, std::span<const std::byte> data);
  /// Requires offset + data.size() <= size().
  void read(std::uint64_t offset, std::span<std::byte> data) const;

 private:
  std::shared_ptr<BlockPool> pool_;
  std::vector<std::shared_ptr<DiskBlock>> blocks_;  // null: zeros
  std::uint64_t size_ = 0;
};

}  // namespace pyrdma
