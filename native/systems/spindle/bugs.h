// Deliberate bugs, most of them taken from published systems. Tests switch one on to show that the
// checks find it. Each function returns the correct decision, unless its bug is on.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace pyrdma::spindle {

enum class Bug : std::uint8_t {
  kNone,
  kGuardBeforeData,
  kSlotReusedEarly,
  kDeliveredOnReceipt,
  kNullHeaderTrusted,
  kNullsEndless,
  kRowUnchecked,
  kSilenceIgnored,
  kReceivesAfterWedge,
  kPendingDropped,
  kResentTwice,
  kProposalIgnored,
  kProposalBlended,
  kSuspicionsUnheard,
  kSuspectHeard,
  kMinorityInstalls,
  kTrimNotEchoed,
  kTrimComputedAgain,
  kJoinersForgotten,
  kEchoUncompared,
  kAccuserStays,
  kCommitUnheard,
  kPartBatchWaits,
  kLeavesUnsent,
  kViewEndNotSynced,
  kShortLogCopied,
  kDamageCut,
  kMarkedEarly,
  kDamagedViewsForgotten,
  kJoinersNotAwaited,
  kJoinersAgreeEarly,
  kLostStateIgnored,
  kStateNotSynced,
  kAnsweredWhenQueued,
  // Without a name: it costs only time, and a test finds it.
  kStateInOneTurn,
};

/// The names of the bugs of groups, for `pyrdma fuzz spindle --mutation`.
inline constexpr std::array<std::string_view, 23> kBugNames{
    "guard_before_data",   "slot_reused_early", "delivered_on_receipt", "null_header_trusted",
    "nulls_endless",       "row_unchecked",     "silence_ignored",      "receives_after_wedge",
    "pending_dropped",     "resent_twice",      "proposal_ignored",     "proposal_blended",
    "suspicions_unheard",  "suspect_heard",     "minority_installs",    "trim_not_echoed",
    "trim_computed_again", "joiners_forgotten", "echo_uncompared",      "accuser_stays",
    "commit_unheard",      "part_batch_waits",  "leaves_unsent"};
/// The names of the bugs of logs, for `pyrdma fuzz spindle_logs --mutation`.
inline constexpr std::array<std::string_view, 10> kLogBugNames{
    "view_end_not_synced",     "short_log_copied",    "damage_cut",          "marked_early",
    "damaged_views_forgotten", "joiners_not_awaited", "joiners_agree_early", "lost_state_ignored",
    "state_not_synced",        "answered_when_queued"};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  /// Returns the bug with this name; nothing for an unknown name.
  static constexpr Bugs named(std::string_view name) {
    std::size_t number = 0;
    const auto has = [&](std::string_view each) { return ++number != 0 && each == name; };
    if (std::ranges::any_of(kBugNames, has) || std::ranges::any_of(kLogBugNames, has))
      return static_cast<Bug>(number);
    return {};
  }

  // Multicast.

  /// The slots are written before the guard that announces them.
  bool data_first() const { return !is(Bug::kGuardBeforeData); }
  /// A slot is used again once all members have delivered its message.
  bool waits_for_delivery() const { return !is(Bug::kSlotReusedEarly); }
  /// A message is delivered once all members have received it.
  bool waits_for_stability() const { return !is(Bug::kDeliveredOnReceipt); }
  /// A round without a message of its own in the slot is a null (Derecho #187, #190).
  bool looks_at_round() const { return !is(Bug::kNullHeaderTrusted); }
  /// A null is sent only for a message that it precedes.
  bool nulls_end() const { return !is(Bug::kNullsEndless); }

  /// Messages that the others wait for wait for no full batch.
  bool ends_batch() const { return !is(Bug::kPartBatchWaits); }
  /// A member leaves when the others have what it has sent.
  bool leaves_after_last() const { return !is(Bug::kLeavesUnsent); }

  // Rows.

  /// A control row counts once its checksum fits (Derecho #182).
  bool checks_rows() const { return !is(Bug::kRowUnchecked); }
  bool suspects_silence() const { return !is(Bug::kSilenceIgnored); }

  // Views.

  /// The counts that a wedged member has declared stay.
  bool stops_at_wedge() const { return !is(Bug::kReceivesAfterWedge); }
  /// A message that the old view did not deliver is sent again in the next one (Derecho #22).
  bool sends_again() const { return !is(Bug::kPendingDropped); }
  bool sends_again_only_lost() const { return !is(Bug::kResentTwice); }
  /// A new leader goes on with the proposal of the last one (Derecho #126).
  bool adopts_proposal() const { return !is(Bug::kProposalIgnored); }
  /// It adds no change of its own to it (Derecho #126).
  bool keeps_changes() const { return !is(Bug::kProposalBlended); }
  /// It keeps its trim.
  bool keeps_trim() const { return !is(Bug::kTrimComputedAgain); }
  /// It begins when all suspect all members of lower rank (Derecho #126).
  bool waits_for_suspicions() const { return !is(Bug::kSuspicionsUnheard); }
  /// A leader proposes when each member that it suspects goes, also one that only suspects it.
  bool waits_for_accusers() const { return !is(Bug::kAccuserStays); }
  /// Nobody follows a leader that it suspects.
  bool ignores_suspects() const { return !is(Bug::kSuspectHeard); }
  /// A view needs a majority of the last one (Derecho #11).
  bool needs_majority() const { return !is(Bug::kMinorityInstalls); }
  /// Messages up to the trim are delivered when the others have accepted it.
  bool waits_for_echoes() const { return !is(Bug::kTrimNotEchoed); }
  /// They have accepted it if they have accepted the proposal of the same leader.
  bool compares_echoes() const { return !is(Bug::kEchoUncompared); }
  /// A committed end of the view counts, also if a suspect says it.
  bool hears_commits() const { return !is(Bug::kCommitUnheard); }
  bool keeps_joiners() const { return !is(Bug::kJoinersForgotten); }

  /// A view runs when all of its members have their state.
  bool awaits_state() const { return !is(Bug::kJoinersNotAwaited); }
  /// A joiner agrees to its first view when it has its state.
  bool accepts_with_state() const { return !is(Bug::kJoinersAgreeEarly); }
  /// Who has gone may have had the last copy of a joiner's state.
  bool knows_lost_state() const { return !is(Bug::kLostStateIgnored); }

  // Logs.

  /// The samples of a view are durable before the next one runs.
  bool syncs_view_end() const { return !is(Bug::kViewEndNotSynced); }
  /// The state of a joiner is durable before its view runs.
  bool syncs_state() const { return !is(Bug::kStateNotSynced); }
  /// A client of the domain is answered when all members have its sample.
  bool answers_when_delivered() const { return !is(Bug::kAnsweredWhenQueued); }
  /// A member reads from its log what it is asked for, and no more.
  bool reads_parts() const { return !is(Bug::kStateInOneTurn); }
  /// At a restart the others copy the longest log of the last view.
  bool copies_longest() const { return !is(Bug::kShortLogCopied); }
  /// A log that is damaged is refused.
  bool refuses_damage() const { return !is(Bug::kDamageCut); }
  /// A log says that samples are durable when they are.
  bool marks_behind_sync() const { return !is(Bug::kMarkedEarly); }
  /// A damaged record of views is not replaced by an older one.
  bool refuses_damaged_views() const { return !is(Bug::kDamagedViewsForgotten); }

 private:
  constexpr bool is(Bug bug) const { return __builtin_expect(bug_ == bug, 0) != 0; }
  Bug bug_;
};

}  // namespace pyrdma::spindle
