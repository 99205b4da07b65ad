#include "env/sim/disk_file.h"

#include <algorithm>

#include "base/error.h"

namespace pyrdma {
namespace {

constexpr std::uint64_t kSector = DiskFile::kSector;
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 40;

/// Returns the part of `data`, at `offset` of the file, that lies in `sector`.
std::span<const std::byte> part(std::span<const std::byte> data, std::uint64_t offset,
                                std::uint64_t sector) {
  const std::uint64_t begin = std::max(offset, sector * kSector);
  const std::uint64_t end = std::min(offset + data.size(), (sector + 1) * kSector);
  return data.subspan(begin - offset, end - begin);
}

}  // namespace

void DiskFile::write(std::uint64_t offset, std::span<const std::byte> data, FaultStream* faults,
                     bool full) {
  if (data.empty()) return;
  if (offset > kLargestFile || data.size() > kLargestFile - offset)
    throw Error(ErrorCode::kExhausted, "file '" + name_ + "': a write of " +
                                           std::to_string(data.size()) + " bytes at " +
                                           std::to_string(offset) + "; a file has at most 2^40");
  if (full && offset + data.size() > size()) {
    if (faults != nullptr) faults->reach(Fault::disk_full);
    throw Error(ErrorCode::kExhausted,
                "file '" + name_ + "': no space left on the disk for " +
                    std::to_string(data.size()) + " bytes at " + std::to_string(offset) +
                    "; remove files, or wait until other nodes remove theirs");
  }
  if (faults != nullptr && faults->fire(Fault::disk_io_error)) {
    const std::uint64_t written = faults->stream(Fault::disk_io_error).below(data.size() + 1);
    const std::uint64_t end = (offset + written) / kSector * kSector;
    if (end > offset) store(offset, data.first(end - offset));
    faults->reach(Fault::disk_io_error);
    throw Error(ErrorCode::kUnavailable,
                "file '" + name_ + "': a write at " + std::to_string(offset) +
                    " failed (I/O error); write it again or stop using the disk",
                false);
  }
  if (faults != nullptr && faults->fire(Fault::disk_misdirected)) {
    const std::uint64_t intended = offset;
    offset = misdirected(offset, data.size(), *faults);
    if (offset != intended) {
      faults->reach(Fault::disk_misdirected);
      content_.grow(intended + data.size());
    }
  }
  store(offset, data);
}

// Returns another place of the file, at the same offset within a sector; the same place if there is
// no other.
std::uint64_t DiskFile::misdirected(std::uint64_t offset, std::uint64_t bytes,
                                    FaultStream& faults) const {
  const std::uint64_t end = std::max(size(), offset + bytes);
  const std::uint64_t places = (end - bytes - offset % kSector) / kSector + 1;
  if (places < 2) return offset;
  std::uint64_t place = faults.stream(Fault::disk_misdirected).below(places - 1);
  if (place >= offset / kSector) ++place;
  return place * kSector + offset % kSector;
}

void DiskFile::store(std::uint64_t offset, std::span<const std::byte> data) {
  content_.write(offset, data);
  cached_.push_back({next_++, offset, {data.begin(), data.end()}});
  cached_bytes_ += data.size();
  while (cached_bytes_ > kCacheBytes) write_back_oldest();
}

void DiskFile::write_back_oldest() {
  const Write& oldest = cached_.front();
  make_durable(oldest.offset, oldest.data);
  cached_bytes_ -= oldest.data.size();
  cached_.pop_front();
}

void DiskFile::make_durable(std::uint64_t offset, std::span<const std::byte> data) {
  durable_.write(offset, data);
  const std::uint64_t end = offset + data.size();
  // `first` is the first sector that is written as a whole.
  const std::uint64_t first = (offset + kSector - 1) / kSector;
  const std::uint64_t last = end == durable_.size() ? (end + kSector - 1) / kSector : end / kSector;
  if (first < last)
    unreadable_.erase(unreadable_.lower_bound(first), unreadable_.lower_bound(last));
}

// ---- reading ----

std::size_t DiskFile::read(std::uint64_t offset, std::span<std::byte> data, FaultStream* faults) {
  if (offset >= size() || data.empty()) return 0;
  const std::size_t count = std::min<std::size_t>(data.size(), size() - offset);
  check_readable(offset / kSector, (offset + count - 1) / kSector, faults);
  if (faults != nullptr && faults->fire(Fault::disk_rot)) rot(offset, count, *faults);
  content_.read(offset, data.first(count));
  return count;
}

// Returns true when the disk need not read the medium.
bool DiskFile::is_cached(std::uint64_t sector) const {
  return std::any_of(cached_.begin(), cached_.end(), [sector](const Write& write) {
    return write.offset <= sector * kSector &&
           write.offset + write.data.size() >= (sector + 1) * kSector;
  });
}

void DiskFile::check_readable(std::uint64_t first, std::uint64_t last, FaultStream* faults) {
  if (faults != nullptr && faults->fire(Fault::disk_unreadable)) {
    const std::uint64_t sector =
        first + faults->stream(Fault::disk_unreadable).below(last - first + 1);
    if (sector * kSector < durable_.size() && unreadable_.insert(sector).second)
      faults->reach(Fault::disk_unreadable);
  }
  for (auto at = unreadable_.lower_bound(first); at != unreadable_.end() && *at <= last; ++at) {
    if (is_cached(*at)) continue;
    throw Error(ErrorCode::kUnavailable, "file '" + name_ + "': sector " + std::to_string(*at) +
                                             " (bytes " + std::to_string(*at * kSector) +
                                             " on) cannot be read; write it again");
  }
}

void DiskFile::rot(std::uint64_t offset, std::uint64_t bytes, FaultStream& faults) {
  const std::uint64_t bit = faults.stream(Fault::disk_rot).below(bytes * 8);
  const std::uint64_t at = offset + bit / 8;
  if (at >= durable_.size() || is_cached(at / kSector)) return;
  const auto flip = static_cast<std::byte>(1U << bit % 8);
  for (DiskContent* content : {&durable_, &content_}) {
    std::byte byte{};
    content->read(at, {&byte, 1});
    byte ^= flip;
    content->write(at, {&byte, 1});
  }
  faults.reach(Fault::disk_rot);
}

// ---- durability ----

void DiskFile::sync(std::uint64_t mark) {
  while (!cached_.empty() && cached_.front().number < mark) write_back_oldest();
  if (cached_.empty()) durable_.grow(content_.size());
}

void DiskFile::sync_in_part(std::uint64_t mark, FaultStream& faults) {
  for (; !cached_.empty() && cached_.front().number < mark; cached_.pop_front()) {
    const Write& write = cached_.front();
    if (faults.stream(Fault::disk_io_error).below(2) == 0) make_durable(write.offset, write.data);
    cached_bytes_ -= write.data.size();
  }
  faults.reach(Fault::disk_io_error);
}

void DiskFile::lie(std::uint64_t mark) {
  for (Write& write : cached_) write.lied = write.lied || write.number < mark;
}

void DiskFile::crash(FaultStream* faults) {
  bool lied = false;
  for (const Write& write : cached_) {
    lied = lied || write.lied;
    if (faults == nullptr || !faults->fire(Fault::disk_torn)) continue;
    bool left = false;
    const std::uint64_t last = (write.offset + write.data.size() - 1) / kSector;
    for (std::uint64_t sector = write.offset / kSector; sector <= last; ++sector) {
      if (faults->stream(Fault::disk_torn).below(2) == 0) continue;
      make_durable(std::max(write.offset, sector * kSector),
                   part(write.data, write.offset, sector));
      left = true;
    }
    if (left) faults->reach(Fault::disk_torn);
  }
  if (lied && faults != nullptr) faults->reach(Fault::disk_lies);
  cached_.clear();
  cached_bytes_ = 0;
  content_ = durable_;
}

}  // namespace pyrdma
