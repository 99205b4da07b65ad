// The content of an empty subtable.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>

#include "systems/krcore/race/layout.h"

namespace pyrdma::krcore::race {

/// Fills `bytes`, which nobody else uses, with an empty subtable of this depth and suffix.
inline void format_subtable(std::span<std::byte> bytes, std::uint32_t depth, std::uint64_t suffix) {
  const auto put = [&](std::size_t at, std::uint64_t word) {
    std::memcpy(bytes.data() + at, &word, sizeof word);
  };
  std::memset(bytes.data(), 0, kSubtableHead);
  put(0, SplitWord{.depth = depth}.word());
  const std::uint64_t header = Header{depth, suffix}.word(), empty = Slot::empty(depth).word();
  for (std::size_t at = kSubtableHead; at + kBucketBytes <= bytes.size(); at += kBucketBytes) {
    put(at, header);
    for (std::uint32_t slot = 0; slot < kSlotsPerBucket; ++slot) put(at + 8 + 8ULL * slot, empty);
  }
}

}  // namespace pyrdma::krcore::race
