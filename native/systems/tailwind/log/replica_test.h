// Entries and replicas, as tests write them.
#pragma once
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
  ByteView bytes() const { return bytes_; }
  std::uint64_t end() const { return end_; }

 private:
  Bytes bytes_;
  RunningChecksum headers_;
  std::uint64_t end_ = 0;
};

}  // namespace pyrdma::tailwind
