// The techniques of Spindle as switches, and the limits and times of a group.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "fabric/types.h"

namespace pyrdma::spindle {

/// Each preset adds to the one before it, in the order of the paper's section 4.
enum class Preset : std::uint8_t {
  kBaseline,       // Derecho before Spindle: one message per predicate (section 2.4)
  kBatching,       // opportunistic batching (3.2)
  kBatchingNulls,  // null-sends (3.3)
  kPaper,          // all of the paper's: posts after the lock is released (3.4)
  kBest,           // every switch on that improves on the paper
};
inline constexpr std::array<std::string_view, 5> kPresetNames{"baseline", "batching",
                                                              "batching+nulls", "paper", "best"};

struct Options {
  std::string name = "spindle";  // names the run: nodes with the same name form one group

  // Techniques of the paper.
  bool batch_delivery = false;  // delivers all messages that are stable, not the next one (3.2)
  bool batch_receive = false;   // takes all new messages of each sender, not one (3.2)
  bool batch_send = false;      // pushes all queued messages at once, not one (3.2)
  bool null_sends = false;      // a sender that lags sends nulls (3.3)
  bool post_unlocked = false;   // posts after the lock is released (3.4)
  bool batch_upcall = false;    // one upcall for all messages that a predicate delivers (3.5)
  /// The send predicate waits for so many queued messages; 0: it never waits. The paper shows why
  /// not (3.2). It waits neither for messages whose rounds others wait for (with null_sends), nor
  /// once the window is full, nor for the rest of a batch that has begun to leave.
  std::uint32_t fixed_batch = 0;

  // Not in the paper.
  bool exact_bytes = false;       // pushes the used bytes of slots where the rest is longer
  bool short_sends = false;       // a long batch goes to all members in short parts
  bool skip_quiet = false;        // looks less often at subgroups where nothing happens
  bool unlocked_upcalls = false;  // the lock is free during an upcall

  /// Number of the first round of each view in the headers of slots, below 2^40. Their field goes
  /// round; a test begins near its end. Equal at all nodes.
  std::uint64_t first_round = 0;

  /// A thread of the group runs the predicates. Without it the application runs them: its calls do
  /// while they wait, and Group::turn() does. A group that makes no turn for suspicion_timeout,
  /// outside of an upcall, is dead to the others.
  bool predicate_thread = true;

  /// Measures the time of predicates and posts, which costs readings of the clock.
  bool timed = false;

  // Times, in ns.
  Time heartbeat = kMillisecond;                // between two pushes of a row
  Time suspicion_timeout = 100 * kMillisecond;  // silence after which a member is suspected
  Time join_timeout = 30 * kSecond;             // until this node must be in a view
  Time idle_after = 100 * kMillisecond;  // without an event: the predicate thread goes to sleep
  Time idle_sleep = 300 * kMicrosecond;  // between two looks of a sleeping thread

  /// A view needs a majority of the last one. Without it both sides of a partition go on.
  bool partition_safety = true;

  // Heartbeats and acknowledgements wait behind messages. Let the load be the time that all slots
  // of a member take on its link, and then all slots of the others on the link of a receiver. Both
  // timeouts must be longer than the load, or members that live lose their places.
  //
  // All attempts of a connection together must take much less than suspicion_timeout: a member that
  // waits for room in the queue to a dead one sends nothing, and others would suspect it.
  std::uint32_t send_entries = 512;  // requests under way to a member; 16..32768
  std::uint32_t timeout_us = 500;    // timeout of a connection per attempt
  std::uint32_t retry_count = 7;     // of a connection; 0..7

  static Options of(Preset preset);
};

/// Returns the options, bounded by the device. Throws Error(kInvalidArgument) that names the
/// option, its value and the bound.
Options checked(const Options& options, const fabric::Capabilities& device);

}  // namespace pyrdma::spindle
