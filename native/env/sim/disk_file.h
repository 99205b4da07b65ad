// One file of the simulated disk: the content that the node sees, and the content that a power
// failure leaves. Reads and writes go to the disk itself (direct I/O). The disk's own cache is lost
// with the power: a write is durable after a sync and may be lost before it. This file uses no
// clock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "env/faults.h"
#include "env/sim/disk_blocks.h"

namespace pyrdma {

class DiskFile {
 public:
  static constexpr std::uint64_t kSector = 512;
  static constexpr std::uint64_t kCacheBytes = std::uint64_t{64} << 20;

  /// Equal blocks of all files of `pool` are kept once.
  DiskFile(std::string name, const std::shared_ptr<BlockPool>& pool)
      : name_(std::move(name)), content_(pool), durable_(pool) {}
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return content_.size(); }

  /// If `full`, writes that grow the file throw Error(kExhausted), definite. A failed write throws
  /// Error(kUnavailable), not definite: some of its first sectors are written. `faults` may be
  /// null.
  void write(std::uint64_t offset, std::span<const std::byte> data, FaultStream* faults, bool full);
  /// Throws Error(kUnavailable) for a sector that cannot be read, until the sector is written as a
  /// whole.
  std::size_t read(std::uint64_t offset, std::span<std::byte> data, FaultStream* faults);

  /// Returns a mark after the writes so far, for the calls below.
  std::uint64_t mark() const { return next_; }
  /// Makes the writes before `mark` durable.
  void sync(std::uint64_t mark);
  /// A failed sync: some of the writes before `mark` are durable. The others never become durable,
  /// though reads see them until a crash (as after a failed fsync on Linux).
  void sync_in_part(std::uint64_t mark, FaultStream& faults);
  /// The sync has reported to the user that the writes before `mark` are durable.
  void lie(std::uint64_t mark);
  /// The power is lost: writes that were not durable are lost or torn.
  void crash(FaultStream* faults);

 private:
  struct Write {
    std::uint64_t number, offset;
    std::vector<std::byte> data;
    bool lied = false;
  };
  void store(std::uint64_t offset, std::span<const std::byte> data);
  void make_durable(std::uint64_t offset, std::span<const std::byte> data);
  void write_back_oldest();
  bool is_cached(std::uint64_t sector) const;
  void check_readable(std::uint64_t first, std::uint64_t last, FaultStream* faults);
  void rot(std::uint64_t offset, std::uint64_t bytes, FaultStream& faults);
  std::uint64_t misdirected(std::uint64_t offset, std::uint64_t bytes, FaultStream& faults) const;

  std::string name_;
  DiskContent content_, durable_;
  std::deque<Write> cached_;  // not durable, oldest first
  std::uint64_t cached_bytes_ = 0;
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> unreadable_;  // sectors
};

}  // namespace pyrdma
