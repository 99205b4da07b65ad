#include "systems/tailwind/log/segment.h"

#include "base/assert.h"

namespace pyrdma::tailwind {

Segment::~Segment() {
  for (const Run& run : runs_) memory_.give_back(run.place, run.seglets);
}

Place Segment::append(const EntryHeader& header, ByteView key, ByteView value) {
  PYRDMA_ASSERT(has_room(key.size() + value.size()));
  const auto entry_bytes =
      static_cast<std::uint32_t>(sizeof(EntryHeader) + key.size() + value.size());
  const std::uint32_t bytes = entry_bytes + static_cast<std::uint32_t>(sizeof(ChecksumEntry));
  if (runs_.empty() ||
      bytes > std::uint64_t{runs_.back().seglets} * LogMemory::kSeglet - runs_.back().bytes) {
    const std::uint32_t seglets = (bytes + LogMemory::kSeglet - 1) / LogMemory::kSeglet;
    const Place place = memory_.take(*this, seglets);
    if (place == 0) return 0;
    runs_.push_back({place, seglets, end_, 0});
  }
  Run& run = runs_.back();
  const Place place = run.place + run.bytes;
  std::byte* at = memory_.at(place);
  headers_.add(write_entry(at, header, key, value).header());
  checksum_ = headers_.value();
  write_checksum(at + entry_bytes, checksum_);
  run.bytes += bytes;
  end_ += bytes;
  return place;
}

}  // namespace pyrdma::tailwind
