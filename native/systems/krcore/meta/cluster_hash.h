// A hash table that other nodes look up with RDMA READs alone, after DrTM-KV's cluster hash (Wei et
// al., SOSP 2015), which holds the metadata of the meta servers and the ValidMR table
// (section 4.2).
//
// A lookup reads a bucket and then an entry: two READs, more after collisions. A bucket has 8 slots
// of 4 bytes with 16 bits of the hash and the number of an entry; the last slot of a full bucket
// leads to another one. An entry has its key, a checksum and the payload. The checksum tells a
// reader that the owner has changed the entry meanwhile.
//
// The last bucket of a chain that is empty serves another chain. A reader that comes late to it
// finds keys of others there, and none of its own chain. That is right: a key that is in the table
// for all the time of a lookup keeps its bucket, which is not empty then, or moves once to a bucket
// to which the one before leads by then.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "base/function_ref.h"
#include "base/rng.h"
#include "fabric/fabric.h"
#include "systems/krcore/bugs.h"

namespace pyrdma::krcore {

/// The shape of a table, which a reader must know. Plain data.
struct HashShape {
  std::uint32_t buckets = 0;  // that a hash can name; as many more for collisions
  std::uint32_t entries = 0;
  std::uint32_t payload_bytes = 0;

  static constexpr std::uint32_t kSlots = 8;
  static constexpr std::uint32_t kBucketBytes = kSlots * sizeof(std::uint32_t);
  static constexpr std::uint32_t kMostEntries = 0xfffe;
  /// Returns the shape of a table for `entries` keys, of which its buckets hold five each.
  static HashShape of(std::uint32_t entries, std::uint32_t payload_bytes);
  std::uint32_t entry_bytes() const { return 2 * sizeof(std::uint32_t) + payload_bytes; }
  std::uint64_t bytes() const {
    return std::uint64_t{2} * buckets * kBucketBytes + std::uint64_t{entries} * entry_bytes();
  }
  std::uint64_t bucket_at(std::uint32_t bucket) const {
    return std::uint64_t{bucket} * kBucketBytes;
  }
  std::uint64_t entry_at(std::uint32_t entry) const {
    return std::uint64_t{2} * buckets * kBucketBytes + std::uint64_t{entry} * entry_bytes();
  }
};

/// The owner's side, in memory that peers may read. One thread at a time.
class ClusterHash {
 public:
  /// `memory` has shape.bytes() zeroed bytes and outlives the table.
  ClusterHash(HashShape shape, std::byte* memory, Bugs bugs = {});
  /// Adds the key, or replaces its payload. Returns false when the table is full: it has all its
  /// entries, or the key's buckets are full and all those for collisions hold something.
  [[nodiscard]] bool insert(std::uint32_t key, std::span<const std::byte> payload);
  bool erase(std::uint32_t key);
  /// Copies the payload of `key`.
  bool find(std::uint32_t key, std::span<std::byte> payload) const;
  std::uint32_t size() const { return size_; }
  /// Buckets for collisions that no chain has.
  std::size_t free_buckets() const { return free_buckets_.size(); }
  const HashShape& shape() const { return shape_; }

 private:
  std::uint32_t* slots_of(std::uint32_t bucket) const;
  std::uint32_t* slot_of(std::uint32_t key) const;
  std::uint32_t* free_slot(std::uint32_t key);
  void free_empty_buckets(std::uint32_t first);
  std::uint32_t load(const std::uint32_t* word) const;
  void write_entry(std::uint32_t entry, std::uint32_t key, std::span<const std::byte> payload);
  HashShape shape_;
  std::byte* memory_;
  const Bugs bugs_;
  std::vector<std::uint32_t> free_entries_;
  std::vector<std::uint32_t> free_buckets_;  // for collisions
  std::uint32_t size_ = 0;
};

/// Reads `into.size()` bytes of a remote table from `offset` on. Returns false when that failed.
using ReadTable = FunctionRef<bool(std::uint64_t offset, std::span<std::byte> into)>;

enum class LookupResult : std::uint8_t { kFound, kAbsent, kFailed };

/// Looks `key` up in a remote table and copies its payload. Bytes that cannot be a table's end the
/// lookup as kFailed.
LookupResult look_up(const HashShape& shape, std::uint32_t key, std::span<std::byte> payload,
                     ReadTable read);

}  // namespace pyrdma::krcore
