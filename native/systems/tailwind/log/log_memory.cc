#include "systems/tailwind/log/log_memory.h"

#include <string>

#include "base/assert.h"
#include "base/error.h"

namespace pyrdma::tailwind {

LogMemory::LogMemory(std::span<std::byte> bytes, std::uint32_t seglet)
    : bytes_(bytes),
      seglet_(seglet),
      shift_(std::countr_zero(seglet)),
      seglets_(bytes.size() / seglet),
      free_(static_cast<std::uint32_t>(seglets_.size())) {
  if (seglets_.empty())
    throw Error(ErrorCode::kInvalidArgument, "a log in " + std::to_string(bytes.size()) +
                                                 " B of memory; give " + std::to_string(seglet) +
                                                 " or more");
}

// The search goes on where the last one ended, so it rarely meets a seglet that is in use.
Place LogMemory::take(Segment& owner, Place last) {
  PYRDMA_ASSERT(free_ != 0);
  while (seglets_[next_ % seglets()].owner != nullptr) ++next_;
  const std::uint32_t taken = next_ % seglets();
  seglets_[taken].owner = &owner;
  if (last != 0) seglets_[index_of(last)].next = taken;
  --free_;
  next_ = taken + 1;
  return place_of(taken);
}

void LogMemory::give_back(Place seglet) {
  PYRDMA_ASSERT(offset_of(seglet) == 0 && owner(seglet) != nullptr);
  seglets_[index_of(seglet)] = {};
  ++free_;
}

WholeEntry LogMemory::crossing(Place place, bool has_value) const {
  const auto copy = [&](std::size_t size) {
    Bytes result;
    result.reserve(size);
    for_pieces(place, size,
               [&](ByteView piece) { result.insert(result.end(), piece.begin(), piece.end()); });
    return result;
  };
  const Bytes header = copy(sizeof(EntryHeader));
  const Entry entry(header.data());
  const std::size_t size = has_value ? entry.size() : sizeof(EntryHeader) + entry.key().size();
  bool is_one_piece = true;
  for_pieces(place, size, [&](ByteView piece) { is_one_piece = piece.size() == size; });
  return is_one_piece ? WholeEntry(Entry(at(place))) : WholeEntry(copy(size));
}

}  // namespace pyrdma::tailwind
