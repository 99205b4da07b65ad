// Which replicas a recovery may use, and whether they are the whole log (Tailwind, sections 3.4.1
// and 3.4.3; RAMCloud's rules for the newest digest). It has no clock and no network.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pyrdma::tailwind {

/// What a backup says of a replica of the dead primary's log.
struct FoundReplica {
  std::uint32_t backup = 0;
  std::uint64_t segment = 0;
  std::uint64_t version = 0;
  bool is_closed = false;
  bool is_copy = false;     // not complete
  std::uint32_t valid = 0;  // bytes; of an open one those that scan() has found
  /// The numbers of the log's segments, which the first bytes have. Those of an open replica count,
  /// and one without them is damaged.
  std::optional<std::vector<std::uint64_t>> digest;
};

/// What the coordinator knows, by segment: open replicas of a lower version do not count. Other
/// segments have version 0.
using KnownVersions = std::map<std::uint64_t, std::uint64_t>;
/// The number among the segments of what a primary tells before it commits its first entry. It has
/// no segment with it.
inline constexpr std::uint64_t kLogItself = 0;

struct FoundLog {
  struct Part {
    std::uint64_t segment = 0;
    bool is_closed = false;                     // then all of it counts
    std::uint32_t valid = 0;                    // bytes that count, of each of the replicas
    std::vector<const FoundReplica*> replicas;  // with at least so many
  };
  std::vector<Part> parts;  // in the order of the log
  /// Why the log is not whole; empty if it is.
  std::string missing;
  /// What salvage_log() could not find, for reports.
  std::string lost;
};

/// Finds the whole log in `replicas`, which outlive the result. The log ends with an open segment:
/// its head. The segment before it may be open, too. Of a segment's open replicas the longest valid
/// prefix counts: an entry that only some of them have was not committed, and may live. Of its
/// closed ones those of the highest version count: a segment that was compacted in memory has other
/// bytes in later replicas (replicated_log.h), and a reader may change from one replica to another.
FoundLog find_log(const std::vector<FoundReplica>& replicas, const KnownVersions& known);

/// What is there of a log that is not whole and never will be, since every server has told what it
/// has. All segments count that anybody has, each by its best replica: a closed one, or the longest
/// of an open one. Digests do not count: the newest one may be lost, and what the cleaner has moved
/// with it. So the newest version that is left of each object is found. Objects may be missing,
/// old, or back though they were removed.
FoundLog salvage_log(const std::vector<FoundReplica>& replicas);

}  // namespace pyrdma::tailwind
