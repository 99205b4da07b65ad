// A segment of a log: the unit of replication, of 8 MiB. Its entries lie one behind the other in
// each replica; in memory they lie in seglets, and may cross from one to the next.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "systems/tailwind/log/entry.h"
#include "systems/tailwind/log/log_memory.h"

namespace pyrdma::tailwind {

class Segment {
 public:
  static constexpr std::uint32_t kCapacity = 8U << 20;  // bytes of a replica

  /// An empty segment.
  Segment(LogMemory& memory, std::uint64_t log, std::uint64_t id,
          std::uint32_t capacity = kCapacity)
      : born(id), memory_(memory), log_(log), id_(id), capacity_(capacity) {}
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::uint64_t log() const { return log_; }
  std::uint64_t id() const { return id_; }
  std::uint32_t capacity() const { return capacity_; }
  /// Bytes of a replica so far.
  std::uint32_t end() const { return end_; }
  /// Seglets of memory that it has.
  std::uint32_t seglets() const { return static_cast<std::uint32_t>(seglets_.size()); }
  /// Entries so far, without checksum entries.
  std::uint32_t entries() const { return entries_; }
  /// The value of the last checksum entry; 0: there is none.
  std::uint32_t checksum() const { return checksum_; }
  /// Whether an entry with `contents` B of contents and its checksum entry fit.
  bool has_room(std::size_t contents) const {
    return has_room_for(sizeof(EntryHeader) + contents + sizeof(ChecksumEntry));
  }
  bool has_room(std::span<const NewEntry> entries) const {
    return has_room_for(appended_bytes(entries));
  }
  /// Takes the seglets that an append() of the entries needs, so that it changes nothing but this
  /// segment. Returns false when the memory has too few left. Requires an entry, and has_room().
  bool prepare(std::span<const NewEntry> entries) { return prepare(appended_bytes(entries)); }
  /// Appends entries, one behind the other, and one checksum entry behind the last: of a torn write
  /// all survive or none. Sets the place of each in `places`. Returns false, and does nothing, when
  /// the memory has too few seglets left. Requires an entry, and has_room().
  bool append(std::span<const NewEntry> entries, Place* places);
  /// Appends one entry and returns its place, or 0 when the memory has no seglet left. Requires
  /// has_room().
  Place append(const EntryHeader& header, ByteView key, ByteView value);

  /// Calls act(bytes, offset in the replica) for the pieces of memory that a replica has from
  /// `from` to `to`, in order. Requires from <= to <= end().
  template <class Act>
  void for_pieces(std::uint32_t from, std::uint32_t to, Act&& act) const {
    if (from == to) return;
    memory_.for_pieces(place_at(from), to - from, [&](ByteView piece) {
      act(piece, from);
      from += static_cast<std::uint32_t>(piece.size());
    });
  }
  /// Calls act(entry, place) for each entry, without checksum entries.
  template <class Act>
  void for_entries(Act&& act) const {
    for (std::uint32_t at = 0; at < end_;) {
      const Place place = place_at(at);
      if (static_cast<EntryType>(*memory_.at(place)) == EntryType::kChecksum) {
        at += static_cast<std::uint32_t>(sizeof(ChecksumEntry));
        continue;
      }
      const WholeEntry entry = memory_.entry(place);
      act(*entry, place);
      at += static_cast<std::uint32_t>(entry->size());
    }
  }

  /// Bytes of entries that are of use, by taken_by(). The holder counts them.
  std::uint64_t live_bytes = 0;
  /// Bytes of tombstones in live_bytes, by the segment that they name. The holder counts them.
  std::map<std::uint64_t, std::uint64_t> tombstones;
  /// Bytes of the entries that name it.
  std::uint32_t first_bytes = 0;
  /// Seglets of the memory that its growth leaves free, for others.
  std::uint32_t keeps_free = 0;
  /// The number of the segment that was written when its entries were new: of a survivor of the
  /// cleaner that of an older one.
  std::uint64_t born;

 private:
  bool prepare(std::size_t bytes);
  bool has_room_for(std::size_t bytes) const { return end_ + bytes <= capacity_; }
  /// The place of an offset in the replica, before end().
  Place place_at(std::uint32_t offset) const {
    return seglets_[offset / memory_.seglet()] + offset % memory_.seglet();
  }
  void put(ByteView bytes);

  LogMemory& memory_;
  std::uint64_t log_, id_;
  std::uint32_t capacity_;
  std::uint32_t end_ = 0;
  std::uint32_t entries_ = 0;
  std::uint32_t checksum_ = 0;
  RunningChecksum headers_;
  std::vector<Place> seglets_;
};

}  // namespace pyrdma::tailwind
