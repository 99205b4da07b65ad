// How much of a segment's replica is valid: algorithm 1 of the paper (section 3.4.1). A backup runs
// it over each open buffer of a primary that has died. It uses no clock and no memory of its own.
//
// Two things differ from the listing. A mismatch ends the scan, as the text says; the listing goes
// on. Contents are verified, too: the headers prove the contents only where a NIC places the bytes
// of a write in ascending order, which no standard promises.
#pragma once
#include <cstdint>

#include "base/bytes.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/log/entry.h"

namespace pyrdma::tailwind {

enum class ScanEnd : std::uint8_t {
  kFull,         // no place for a further entry
  kNoEntry,      // memory that nobody has written, or a damaged header
  kBadContents,  // of an entry
  kBadChecksum,  // of the headers
};
const char* to_string(ScanEnd end);

struct Scan {
  std::uint64_t valid = 0;     // bytes up to the end of the last valid checksum entry
  std::uint32_t checksum = 0;  // of that entry; 0: there is none
  std::uint64_t entries = 0;   // within the valid bytes, without checksum entries
  ScanEnd end = ScanEnd::kFull;
  std::uint64_t ended_at = 0;  // offset of the entry that ended it
};

/// Scans a segment's replica from its begin. Costs about twice a CRC32C of the valid bytes.
Scan scan(ByteView replica, Bugs bugs = {});

/// Calls act(entry, offset) for each entry of the first `valid` bytes that scan() has found,
/// without checksum entries. Costs a look at each header.
template <class Act>
void for_entries(ByteView replica, std::uint64_t valid, Act&& act) {
  for (std::uint64_t at = 0; at < valid;) {
    if (read_checksum(replica.subspan(at)) != 0) {
      at += sizeof(ChecksumEntry);
      continue;
    }
    const Entry entry = read_entry(replica.first(valid).subspan(at));
    if (!entry) return;
    act(entry, at);
    at += entry.size();
  }
}

}  // namespace pyrdma::tailwind
