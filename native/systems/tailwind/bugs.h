// Deliberate bugs, some of them taken from published systems. Tests switch one on to show that the
// checks find it. Each function returns the correct decision, unless its bug is on.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace pyrdma::tailwind {

enum class Bug : std::uint8_t {
  kNone,
  kClosedBeforeNextIsOpen,   // then a crash leaves no head
  kDataBeforeLastIsClosed,   // then an open segment with a gap is behind the head
  kVersionNotRaised,         // a backup that comes back has an old replica
  kCommitsWithoutConsent,    // of the coordinator
  kCopyIsValidAtOnce,        // also a half copied one
  kReadDoesNotWait,          // for the commit of what it has read
  kResultNotKept,            // then an update that is sent again happens again
  kTombstoneCleanedEarly,    // while the log has the object
  kBufferNotZeroed,          // before its next use: what was there looks like the new replica's
  kBufferKeepsKey,           // so who wrote to it before can still do so
  kPostedOutOfOrder,         // a write before that of the bytes that precede its own
  kScannedBeforeClosing,     // the connections of the dead primary, which goes on to write
  kCutAgain,                 // a recovery that is repeated takes what it finds now
  kLeaseIgnored,             // a server serves though others may have its tablets
  kContentsUnchecked,        // of the entries of an open replica
  kCommittedWithoutLast,     // when all backups but one have the data
  kOldSegmentsAreCommitted,  // as soon as there is a newer one
  kRemovedVersionForgotten,  // in a recovery
  kDeadLogsFreed,            // before they are recovered
  kFlushIgnored,             // completions are taken for durable data
  kFlushedAtOnce,            // a closed replica whose data are not visible yet
  kSavedMemoryRemoved,       // that a battery has saved, while nothing else has it
  kFailedKnockEndsNode,      // one whose address the device refuses
  kSendersUnchecked,         // so anybody may speak in another node's name
  kKnocksOrderedByNonce,     // that their senders choose
  kIdleUnprobed,             // so the connections of peers that have gone stay
  kCleanedBeforeCommit,      // of what replaced the entries that the cleaner leaves out
  // Without names: the model of replication has them.
  kFreedBeforeNextIsOpen,  // what a cleaner has moved
  kSurvivorNotInDigest,    // of the next head
};

/// The names of the bugs, for `pyrdma fuzz tailwind --mutation`.
inline constexpr std::array<std::string_view, 27> kBugNames{"closed_before_next_is_open",
                                                            "data_before_last_is_closed",
                                                            "version_not_raised",
                                                            "commits_without_consent",
                                                            "copy_is_valid_at_once",
                                                            "read_does_not_wait",
                                                            "result_not_kept",
                                                            "tombstone_cleaned_early",
                                                            "buffer_not_zeroed",
                                                            "buffer_keeps_key",
                                                            "posted_out_of_order",
                                                            "scanned_before_closing",
                                                            "cut_again",
                                                            "lease_ignored",
                                                            "contents_unchecked",
                                                            "committed_without_last",
                                                            "old_segments_are_committed",
                                                            "removed_version_forgotten",
                                                            "dead_logs_freed",
                                                            "flush_ignored",
                                                            "flushed_at_once",
                                                            "saved_memory_removed",
                                                            "failed_knock_ends_node",
                                                            "senders_unchecked",
                                                            "knocks_ordered_by_nonce",
                                                            "idle_unprobed",
                                                            "cleaned_before_commit"};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  /// Returns the bug with this name; nothing for an unknown name.
  static constexpr Bugs named(std::string_view name) {
    for (std::size_t i = 0; i < kBugNames.size(); ++i) {
      if (kBugNames[i] == name) return static_cast<Bug>(i + 1);
    }
    return {};
  }

  // The order of replication.

  bool waits_for_next() const { return !is(Bug::kClosedBeforeNextIsOpen); }
  bool waits_for_last() const { return !is(Bug::kDataBeforeLastIsClosed); }
  bool raises_version() const { return !is(Bug::kVersionNotRaised); }
  bool waits_for_consent() const { return !is(Bug::kCommitsWithoutConsent); }
  bool marks_copies() const { return !is(Bug::kCopyIsValidAtOnce); }
  bool waits_for_all() const { return !is(Bug::kCommittedWithoutLast); }
  bool waits_to_free() const { return !is(Bug::kFreedBeforeNextIsOpen); }
  bool lists_survivors() const { return !is(Bug::kSurvivorNotInDigest); }

  // A primary.

  bool posts_in_order() const { return !is(Bug::kPostedOutOfOrder); }
  bool flushes() const { return !is(Bug::kFlushIgnored); }
  bool looks_at_old_segments() const { return !is(Bug::kOldSegmentsAreCommitted); }
  bool reads_wait() const { return !is(Bug::kReadDoesNotWait); }
  bool keeps_results() const { return !is(Bug::kResultNotKept); }
  bool commits_before_cleaning() const { return !is(Bug::kCleanedBeforeCommit); }
  bool keeps_tombstones() const { return !is(Bug::kTombstoneCleanedEarly); }
  bool checks_lease() const { return !is(Bug::kLeaseIgnored); }

  // Connections.

  bool survives_knocks() const { return !is(Bug::kFailedKnockEndsNode); }
  bool checks_senders() const { return !is(Bug::kSendersUnchecked); }
  bool orders_by_connection() const { return !is(Bug::kKnocksOrderedByNonce); }
  bool probes_idle() const { return !is(Bug::kIdleUnprobed); }

  // Backups and recovery.

  bool awaits_data() const { return !is(Bug::kFlushedAtOnce); }
  bool keeps_saved_memory() const { return !is(Bug::kSavedMemoryRemoved); }
  bool zeroes_buffers() const { return !is(Bug::kBufferNotZeroed); }
  bool renews_keys() const { return !is(Bug::kBufferKeepsKey); }
  bool closes_first() const { return !is(Bug::kScannedBeforeClosing); }
  bool checks_contents() const { return !is(Bug::kContentsUnchecked); }
  bool keeps_cut() const { return !is(Bug::kCutAgain); }
  bool keeps_removed_version() const { return !is(Bug::kRemovedVersionForgotten); }
  bool keeps_dead_logs() const { return !is(Bug::kDeadLogsFreed); }

 private:
  constexpr bool is(Bug bug) const { return __builtin_expect(bug_ == bug, 0) != 0; }
  Bug bug_;
};

}  // namespace pyrdma::tailwind
