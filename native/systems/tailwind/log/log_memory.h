// The memory of a log: seglets in one region, which a NIC may read. A segment takes them as it
// grows and gives them back when it is cleaned, so a segment that has shrunk takes less.
//
// The seglets of a segment lie anywhere, and an entry may cross from one to the next, as RAMCloud's
// may: so all memory that is free can be used, however it is scattered, and no seglet has a gap.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "systems/tailwind/log/entry.h"

namespace pyrdma::tailwind {

/// The place of an entry in the memory of a log; never 0.
using Place = std::uint64_t;
class Segment;

/// An entry of a log's memory in one piece: where it lies, or a copy if it lies in several pieces.
class WholeEntry {
 public:
  explicit WholeEntry(Entry entry) : entry_(entry) {}
  explicit WholeEntry(Bytes&& copy) : copy_(std::move(copy)), entry_(copy_.data()) {}
  WholeEntry(WholeEntry&&) = default;  // the copy stays where it is
  WholeEntry& operator=(WholeEntry&&) = default;
  const Entry& operator*() const { return entry_; }
  const Entry* operator->() const { return &entry_; }

 private:
  Bytes copy_;
  Entry entry_;
};

class LogMemory {
 public:
  static constexpr std::uint32_t kSeglet = 64U << 10;  // bytes, of the largest (RAMCloud's)
  /// Bytes of a seglet where segments have `capacity` B. On average half a seglet of a segment is
  /// unused, so smaller segments need smaller ones: 128 of them, as RAMCloud's have.
  static constexpr std::uint32_t seglet_for(std::uint32_t capacity) {
    return std::clamp(std::bit_floor(capacity / 128), 4U << 10, kSeglet);
  }

  /// `bytes` outlives it. Throws Error(kInvalidArgument) unless it has a seglet or more. Requires
  /// that `seglet` is a power of two.
  explicit LogMemory(std::span<std::byte> bytes, std::uint32_t seglet = kSeglet);

  std::uint32_t seglet() const { return seglet_; }  // bytes
  std::uint32_t seglets() const { return static_cast<std::uint32_t>(seglets_.size()); }
  std::uint32_t free_seglets() const { return free_; }
  /// Takes a seglet for `owner`, behind `last`, or as its first one if that is 0. Returns the place
  /// of its first byte. Requires free_seglets() > 0.
  Place take(Segment& owner, Place last);
  void give_back(Place seglet);
  /// The segment that the seglet of a place belongs to.
  Segment* owner(Place place) const { return seglets_[index_of(place)].owner; }

  /// The first byte of the entry. The others may lie elsewhere.
  std::byte* at(Place place) const { return bytes_.data() + (place - seglet_); }
  /// Calls act(span of bytes) for the pieces of memory that `bytes` bytes from a place on have, in
  /// order. Those of adjacent seglets are one piece.
  template <class Act>
  void for_pieces(Place place, std::size_t bytes, Act&& act) const {
    while (bytes != 0) {
      std::size_t piece = std::min<std::size_t>(bytes, seglet_ - offset_of(place));
      std::uint32_t last = index_of(place);
      while (piece < bytes && seglets_[last].next == last + 1) {
        piece = std::min<std::size_t>(bytes, piece + seglet_);
        ++last;
      }
      act(std::span(at(place), piece));
      bytes -= piece;
      if (bytes != 0) place = place_of(seglets_[last].next);
    }
  }
  /// The entry at a place. A copy costs what a copy of the entry does.
  WholeEntry entry(Place place) const { return part(place, true); }
  /// The same without its value, which may be long.
  WholeEntry header_and_key(Place place) const { return part(place, false); }

 private:
  struct Seglet {
    Segment* owner = nullptr;  // null: free
    std::uint32_t next = 0;    // of the same segment
  };
  std::uint32_t index_of(Place place) const {
    return static_cast<std::uint32_t>((place >> shift_) - 1);
  }
  std::uint32_t offset_of(Place place) const {
    return static_cast<std::uint32_t>(place & (seglet_ - 1));
  }
  Place place_of(std::uint32_t index) const { return (Place{index} + 1) << shift_; }
  bool is_in_seglet(Place place, std::size_t bytes) const {
    return offset_of(place) + bytes <= seglet_;
  }
  WholeEntry part(Place place, bool has_value) const {
    if (is_in_seglet(place, sizeof(EntryHeader))) {
      const Entry entry(at(place));
      if (is_in_seglet(place, entry.size())) return WholeEntry(entry);
    }
    return crossing(place, has_value);
  }
  WholeEntry crossing(Place place, bool has_value) const;

  std::span<std::byte> bytes_;
  std::uint32_t seglet_;
  int shift_;  // 2^shift_ = seglet_
  std::vector<Seglet> seglets_;
  std::uint32_t free_;
  std::uint32_t next_ = 0;  // where the search for a free one begins
};

}  // namespace pyrdma::tailwind
