#include "systems/tailwind/log/entry.h"

#include <cstring>

namespace pyrdma::tailwind {

EntryHeader completed(EntryHeader header, ByteView key, ByteView value) {
  header.key_bytes = static_cast<std::uint16_t>(key.size());
  header.bytes = static_cast<std::uint32_t>(key.size() + value.size());
  header.checksum = crc32c(value, crc32c(key));
  return header;
}

Entry write_entry(std::byte* to, const EntryHeader& header, ByteView key, ByteView value) {
  const EntryHeader all = completed(header, key, value);
  std::memcpy(to, &all, sizeof all);
  std::byte* contents = to + sizeof all;
  if (!key.empty()) std::memcpy(contents, key.data(), key.size());
  if (!value.empty()) std::memcpy(contents + key.size(), value.data(), value.size());
  return Entry(to);
}

void write_checksum(std::byte* to, std::uint32_t checksum) {
  ChecksumEntry entry;
  entry.checksum = checksum;
  std::memcpy(to, &entry, sizeof entry);
}

}  // namespace pyrdma::tailwind
