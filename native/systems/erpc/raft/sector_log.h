// SectorLog is a stream of bytes in a file that grows in batches, and says after a crash what of it
// was durable.
//
// A sector has 512 bytes, which a disk writes wholly or not at all: its checksum, the number of its
// batch, how many sectors of the batch follow, and 488 bytes of the stream. The checksum covers the
// sector's place, too. A batch fills whole sectors, so a write never touches durable bytes. A batch
// is written only after the one before it is durable.
//
// So the rule of load():
//
// - A sector that was never written is zeros, or behind the file's end. A crash leaves each sector
//   of the last batch whole, or unwritten. Then the batch was not durable, and is left out.
// - A sector that is neither whole nor zeros is damage. No crash leaves it.
// - A sector of a later batch proves that all batches before were durable, and so does the owner's
//   count of durable sectors. A sector that is missing there is damage.
//
// What is damaged is refused, so an entry that was acknowledged is there, or the log does not open.
// One loss cannot be told from a crash: a last batch of which some sectors read as zeros.
//
// load() makes durable what it returns. After a sync that failed, the system may show bytes that
// will never reach the disk, and a second sync without a second write finds nothing to do. So the
// last batch is written again, unless it is known to be durable, and what a crash has left of an
// unfinished batch is overwritten with zeros.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "env/storage.h"
#include "systems/erpc/raft/bugs.h"

namespace pyrdma::erpc::raft {

class SectorLog {
 public:
  static constexpr std::size_t kSector = 512;
  static constexpr std::size_t kHeader = 24;
  static constexpr std::size_t kRoom = kSector - kHeader;  // bytes of the stream in a sector

  /// Opens the file, or creates it. A log that replaces another one has another `number`.
  /// `storage` outlives the log.
  SectorLog(Storage& storage, std::string name, std::uint64_t number, Bugs bugs);

  /// Loads the stream, of a multiple of kRoom bytes: zeros follow each batch. `durable`: sectors
  /// that the owner knows to be durable. Throws Error(kUnavailable) that names the place, if the
  /// file is damaged or cannot be read.
  Bytes load(std::uint64_t durable);
  /// Returns whether load() has left an unfinished batch out.
  bool was_torn() const { return torn_; }

  /// Appends a batch, which is not empty. Durable on return, unless a deliberate bug leaves the
  /// sync out. Throws what the storage throws; the
  /// log must then not be used any more.
  void append(ByteView batch, bool sync = true);
  /// Reads bytes of the stream. Throws Error(kUnavailable) if they are damaged, or not there.
  Bytes read(std::uint64_t offset, std::size_t bytes) const;
  /// Returns where the next batch begins in the stream.
  std::uint64_t end() const { return sectors_ * kRoom; }
  /// Returns the number of durable sectors.
  std::uint64_t sectors() const { return sectors_; }
  const std::string& name() const { return name_; }

 private:
  /// What a sector of the file holds.
  struct Sector {
    std::uint64_t sum = 0, batch = 0, left = 0;
  };
  enum class State : std::uint8_t { kUnwritten, kWhole, kDamaged };
  State state_of(ByteView sector, std::uint64_t place, Sector& fields) const;
  std::uint64_t sum_of(ByteView sector, std::uint64_t place) const;
  std::uint64_t find_end(ByteView file, std::uint64_t durable);
  [[noreturn]] void refuse(std::uint64_t sector, const std::string& what) const;

  const std::string name_;
  const std::uint64_t number_;
  const Bugs bugs_;
  std::unique_ptr<File> file_;
  std::uint64_t sectors_ = 0, batches_ = 0;
  std::uint64_t last_batch_ = 0;  // the first sector of the last batch that load() has found
  bool torn_ = false;
};

/// What the owner of a member can do about a store that is damaged.
inline constexpr const char* kStoreRemedy =
    "; remove the member from the group, delete its files, and add it again";

}  // namespace pyrdma::erpc::raft
