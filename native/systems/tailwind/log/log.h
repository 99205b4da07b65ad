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
#include <span>
#include <vector>

#include "systems/tailwind/log/segment.h"

namespace pyrdma::tailwind {

class Log {
 public:
  /// Segments have `capacity` B, and numbers from `first` on. A function that makes one throws
  /// Error(kExhausted) when it would have the number Position::kSegments.
  Log(LogMemory& memory, std::uint64_t id, std::uint32_t capacity = Segment::kCapacity,
      std::uint64_t first = 1);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  std::uint64_t id() const { return id_; }
  /// Null before the first advance().
  Segment* head() const { return head_; }
  /// No segment has a higher number than the head, no survivor either.
  bool head_is_newest() const { return head_->id() + 1 == next_; }
  /// Makes the next head, with its first two entries, or returns the one that is made already. Null
  /// when no memory is left, but for `keeps_free` seglets.
  Segment* prepare(std::uint32_t keeps_free = 0);
  /// The prepared segment becomes the head. Requires prepare().
  void advance();
  /// Appends entries to the head: of a torn write all survive or none. Sets the place of each in
  /// `places`. Returns false, and does nothing, when the head is full or no memory is left:
  /// has_room() of the head tells which. No entries always fit.
  bool append(std::span<const NewEntry> entries, Place* places);
  /// Appends one entry. Returns 0 where the other append() returns false.
  Place append(const EntryHeader& header, ByteView key, ByteView value);
  /// The entry at `place` is of no use any more.
  void drop(Place place);
  /// A segment for what the cleaner moves: it has a number of its own and begins as a head does. It
  /// is not of the log before adopt(). Null when no memory is left.
  std::unique_ptr<Segment> make_survivor();
  /// An empty segment with the number of another one, which adopt() will replace.
  std::unique_ptr<Segment> make_compacted(std::uint64_t number) const {
    return std::make_unique<Segment>(memory_, id_, number, capacity_);
  }
  /// The segment is of the log: later digests name it. Frees the one that had its number.
  void adopt(std::unique_ptr<Segment> segment);
  /// Later digests lack the segment, which is the caller's: older ones may still need it. Requires
  /// that it is neither the head nor prepared.
  std::unique_ptr<Segment> remove(std::uint64_t segment);
  /// Frees a segment that no entry and no digest needs. Requires what remove() does.
  void free(std::uint64_t segment) { remove(segment); }

  /// All segments, by their numbers.
  const std::map<std::uint64_t, std::unique_ptr<Segment>>& segments() const { return segments_; }

 private:
  /// A segment that names itself and all others. Null when no memory is left.
  std::unique_ptr<Segment> make(std::uint64_t number, std::uint32_t keeps_free);

  LogMemory& memory_;
  std::uint64_t id_;
  std::uint32_t capacity_;
  std::uint64_t next_;  // number of the next segment
  std::map<std::uint64_t, std::unique_ptr<Segment>> segments_;
  Segment *head_ = nullptr, *prepared_ = nullptr;
};

/// Bytes that an entry counts for in Segment::live_bytes: those that it takes where the cleaner
/// moves it, with a checksum entry of its own. In the segment of an update it takes less if it
/// stands behind others, so the sum may be more than there is.
template <class AnyEntry>
std::uint32_t taken_by(const AnyEntry& entry) {
  return static_cast<std::uint32_t>(entry.size() + sizeof(ChecksumEntry));
}
/// The numbers in a digest; nothing if its length is no multiple of theirs.
std::optional<std::vector<std::uint64_t>> read_digest(const Entry& entry);

}  // namespace pyrdma::tailwind
