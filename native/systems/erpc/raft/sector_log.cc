#include "systems/erpc/raft/sector_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"

namespace pyrdma::erpc::raft {

namespace {

constexpr std::size_t kChunk = 2048;  // sectors that are written at once

}  // namespace

SectorLog::SectorLog(Storage& storage, std::string name, std::uint64_t number, Bugs bugs)
    : name_(std::move(name)), number_(number), bugs_(bugs), file_(storage.open(name_)) {}

void SectorLog::refuse(std::uint64_t sector, const std::string& what) const {
  throw Error(ErrorCode::kUnavailable, "raft: " + name_ + ", at byte " +
                                           std::to_string(sector * kSector) + ": " + what +
                                           kStoreRemedy);
}

std::uint64_t SectorLog::sum_of(ByteView sector, std::uint64_t place) const {
  return checksum(sector.subspan(sizeof(std::uint64_t)), mix64(place + 1) ^ number_);
}

SectorLog::State SectorLog::state_of(ByteView sector, std::uint64_t place, Sector& fields) const {
  ByteReader in(sector);
  fields.sum = in.get<std::uint64_t>();
  fields.batch = in.get<std::uint64_t>();
  fields.left = in.get<std::uint64_t>();
  if (fields.sum == sum_of(sector, place) && fields.batch != 0) return State::kWhole;
  return is_zeros(sector) || bugs_.ends_log_at_damage() ? State::kUnwritten : State::kDamaged;
}

// Returns the number of sectors of whole batches.
std::uint64_t SectorLog::find_end(ByteView file, std::uint64_t durable) {
  const std::uint64_t count = file.size() / kSector;
  if (file.size() % kSector != 0)
    refuse(count, "the file ends within a sector, which no crash leaves");
  std::uint64_t end = 0, left = 0, begin = 0;
  bool unfinished = false;
  for (std::uint64_t place = 0; place < count; ++place) {
    Sector fields;
    const State state = state_of(file.subspan(place * kSector, kSector), place, fields);
    if (state == State::kDamaged) refuse(place, "the sector is damaged");
    if (state == State::kUnwritten) {
      unfinished = true;
      continue;
    }
    const bool begins = place == end;
    const bool fits = fields.batch == batches_ + 1 && (begins || unfinished || fields.left == left);
    if (!fits && bugs_.ends_log_at_damage()) break;
    if (!fits)
      refuse(end, "a sector is missing in a batch that was durable, as byte " +
                      std::to_string(place * kSector) + " shows");
    if (begins) begin = place;
    left = fields.left - 1;
    if (unfinished || fields.left != 0) continue;
    end = place + 1;
    last_batch_ = begin;
    ++batches_;
  }
  if (end < durable && !bugs_.ends_log_at_damage())
    refuse(end, "the log has " + std::to_string(end) + " sectors, and " + std::to_string(durable) +
                    " were durable");
  return end;
}

Bytes SectorLog::load(std::uint64_t durable) {
  Bytes file;
  try {
    file.resize(file_->size());
    file.resize(file_->read(0, file));
  } catch (const Error& error) {
    throw Error(ErrorCode::kUnavailable, std::string("raft: ") + error.what() + kStoreRemedy);
  }
  sectors_ = find_end(file, durable);
  const std::size_t end = sectors_ * kSector;
  torn_ = end < file.size();
  // The unfinished batch goes. Its sectors would be taken for those of the next batch.
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(end), file.end(), std::byte{0});
  const std::size_t again = sectors_ > durable ? last_batch_ * kSector : end;
  if (again < file.size() && bugs_.writes_again()) {
    file_->write(again, ByteView(file).subspan(again));
    file_->sync();
  }
  for (std::uint64_t place = 0; place < sectors_; ++place)
    std::memmove(file.data() + place * kRoom, file.data() + place * kSector + kHeader, kRoom);
  file.resize(sectors_ * kRoom);
  return file;
}

void SectorLog::append(ByteView batch, bool sync) {
  const std::uint64_t count = (batch.size() + kRoom - 1) / kRoom;
  Bytes out;
  for (std::uint64_t first = 0; first < count; first += kChunk) {
    const std::uint64_t some = std::min<std::uint64_t>(kChunk, count - first);
    out.assign(some * kSector, std::byte{0});
    for (std::uint64_t i = 0; i < some; ++i) {
      const std::uint64_t place = sectors_ + first + i;
      const Sector fields{0, batches_ + 1, count - first - i - 1};
      std::byte* at = out.data() + i * kSector;
      std::memcpy(at, &fields, sizeof fields);
      const auto piece = batch.first(std::min(kRoom, batch.size()));
      std::memcpy(at + kHeader, piece.data(), piece.size());
      batch = batch.subspan(piece.size());
      const std::uint64_t sum = sum_of(ByteView(at, kSector), place);
      std::memcpy(at, &sum, sizeof sum);
    }
    file_->write((sectors_ + first) * kSector, out);
  }
  if (sync) file_->sync();
  sectors_ += count;
  ++batches_;
}

Bytes SectorLog::read(std::uint64_t offset, std::size_t bytes) const {
  const std::uint64_t first = offset / kRoom, last = (offset + bytes + kRoom - 1) / kRoom;
  Bytes file((last - first) * kSector), out;
  try {
    file.resize(file_->read(first * kSector, file));
  } catch (const Error& error) {
    refuse(first, error.what());
  }
  for (std::uint64_t place = first; place < last; ++place) {
    Sector fields;
    const std::size_t at = (place - first) * kSector;
    if (at + kSector > file.size()) refuse(place, "the sector is missing");
    const ByteView sector = ByteView(file).subspan(at, kSector);
    if (state_of(sector, place, fields) != State::kWhole) refuse(place, "the sector is damaged");
    out.insert(out.end(), sector.begin() + kHeader, sector.end());
  }
  out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(offset % kRoom));
  out.resize(bytes);
  return out;
}

}  // namespace pyrdma::erpc::raft
