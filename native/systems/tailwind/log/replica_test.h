// Entries and replicas, as tests write them.
#pragma once
#include <span>
#include <string_view>

#include "systems/tailwind/log/entry.h"

namespace pyrdma::tailwind {

inline EntryHeader object(std::uint64_t version) {
  EntryHeader header;
  header.type = EntryType::kObject;
  header.table = 1;
  header.version = version;
  return header;
}

class Replica {
 public:
  explicit Replica(std::size_t capacity) : bytes_(capacity) {}
  /// Appends an entry and a checksum entry, as one write does. Requires room.
  void append(const EntryHeader& header, std::string_view key, std::string_view value) {
    const Entry entry = write_entry(bytes_.data() + end_, header, std::as_bytes(std::span(key)),
                                    std::as_bytes(std::span(value)));
    headers_.add(entry.header());
    end_ += entry.size();
    write_checksum(bytes_.data() + end_, headers_.value());
    end_ += sizeof(ChecksumEntry);
  }
  /// Appends objects "A", "B", ... of one write, with versions from `version` on. Requires room.
  void append_batch(std::uint64_t version, std::span<const std::string_view> values) {
    char key = 'A';
    for (const std::string_view value : values) {
      const Entry entry =
          write_entry(bytes_.data() + end_, object(version++), std::as_bytes(std::span(&key, 1)),
                      std::as_bytes(std::span(value)));
      headers_.add(entry.header());
      end_ += entry.size();
      ++key;
    }
    write_checksum(bytes_.data() + end_, headers_.value());
    end_ += sizeof(ChecksumEntry);
  }
  ByteView bytes() const { return bytes_; }
  std::uint64_t end() const { return end_; }

 private:
  Bytes bytes_;
  RunningChecksum headers_;
  std::uint64_t end_ = 0;
};

}  // namespace pyrdma::tailwind
