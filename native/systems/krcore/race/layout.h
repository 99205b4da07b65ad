// The words of the table as clients see them in the memory of a storage node (RACE, section 3.2).
//
// All words come from memory that others write, so nothing here asserts. A reader checks an offset
// against its region before it uses it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/rng.h"

namespace pyrdma::krcore::race {

// A bucket is a header and seven slots. A group is a main bucket, the overflow bucket and another
// main bucket. Each main bucket and the overflow bucket are one combined bucket, which one read
// fetches.
inline constexpr std::uint32_t kSlotsPerBucket = 7, kBucketBytes = 64;
inline constexpr std::uint32_t kBucketsPerGroup = 3, kGroupBytes = kBucketsPerGroup * kBucketBytes;
inline constexpr std::uint32_t kCombinedBytes = 2 * kBucketBytes;
inline constexpr std::uint32_t kSubtableHead = 64;  // bytes before the groups: the split word

inline constexpr std::uint32_t kUnit = 64;        // blocks begin at multiples of it, in bytes
inline constexpr std::uint32_t kMostUnits = 255;  // of a block
inline constexpr std::uint32_t kMostDepth = 15;   // a slot has four bits for it
inline constexpr std::uint32_t kVersions = 1U << 10;
inline constexpr std::uint32_t kMostBeat = 0x1ffff;  // of a split word, 17 bits

inline constexpr std::uint32_t mask_of(std::uint32_t depth) { return (1U << depth) - 1; }

/// A slot: | fingerprint 8 | length 8 | pointer 48 |, the length in units of 64 B.
///
/// The pointer is | frozen 1 | tentative 1 | depth 4 | version 10 | offset 32 |. The offset counts
/// units from the begin of the region. The version is that of the block, which counts its uses. A
/// slot without a block has length 0, and all its bits but the depth are 0.
///
/// The depth is the local depth under which the slot's content was placed. It makes every
/// compare-and-swap of a slot depend on the subtable's depth as well: after a split has passed a
/// slot, no change that was decided before can take effect there.
class Slot {
 public:
  constexpr Slot() = default;
  constexpr explicit Slot(std::uint64_t word) : word_(word) {}
  static constexpr Slot empty(std::uint32_t depth) {
    return Slot(std::uint64_t{depth & kMostDepth} << kDepthAt);
  }
  static constexpr Slot entry(std::uint8_t fingerprint, std::uint32_t units, std::uint64_t offset,
                              std::uint32_t version, std::uint32_t depth) {
    return Slot(std::uint64_t{fingerprint} << 56 | std::uint64_t{units & 0xff} << 48 |
                empty(depth).word_ | std::uint64_t{version % kVersions} << 32 |
                (offset / kUnit & 0xffffffff));
  }

  constexpr std::uint64_t word() const { return word_; }
  constexpr std::uint8_t fingerprint() const { return static_cast<std::uint8_t>(word_ >> 56); }
  constexpr std::uint32_t units() const { return static_cast<std::uint32_t>(word_ >> 48 & 0xff); }
  constexpr std::uint64_t offset() const { return (word_ & 0xffffffff) * kUnit; }
  constexpr std::uint32_t version() const {
    return static_cast<std::uint32_t>(word_ >> 32 & (kVersions - 1));
  }
  constexpr std::uint32_t depth() const {
    return static_cast<std::uint32_t>(word_ >> kDepthAt & kMostDepth);
  }
  /// The word without all but its depth, as empty() makes it.
  constexpr std::uint64_t depth_bits() const {
    return word_ & std::uint64_t{kMostDepth} << kDepthAt;
  }
  constexpr bool is_empty() const { return units() == 0; }
  /// An insertion has placed it and has not yet looked for duplicates: nobody sees it as present.
  constexpr bool is_tentative() const { return (word_ & kTentative) != 0; }
  /// A split copies it to the new subtable: nobody changes it any more.
  constexpr bool is_frozen() const { return (word_ & kFrozen) != 0; }

  constexpr Slot at_depth(std::uint32_t depth) const {
    return Slot((word_ & ~(std::uint64_t{kMostDepth} << kDepthAt)) | empty(depth).word_);
  }
  constexpr Slot tentative() const { return Slot(word_ | kTentative); }
  constexpr Slot frozen() const { return Slot(word_ | kFrozen); }
  constexpr Slot plain() const { return Slot(word_ & ~(kTentative | kFrozen)); }
  bool operator==(const Slot&) const = default;

 private:
  static constexpr std::uint32_t kDepthAt = 42;
  static constexpr std::uint64_t kTentative = 1ULL << 46, kFrozen = 1ULL << 47;
  std::uint64_t word_ = 0;
};

/// The header of a bucket: | suffix 56 | local depth 8 |.
struct Header {
  std::uint32_t depth = 0;
  std::uint64_t suffix = 0;

  static constexpr Header of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word & 0xff), word >> 8};
  }
  constexpr std::uint64_t word() const { return suffix << 8 | depth; }
};

/// The split word of a subtable. It names the owner of the split that is under way. The beat counts
/// on while the owner works, so that others see that it lives.
/// | node 16 | incarnation 16 | client 10 | beat 17 | locked 1 | depth 4 |
struct SplitWord {
  std::uint32_t depth = 0;
  bool is_locked = false;
  std::uint32_t beat = 0, client = 0, incarnation = 0, node = 0;

  static constexpr SplitWord of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word & 0xf),
            (word >> 4 & 1) != 0,
            static_cast<std::uint32_t>(word >> 5 & kMostBeat),
            static_cast<std::uint32_t>(word >> 22 & 0x3ff),
            static_cast<std::uint32_t>(word >> 32 & 0xffff),
            static_cast<std::uint32_t>(word >> 48)};
  }
  constexpr std::uint64_t word() const {
    return std::uint64_t{node & 0xffff} << 48 | std::uint64_t{incarnation & 0xffff} << 32 |
           std::uint64_t{client & 0x3ff} << 22 | std::uint64_t{beat & kMostBeat} << 5 |
           std::uint64_t{is_locked} << 4 | (depth & 0xf);
  }
};

/// An entry of the directory: | there 1 | 15 | depth 8 | node 8 | offset 32 |, the offset in units.
/// It is written once and never changes: `depth` is that at which the subtable began to exist.
struct DirectoryEntry {
  std::uint32_t node = 0, depth = 0;
  std::uint64_t offset = 0;

  static constexpr bool is_there(std::uint64_t word) { return word >> 63 != 0; }
  static constexpr DirectoryEntry of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32 & 0xff),
            static_cast<std::uint32_t>(word >> 40 & 0xff), (word & 0xffffffff) * kUnit};
  }
  constexpr std::uint64_t word() const {
    return 1ULL << 63 | std::uint64_t{depth & 0xff} << 40 | std::uint64_t{node & 0xff} << 32 |
           (offset / kUnit & 0xffffffff);
  }
};

/// The head of a block; key and value follow. The checksum covers all that follows it.
struct BlockHead {
  std::uint32_t crc = 0;
  std::uint16_t version = 0;
  std::uint16_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t zero = 0;
  std::uint64_t hash = 0;  // KeyHash::a: a split decides by it without the key

  static BlockHead of(const std::byte* block) {
    BlockHead head;
    std::memcpy(&head, block, sizeof head);
    return head;
  }
};
static_assert(sizeof(BlockHead) == 24);
inline constexpr std::uint32_t kCrcBytes = sizeof(std::uint32_t);

inline constexpr std::uint32_t units_for(std::size_t key_bytes, std::size_t value_bytes) {
  return static_cast<std::uint32_t>((sizeof(BlockHead) + key_bytes + value_bytes + kUnit - 1) /
                                    kUnit);
}

/// Two independent hashes of a key.
struct KeyHash {
  std::uint64_t a = 0, b = 0;

  static KeyHash of(ByteView key) {
    KeyHash hash{mix64(key.size() ^ 0x52414345ULL), mix64(key.size() ^ 0x48415348ULL)};
    for (std::size_t at = 0; at < key.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, key.data() + at, key.size() - at < 8 ? key.size() - at : 8);
      hash.a = mix64(hash.a ^ word);
      hash.b = mix64(hash.b + word);
    }
    return hash;
  }
  constexpr std::uint32_t index(std::uint32_t depth) const {
    return static_cast<std::uint32_t>(a) & mask_of(depth);
  }
  constexpr std::uint8_t fingerprint() const { return static_cast<std::uint8_t>(b >> 56); }
  /// Whether the key belongs to the subtable `suffix` if that has this depth.
  constexpr bool is_in(std::uint64_t suffix, std::uint32_t depth) const {
    return depth <= kMostDepth && index(depth) == suffix;
  }

  /// The place of a candidate combined bucket, 0 or 1, in its subtable. The two lie in different
  /// groups, so no slot belongs to both.
  constexpr std::uint64_t combined(std::uint32_t candidate, std::uint32_t groups) const {
    const std::uint64_t first = a >> 16 & (groups - 1);
    const std::uint64_t step = 1 + (b & 0xffffffff) % (groups - 1);
    const std::uint64_t group = candidate == 0 ? first : (first + step) & (groups - 1);
    return kSubtableHead + group * kGroupBytes + main(candidate) * kBucketBytes;
  }
  /// Which main bucket of its group the candidate has: the overflow bucket is behind the first one
  /// and before the second one.
  constexpr std::uint32_t main(std::uint32_t candidate) const {
    return static_cast<std::uint32_t>((candidate == 0 ? a >> 60 : b >> 48) & 1);
  }
};

}  // namespace pyrdma::krcore::race
