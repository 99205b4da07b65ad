// The options of a client, and the moments at which tests end it.
#pragma once
#include <cstdint>
#include <functional>

#include "base/units.h"
#include "systems/krcore/race/bugs.h"

namespace pyrdma::krcore::race {

/// A step of an insertion or of a split is over, and the next one has not begun.
enum class Step : std::uint8_t {
  kBlockWritten,
  kPlaced,
  kLookedAgain,
  kCommitted,
  kSplitLocked,
  kSplitReserved,
  kBatchPassed,
  kAllPassed,
  kCopied,
  kDoubled,
  kPublished,
  kBatchCleaned,
  kAllCleaned,
  kUnlocked,
  kCount,
};

struct ClientOptions {
  std::uint32_t client = 0;   // its number at this node: no two clients at one time have the same
  std::uint32_t window = 16;  // operations under way at most
  std::uint32_t queue_entries = 128;      // requests in flight per connection at most
  std::uint64_t chunk_bytes = 64 * kKiB;  // what it reserves for blocks at a time
  /// A freed block rests until so many others of its size are free, so that few readers meet its
  /// next use.
  std::uint32_t resting_blocks = 8;
  Time timeout = kSecond;  // after its first retry, an operation ends with an error
  /// A client whose split shows no beat for this time is taken for dead, and another one finishes
  /// its split. It is the clock of the one that waits. If the client lives, nothing breaks.
  Time lease = 200 * kMicrosecond;
  std::uint32_t split_groups = 16;  // groups that a split passes at a time, at most 16
  /// An insertion that others wait for and that does not go on for this time is undone.
  Time patience = 50 * kMicrosecond;
  /// Where numbers begin that go round: the uses of a block, and the beats of a split. For tests.
  std::uint32_t first_version = 1, first_beat = 0;
  Bugs bugs;
  std::function<void(Step)> at_step;  // for tests
};

}  // namespace pyrdma::krcore::race
