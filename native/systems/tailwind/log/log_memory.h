// The memory of a log: seglets of 64 KiB in one region, which a NIC may read. A segment takes them
// as it grows and gives them back when it is cleaned, so a segment that has shrunk takes less.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pyrdma::tailwind {

/// The place of an entry in the memory of a log; never 0.
using Place = std::uint64_t;
class Segment;

class LogMemory {
 public:
  static constexpr std::uint32_t kSeglet = 64U << 10;  // bytes

  /// `bytes` outlives it. Throws Error(kInvalidArgument) unless it has a seglet or more.
  explicit LogMemory(std::span<std::byte> bytes);

  std::uint32_t seglets() const { return static_cast<std::uint32_t>(owners_.size()); }
  std::uint32_t free_seglets() const { return free_; }
  /// Takes `count` adjacent seglets for `owner`, and returns the place of their first byte, or 0 if
  /// there are none, or fewer than owner.keeps_free would be left.
  Place take(Segment& owner, std::uint32_t count = 1);
  void give_back(Place first, std::uint32_t count);
  /// The segment that the seglet of a place belongs to.
  Segment* owner(Place place) const { return owners_[place / kSeglet - 1]; }

  std::byte* at(Place place) const { return bytes_.data() + (place - kSeglet); }

 private:
  std::span<std::byte> bytes_;
  std::vector<Segment*> owners_;  // of the seglets; null: free
  std::uint32_t free_;
  std::uint32_t next_ = 0;  // where the search for a free one begins
};

}  // namespace pyrdma::tailwind
