#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {

const char* to_string(ScanEnd end) {
  switch (end) {
    case ScanEnd::kFull:
      return "full";
    case ScanEnd::kNoEntry:
      return "no entry";
    case ScanEnd::kBadContents:
      return "bad contents";
    case ScanEnd::kBadChecksum:
      return "bad checksum";
  }
  return "?";
}

Scan scan(ByteView replica, Bugs bugs) {
  Scan result;
  RunningChecksum headers;
  std::uint64_t at = 0, entries = 0;
  const auto ended = [&](ScanEnd end) {
    result.end = end;
    result.ended_at = at;
    return result;
  };
  while (replica.size() - at >= sizeof(ChecksumEntry)) {
    const ByteView rest = replica.subspan(at);
    if (static_cast<EntryType>(rest.front()) == EntryType::kChecksum) {
      const std::uint32_t stored = read_checksum(rest);
      if (stored != headers.value() && bugs.checks_contents()) return ended(ScanEnd::kBadChecksum);
      at += sizeof(ChecksumEntry);
      result.valid = at;
      result.checksum = stored;
      result.entries = entries;
      continue;
    }
    const Entry entry = read_entry(rest);
    if (!entry) return ended(ScanEnd::kNoEntry);
    if (!entry.is_whole() && bugs.checks_contents()) return ended(ScanEnd::kBadContents);
    headers.add(entry.header());
    ++entries;
    at += entry.size();
  }
  return ended(ScanEnd::kFull);
}

}  // namespace pyrdma::tailwind
