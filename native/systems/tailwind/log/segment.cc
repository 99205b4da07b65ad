#include "systems/tailwind/log/segment.h"

#include <array>
#include <cstring>

#include "base/assert.h"

namespace pyrdma::tailwind {

Segment::~Segment() {
  for (const Place seglet : seglets_) memory_.give_back(seglet);
}

bool Segment::prepare(std::size_t bytes) {
  PYRDMA_ASSERT(has_room_for(bytes));
  const std::uint64_t has = std::uint64_t{seglets()} * memory_.seglet();
  if (end_ + bytes <= has) return true;
  const std::uint64_t more = (end_ + bytes - has + memory_.seglet() - 1) / memory_.seglet();
  if (more + keeps_free > memory_.free_seglets()) return false;
  for (std::uint64_t taken = 0; taken < more; ++taken)
    seglets_.push_back(memory_.take(*this, seglets_.empty() ? 0 : seglets_.back()));
  return true;
}

bool Segment::append(std::span<const NewEntry> entries, Place* places) {
  PYRDMA_ASSERT(!entries.empty());
  if (!prepare(entries)) return false;
  for (const NewEntry& entry : entries) {
    const EntryHeader header = completed(entry.header, entry.key, entry.value);
    const ByteView bytes = std::as_bytes(std::span(&header, 1));
    headers_.add(bytes);
    *places++ = place_at(end_);
    put(bytes);
    put(entry.key);
    put(entry.value);
  }
  checksum_ = headers_.value();
  std::array<std::byte, sizeof(ChecksumEntry)> checksum;
  write_checksum(checksum.data(), checksum_);
  put(checksum);
  entries_ += static_cast<std::uint32_t>(entries.size());
  return true;
}

void Segment::put(ByteView bytes) {
  if (bytes.empty()) return;
  memory_.for_pieces(place_at(end_), bytes.size(), [&](std::span<std::byte> piece) {
    std::memcpy(piece.data(), bytes.data(), piece.size());
    bytes = bytes.subspan(piece.size());
    end_ += static_cast<std::uint32_t>(piece.size());
  });
}

Place Segment::append(const EntryHeader& header, ByteView key, ByteView value) {
  const NewEntry entry{header, key, value};
  Place place = 0;
  return append({&entry, 1}, &place) ? place : 0;
}

}  // namespace pyrdma::tailwind
