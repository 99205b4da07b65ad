// The options of a member. Times are in nanoseconds.
#pragma once
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "env/env.h"
#include "systems/erpc/raft/bugs.h"

namespace pyrdma::erpc::raft {

class Observer;

enum class Durability : std::uint8_t {
  kDisk,    // a member that has crashed continues with its term, vote, log and snapshot
  kMemory,  // as in the paper; a member that has crashed must be removed, then added as a new one
};

struct MemberOptions {
  Durability durability = Durability::kDisk;
  /// The voters of a new group, of which this member is one. Used only if the storage holds
  /// nothing. Empty: the member waits until a leader adds it. A member that has lost its disk must
  /// come back with an empty list: it may have voted.
  std::vector<NodeId> group;
  /// libraft counts milliseconds; one of them lasts `unit` here. The two timeouts are rounded up
  /// to whole units.
  Time unit = kMillisecond;
  Time election_timeout = 100 * kMillisecond;  // drawn from 1 to 2 times this
  Time heartbeat = 10 * kMillisecond;          // also the period of the member's clock
  Time snapshot_timeout = 500 * kMillisecond;  // after which a snapshot is sent again
  /// A snapshot is taken after this many entries; this many stay in the log behind it.
  std::uint32_t snapshot_threshold = 1024, snapshot_trailing = 128;
  /// A member asks whether it could win before it disturbs the group (thesis, section 9.6).
  bool pre_vote = true;
  /// Bytes of the longest AppendEntries, which is cut to this length.
  std::size_t max_message = 8 * kMiB;
  /// Bytes of the longest snapshot that is sent. For a longer one the transfer fails, and the
  /// member counts it (MemberCounters::too_long).
  std::size_t max_snapshot = 1024 * kMiB;
  Bugs bugs;
  Observer* observer = nullptr;  // outlives the member
};

}  // namespace pyrdma::erpc::raft
