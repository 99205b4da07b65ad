// Deliberate bugs. Tests switch one on to show that the checks find it.
//
// The code asks Bugs at the steps that a bug changes, as in LOCO: a member function returns the
// correct value, or says that the correct step is taken, unless its bug is on. A question costs one
// comparison. libraft itself stays as it is, so a bug inside it is shown by what the seam hands in.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "systems/erpc/raft/wire.h"

namespace pyrdma::erpc::raft {

enum class Bug : std::uint8_t {
  kNone,
  kVoteNotPersisted,
  kTermNotPersisted,
  kTermForgotten,
  kVoteBeforeTerm,
  kSpeaksBeforeStored,
  kAcknowledgedBeforeStored,
  kFailedAppendKept,
  kMatchingAppendTruncates,
  kTruncationForgotten,
  kCompactedBeforeSnapshot,
  kReadBackTrusted,
  kDamageEndsLog,
  kOlderSlotTaken,
  kSnapshotTermUnchecked,
  kVoteIgnoresLog,
  kCommitsByCounting,
  kAcknowledgesLeftovers,
  kPreVoteHidesTerm,
  kAppendsBeforeLog,
  kCommitsBeyondAppend,
  kVotesForHeirAgain,
  kAnyTermTaken,
  kConfigurationKept,
  kConfigurationReadLate,
  kStandbyRefusesVote,
  kChangesAtOnce,
  kSoleVoterKeepsTerm,
  kTransferRestarted,
  kReadWithoutQuorum,
  kLeaseOnSkewedClock,
  kSessionsNotInSnapshot,
  kRunsAgain,
  kRenumbersRetry,
};

/// The names of the bugs after kNone, for `--mutation`.
inline constexpr std::array<std::string_view, 33> kBugNames{
    "vote_not_persisted",       "term_not_persisted",
    "term_forgotten",           "vote_before_term",
    "speaks_before_stored",     "acknowledged_before_stored",
    "failed_append_kept",       "matching_append_truncates",
    "truncation_forgotten",     "compacted_before_snapshot",
    "read_back_trusted",        "damage_ends_log",
    "older_slot_taken",         "snapshot_term_unchecked",
    "vote_ignores_log",         "commits_by_counting",
    "acknowledges_leftovers",   "pre_vote_hides_term",
    "appends_before_log",       "commits_beyond_append",
    "votes_for_heir_again",     "any_term_taken",
    "configuration_kept",       "configuration_read_late",
    "standby_refuses_vote",     "changes_at_once",
    "sole_voter_keeps_term",    "transfer_restarted",
    "read_without_quorum",      "lease_on_skewed_clock",
    "sessions_not_in_snapshot", "runs_again",
    "renumbers_retry"};

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

  // The durable term and vote. Correct: both are written at once, before the member speaks, and a
  // member that starts again knows both before it writes one of them.

  std::uint64_t vote_to_write(std::uint64_t vote) const {
    return is(Bug::kVoteNotPersisted) ? 0 : vote;
  }
  std::uint64_t term_to_write(std::uint64_t term, std::uint64_t written) const {
    return is(Bug::kTermNotPersisted) && written != 0 ? written : term;
  }
  bool knows_term_at_start() const { return !is(Bug::kTermForgotten); }
  bool writes_vote_first() const { return is(Bug::kVoteBeforeTerm); }
  bool waits_before_speaking() const { return !is(Bug::kSpeaksBeforeStored); }

  // The log. Correct: an entry is acknowledged after its sync, a failure ends the member, a
  // truncation is written, and an old log stays until the snapshot that replaces it is durable.

  bool syncs_before_acknowledging() const { return !is(Bug::kAcknowledgedBeforeStored); }
  bool ends_after_failed_append() const { return !is(Bug::kFailedAppendKept); }
  bool writes_truncation() const { return !is(Bug::kTruncationForgotten); }
  bool truncates_after_match() const { return is(Bug::kMatchingAppendTruncates); }
  /// Correct: what a start reads back is written again before the member relies on it.
  bool writes_again() const { return !is(Bug::kReadBackTrusted); }
  /// Correct: only what was never written ends a log; damage is refused.
  bool ends_log_at_damage() const { return is(Bug::kDamageEndsLog); }
  /// Correct: a damaged slot is refused, since it may be the newer one.
  bool takes_older_slot() const { return is(Bug::kOlderSlotTaken); }
  bool syncs_snapshot_first() const { return !is(Bug::kCompactedBeforeSnapshot); }
  /// Correct: the term of the snapshot's last entry.
  std::uint64_t snapshot_term(std::uint64_t correct, std::uint64_t current) const {
    return is(Bug::kSnapshotTermUnchecked) ? current : correct;
  }

  // Messages.

  /// A vote. Correct: the library compares the terms, then the indices. With the bug a candidate
  /// loses only if both are smaller.
  void compare_logs(RequestVote& m, std::uint64_t last_index, std::uint64_t last_term) const {
    if (!is(Bug::kVoteIgnoresLog)) return;
    if (m.last_term < last_term && m.last_index < last_index) return;
    m.last_term = std::max(m.last_term, last_term);
    m.last_index = std::max(m.last_index, last_index);
  }
  /// Correct: a new leader appends an entry of its own term. libraft counts who stores the last
  /// entry, of whatever term, and an entry of an old term is not committed by a majority (Raft,
  /// section 5.4.2).
  bool appends_barrier() const { return !is(Bug::kCommitsByCounting); }
  /// What a follower acknowledges. Correct: no more than the leader has compared. With the bug it
  /// is all that the library names, which may end with entries of an older leader.
  std::uint64_t index_to_acknowledge(std::uint64_t stored, std::uint64_t compared) const {
    return is(Bug::kAcknowledgesLeftovers) ? stored : std::min(stored, compared);
  }
  /// Correct: an append that begins before a compacted log loses what the snapshot holds.
  bool leaves_compacted_out() const { return !is(Bug::kAppendsBeforeLog); }
  /// Correct: an append commits no entry behind its own.
  std::uint64_t index_to_commit(std::uint64_t commit, std::uint64_t reached) const {
    return is(Bug::kCommitsBeyondAppend) ? commit : std::min(commit, reached);
  }
  bool votes_again() const { return is(Bug::kVotesForHeirAgain); }
  /// Correct: a term far beyond the own one is no term of this group. A new member knows none.
  bool may_leap(std::uint64_t own, std::uint64_t term) const {
    return own == 0 || term <= own + kMaxTermLeap || is(Bug::kAnyTermTaken);
  }
  /// Correct: a snapshot that is on its way goes on, also if the library asks for it again.
  bool keeps_transfer() const { return !is(Bug::kTransferRestarted); }
  bool tells_term() const { return !is(Bug::kPreVoteHidesTerm); }

  // Changes of the group. Correct: the configuration is that of the last change in the log, and a
  // leader makes no change before an entry of its term is committed.

  bool reads_configuration() const { return !is(Bug::kConfigurationKept); }
  /// Correct: before the next message, which may tell the member to stand for election.
  bool reads_configuration_at_once() const { return !is(Bug::kConfigurationReadLate); }
  /// Correct: a member votes whatever its own role is. Who asks knows whose votes count.
  bool votes_in_any_role() const { return !is(Bug::kStandbyRefusesVote); }
  /// Correct: the only voter takes a new term before it leads.
  bool sole_voter_takes_term() const { return !is(Bug::kSoleVoterKeepsTerm); }
  bool changes_at_once() const { return is(Bug::kChangesAtOnce); }

  // The store and its clients.

  bool reads_through_log(bool leads, bool within_lease) const {
    return !(is(Bug::kReadWithoutQuorum) && leads) &&
           !(is(Bug::kLeaseOnSkewedClock) && leads && within_lease);
  }
  bool keeps_sessions_in_snapshot() const { return !is(Bug::kSessionsNotInSnapshot); }
  bool asks_session() const { return !is(Bug::kRunsAgain); }
  bool keeps_number() const { return !is(Bug::kRenumbersRetry); }

 private:
  bool is(Bug bug) const { return __builtin_expect(static_cast<long>(bug_ == bug), 0L) != 0; }
  Bug bug_;
};

}  // namespace pyrdma::erpc::raft
