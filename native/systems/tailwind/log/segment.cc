#include "systems/tailwind/log/segment.h"

#include "base/assert.h"

namespace pyrdma::tailwind {

Segment::~Segment() {
  for (const Run& run : runs_) memory_.give_back(run.place, run.seglets);
}

bool Segment::prepare(std::size_t bytes) {
  PYRDMA_ASSERT(has_room_for(bytes));
  if (fits_in_last_run(bytes)) return true;
  const auto seglets = static_cast<std::uint32_t>(seglets_for(bytes));
  const Place first = memory_.take(*this, seglets);
  if (first == 0) return false;
  runs_.push_back({first, seglets, end_, 0});
  seglets_ += seglets;
  return true;
}

bool Segment::append(std::span<const NewEntry> entries, Place* places) {
  PYRDMA_ASSERT(!entries.empty());
  const auto bytes = static_cast<std::uint32_t>(appended_bytes(entries));
  if (!prepare(bytes)) return false;
  Run& run = runs_.back();
  Place place = run.place + run.bytes;
  for (const NewEntry& entry : entries) {
    headers_.add(write_entry(memory_.at(place), entry.header, entry.key, entry.value).header());
    *places++ = place;
    place += entry.size();
  }
  checksum_ = headers_.value();
  write_checksum(memory_.at(place), checksum_);
  run.bytes += bytes;
  end_ += bytes;
  entries_ += static_cast<std::uint32_t>(entries.size());
  return true;
}

Place Segment::append(const EntryHeader& header, ByteView key, ByteView value) {
  const NewEntry entry{header, key, value};
  Place place = 0;
  return append({&entry, 1}, &place) ? place : 0;
}

}  // namespace pyrdma::tailwind
