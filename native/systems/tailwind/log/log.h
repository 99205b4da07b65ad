// The log of a primary: all that it stores, in segments (Tailwind, section 3.3.2). New entries go
// to the head. Each head begins with an entry that names the log and the segment, and with the
// digest: the numbers of all segments of the log. Who recovers the log finds in the newest digest
// which segments it needs.
//
// prepare() makes the next head, which is opened on its backups before the head is closed there;
// advance() makes it the head. The order between the two is replication's concern.
//
// One thread at a time may call the functions that change the log.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "systems/tailwind/log/segment.h"

namespace pyrdma::tailwind {

class Log {
 public:
  /// Segments have `capacity` B.
  Log(LogMemory& memory, std::uint64_t id, std::uint32_t capacity = Segment::kCapacity);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  std::uint64_t id() const { return id_; }
  /// Null before the first advance().
  Segment* head() const { return head_; }
  /// Makes the next head, with its first two entries, or returns the one that is made already. Null
  /// when no memory is left.
  Segment* prepare();
  /// The prepared segment becomes the head. Requires prepare().
  void advance();
  /// Appends an entry to the head. Returns 0 when the head is full or no memory is left: has_room()
  /// of the head tells which.
  Place append(const EntryHeader& header, ByteView key, ByteView value);
  /// The entry at `place` is of no use any more.
  void drop(Place place);
  /// Frees a segment that no entry and no later digest needs. Requires that it is neither the head
  /// nor prepared.
  void free(std::uint64_t segment);

  /// All segments, by their numbers.
  const std::map<std::uint64_t, std::unique_ptr<Segment>>& segments() const { return segments_; }

 private:
  LogMemory& memory_;
  std::uint64_t id_;
  std::uint32_t capacity_;
  std::uint64_t next_ = 1;  // number of the next segment
  std::map<std::uint64_t, std::unique_ptr<Segment>> segments_;
  Segment *head_ = nullptr, *prepared_ = nullptr;
};

/// Bytes that an entry takes of a segment, its checksum entry included.
inline std::uint32_t taken_by(const Entry& entry) {
  return static_cast<std::uint32_t>(entry.size() + sizeof(ChecksumEntry));
}
/// The numbers in a digest; nothing if its length is no multiple of theirs.
std::optional<std::vector<std::uint64_t>> read_digest(const Entry& entry);

}  // namespace pyrdma::tailwind
