// The description of a table: plain data that its storage nodes publish and its clients need.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "fabric/types.h"
#include "systems/krcore/race/layout.h"

namespace pyrdma::krcore::race {

inline constexpr std::uint32_t kMostNodes = 16;  // storage nodes of a table

/// Where things lie in the region of a storage node. All storage nodes of a table have the same
/// map; the directory is that of the first one.
///   0    the allocation word: the offset of the first byte that nobody has reserved
///   64   the global depth
///   128  the directory: 2^max_depth entries
///   then the first subtables, then the memory that clients reserve
inline constexpr std::uint64_t kAllocationAt = 0, kGlobalDepthAt = 64, kDirectoryAt = 128;

struct TableAddress {
  std::uint32_t nodes = 0;   // storage nodes
  std::uint32_t groups = 0;  // of a subtable: a power of two
  std::uint32_t first_depth = 0, max_depth = 0;
  std::uint32_t max_key_bytes = 0, max_value_bytes = 0;
  std::array<fabric::RemoteRegion, kMostNodes> regions{};  // by storage node

  std::uint64_t subtable_bytes() const {
    return kSubtableHead + std::uint64_t{groups} * kGroupBytes;
  }
  std::uint32_t block_units() const { return units_for(max_key_bytes, max_value_bytes); }
  std::uint32_t block_bytes() const { return block_units() * kUnit; }
  std::uint64_t first_subtables_at() const {
    return (kDirectoryAt + (8ULL << max_depth) + kUnit - 1) / kUnit * kUnit;
  }
  /// The first subtables go round the storage nodes.
  DirectoryEntry first_subtable(std::uint32_t index) const {
    return {index % nodes, first_depth, first_subtables_at() + index / nodes * subtable_bytes()};
  }
  std::uint64_t heap_at() const {
    return first_subtables_at() + ((1ULL << first_depth) + nodes - 1) / nodes * subtable_bytes();
  }
  /// Whether [offset, offset + bytes) lies in the memory of a storage node behind the directory.
  bool holds(std::uint32_t node, std::uint64_t offset, std::uint64_t bytes) const {
    return node < nodes && offset % kUnit == 0 && offset >= first_subtables_at() &&
           offset <= regions[node].length && bytes <= regions[node].length - offset;
  }

  /// Throws Error(kInvalidArgument), naming value and bounds, for a table that cannot be.
  void check() const;
};

/// Joins what the storage nodes of one table have published. Throws Error(kInvalidArgument) if one
/// is missing or the nodes have different options.
TableAddress join(std::span<const TableAddress> parts);

}  // namespace pyrdma::krcore::race
