#include "systems/tailwind/log/log_memory.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "base/error.h"
#include "systems/tailwind/log/segment.h"

namespace pyrdma::tailwind {

LogMemory::LogMemory(std::span<std::byte> bytes)
    : bytes_(bytes),
      owners_(bytes.size() / kSeglet),
      free_(static_cast<std::uint32_t>(owners_.size())) {
  if (owners_.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "a log in " + std::to_string(bytes.size()) + " B of memory; give 65536 or more");
}

// The search goes on where the last one ended, so it rarely meets a seglet that is in use.
Place LogMemory::take(Segment& owner, std::uint32_t count) {
  if (count == 0 || std::uint64_t{count} + owner.keeps_free > free_) return 0;
  const auto is_free = [](const Segment* of) { return of == nullptr; };
  for (const bool is_second : {false, true}) {
    const std::uint32_t from = is_second ? 0 : next_;
    auto at = owners_.begin() + from;
    while (static_cast<std::uint32_t>(owners_.end() - at) >= count) {
      const auto used = std::find_if_not(at, at + count, is_free);
      if (used == at + count) {
        std::fill(at, at + count, &owner);
        free_ -= count;
        next_ = static_cast<std::uint32_t>(at + count - owners_.begin());
        return (static_cast<Place>(at - owners_.begin()) + 1) * kSeglet;
      }
      at = std::find_if(used, owners_.end(), is_free);
    }
  }
  return 0;
}

void LogMemory::give_back(Place first, std::uint32_t count) {
  const auto at = owners_.begin() + static_cast<std::ptrdiff_t>(first / kSeglet - 1);
  PYRDMA_ASSERT(first % kSeglet == 0 && std::find(at, at + count, nullptr) == at + count);
  std::fill(at, at + count, nullptr);
  free_ += count;
}

}  // namespace pyrdma::tailwind
