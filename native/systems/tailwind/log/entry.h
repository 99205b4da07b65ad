// The entries of a log. The same bytes lie in the memory of the primary, in the buffers of its
// backups, and on their disks.
//
// An entry is a header of 30 B and its contents. The header has the contents' length and checksum,
// as the protocol needs (Tailwind, section 3.1), and what RAMCloud's headers have. Behind the
// entries of each write stands a checksum entry: 8 constant bytes and a CRC32C over all headers of
// the segment so far (section 3.1). It is never zero, and a buffer is zeroed before its use. So a
// reader of a buffer knows how far writes have come, without an offset (section 3.4.1).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace pyrdma::tailwind {

enum class EntryType : std::uint8_t {
  kNone = 0,   // memory that nobody has written
  kSegment,    // the first entry of a segment. table: the log, version: the segment
  kDigest,     // contents: the numbers of all segments of the log, 8 B each
  kObject,     // contents: key and value
  kTombstone,  // an object was removed. contents: key, and the number of the object's segment
  kResult,     // of an update. table: the client, version: its sequence number (store/results.h)
  kChecksum,
};

#pragma pack(push, 1)
struct EntryHeader {
  EntryType type = EntryType::kNone;
  std::uint8_t zero = 0;
  std::uint16_t key_bytes = 0;
  std::uint32_t bytes = 0;     // of the contents, the key included
  std::uint32_t checksum = 0;  // CRC32C of the contents
  std::uint16_t more_zeros = 0;
  std::uint64_t table = 0;
  std::uint64_t version = 0;
};

struct ChecksumEntry {
  EntryType type = EntryType::kChecksum;
  std::array<std::uint8_t, 3> zeros{};
  std::uint32_t bytes = sizeof(std::uint32_t);
  std::uint32_t checksum = 0;
};
#pragma pack(pop)
static_assert(sizeof(EntryHeader) == 30 && sizeof(ChecksumEntry) == 12);

inline constexpr std::size_t kMostKey = 65535, kMostValue = std::size_t{1} << 20;

/// An entry in the memory of a log or a replica, or none.
class Entry {
 public:
  Entry() = default;
  explicit Entry(const std::byte* at) : at_(at) {}
  explicit operator bool() const { return at_ != nullptr; }
  EntryType type() const { return field<EntryType>(offsetof(EntryHeader, type)); }
  std::uint64_t table() const { return field<std::uint64_t>(offsetof(EntryHeader, table)); }
  std::uint64_t version() const { return field<std::uint64_t>(offsetof(EntryHeader, version)); }
  ByteView header() const { return {at_, sizeof(EntryHeader)}; }
  ByteView contents() const { return {at_ + sizeof(EntryHeader), bytes()}; }
  ByteView key() const { return contents().first(key_bytes()); }
  /// The contents behind the key.
  ByteView value() const { return contents().subspan(key_bytes()); }
  std::size_t size() const { return sizeof(EntryHeader) + bytes(); }
  /// The contents are those that the header was made for.
  bool is_whole() const {
    return crc32c(contents()) == field<std::uint32_t>(offsetof(EntryHeader, checksum));
  }
  /// The fields are possible, and the entry has at most `room` bytes. Requires sizeof(EntryHeader)
  /// readable bytes.
  bool is_possible(std::size_t room) const {
    return type() >= EntryType::kSegment && type() <= EntryType::kResult &&
           field<std::uint8_t>(offsetof(EntryHeader, zero)) == 0 &&
           field<std::uint16_t>(offsetof(EntryHeader, more_zeros)) == 0 && key_bytes() <= bytes() &&
           bytes() <= room - sizeof(EntryHeader);
  }

 private:
  std::uint16_t key_bytes() const { return field<std::uint16_t>(offsetof(EntryHeader, key_bytes)); }
  std::uint32_t bytes() const { return field<std::uint32_t>(offsetof(EntryHeader, bytes)); }
  template <class T>
  T field(std::size_t offset) const {
    T value;
    std::memcpy(&value, at_ + offset, sizeof value);
    return value;
  }
  const std::byte* at_ = nullptr;
};

/// An entry that a log does not have yet. The header's lengths and checksum follow from `key` and
/// `value`.
struct NewEntry {
  EntryHeader header;
  ByteView key, value;
  std::size_t size() const { return sizeof header + key.size() + value.size(); }
};
/// Bytes that entries take which are appended at once: one checksum entry stands behind the last.
inline std::size_t appended_bytes(std::span<const NewEntry> entries) {
  std::size_t bytes = sizeof(ChecksumEntry);
  for (const NewEntry& entry : entries) bytes += entry.size();
  return bytes;
}

/// The checksum of a segment's headers so far.
class RunningChecksum {
 public:
  /// `header` is that of the next entry.
  void add(ByteView header) { sum_ = crc32c(header, sum_); }
  /// Not 0: a zero would look like memory that nobody has written (section 3.4.1).
  std::uint32_t value() const { return sum_ == 0 ? 1 : sum_; }

 private:
  std::uint32_t sum_ = 0;
};

/// The header with the lengths and the checksum that follow from `key` and `value`. Requires
/// key.size() <= kMostKey.
EntryHeader completed(EntryHeader header, ByteView key, ByteView value);
/// Writes an entry, with its completed() header, to `to`, which has room for it.
Entry write_entry(std::byte* to, const EntryHeader& header, ByteView key, ByteView value);
void write_checksum(std::byte* to, std::uint32_t checksum);

/// Returns the entry at the begin of `bytes` if it is possible and within them, else none. Looks at
/// the header alone.
inline Entry read_entry(ByteView bytes) {
  const Entry entry(bytes.data());
  const bool is_there = bytes.size() >= sizeof(EntryHeader) && entry.is_possible(bytes.size());
  return is_there ? entry : Entry();
}
/// Returns the value of the checksum entry at the begin of `bytes`, or 0 if there is none.
inline std::uint32_t read_checksum(ByteView bytes) {
  static constexpr ChecksumEntry kModel;
  ChecksumEntry entry;
  if (bytes.size() < sizeof entry) return 0;
  std::memcpy(&entry, bytes.data(), sizeof entry);
  return std::memcmp(&entry, &kModel, offsetof(ChecksumEntry, checksum)) == 0 ? entry.checksum : 0;
}

}  // namespace pyrdma::tailwind
