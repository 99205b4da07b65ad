// Scripted tests of a group, as data. A script that names a bug passes without it and fails with
// it.
#include <gtest/gtest.h>

#include "systems/erpc/raft/script_test.h"

namespace pyrdma::erpc::raft {
namespace {

constexpr ScriptCase kScripts[] = {
    {"replicates", Bug::kNone, R"(
        elect 0
        7 put a x > version 1
        7 put a y > version 2
        7 get a > value y
        7 get b > absent
        run 100
        equal
     )"},
    {"a_minority_commits_nothing", Bug::kNone, R"(
        elect 0
        isolate 0
        at 0 put a x > pending
        run 1000
        leads 1 > yes
     )"},
    {"a_deposed_leader_loses_its_tail", Bug::kTruncationForgotten, R"(
        elect 0
        7 put a x > version 1
        isolate 0
        at 0 put a lost > pending
        at 0 put a lost > pending
        elect 1
        7 put a y > version 2
        7 put a z > version 3
        join 0
        run 500
        branch erpc/raft/truncated
        at 1 get a > value z
        crash 0
        restart 0
        run 500
        equal
     )"},
    {"figure_8", Bug::kCommitsByCounting, R"(
        # A majority stores an entry of an old term; it is not committed by that (Raft, figure 8).
        set group 5
        set pre_vote off
        elect 0
        7 put a x > version 1
        run 100
        cut 0 2
        cut 0 3
        cut 0 4
        one_way 0 1                   # member 0 does not hear member 1
        at 0 put a old > pending      # at 0 and 1, in the first term
        kill 0
        heal
        elect 2                       # by 3 and 4
        isolate 2
        at 2 put a other > pending    # at 2 alone, in the second term
        kill 2
        restart 0
        cut 0 4
        elect 0                       # by 1 and 3
        hold 1 0
        run 1
        one_way 1 0                   # member 1 gets nothing of the third term
        run 21                        # member 3 gets the old entry
        release 1 0
        run 3                         # now 0, 1 and 3 hold it
        kill 0
        restart 2
        heal
        elect 2                       # by 1 and 4, whose logs end in the first term
        7 put b new
        restart 0
        run 1000
        equal
     )"},
    {"leftovers_are_not_acknowledged", Bug::kAcknowledgesLeftovers, R"(
        # Member 1 holds entries of a deposed leader behind those that it shares with the new one.
        set group 5
        set pre_vote off
        elect 0
        7 put a x > version 1
        run 100
        cut 0 2
        cut 0 3
        cut 0 4
        one_way 0 1
        at 0 put a l1 > pending
        at 0 put a l2 > pending
        at 0 put a l3 > pending
        kill 0
        heal
        elect 2                       # by 3 and 4
        cut 2 4
        run 1
        one_way 1 2                   # member 1 hears of the new leader and gets no entry
        run 30
        heal
        7 put a y
        restart 0
        run 1000
        equal
        branch erpc/raft/truncated
        branch erpc/raft/leftover_not_acknowledged
     )"},
    {"a_paused_leader_does_not_answer", Bug::kReadWithoutQuorum, R"(
        elect 0
        7 put a x > version 1
        pause 0
        elect 1
        7 put a y > version 2
        isolate 0
        resume 0
        at 0 get a > refused
     )"},
    {"a_slow_clock_makes_no_lease", Bug::kLeaseOnSkewedClock, R"(
        elect 0
        7 put a x > version 1
        run 50
        clock 0 20
        isolate 0
        elect 1
        7 put a y > version 2
        at 0 get a > pending
     )"},
    {"a_vote_survives_a_crash", Bug::kVoteNotPersisted, R"(
        elect 0
        crash 1
        restart 1
        crash 2
        restart 2
        run 500
        7 put a x > version 1
     )"},
    {"a_term_survives_a_crash", Bug::kTermNotPersisted, R"(
        elect 0
        transfer 1 > done
        crash 0
        restart 0
        7 put a x > version 1
     )"},
    {"an_acknowledged_entry_survives_a_crash", Bug::kAcknowledgedBeforeStored, R"(
        elect 0
        7 put a x > version 1
        cut 0 2
        at 0 put a y > version 2      # by 0 and 1
        crash 1
        restart 1
        mend 0 2
        run 500
        7 get a > value y
     )"},
    {"a_failed_disk_ends_its_member", Bug::kFailedAppendKept, R"(
        elect 0
        7 put a x > version 1
        disk 1 1
        7 put a y > version 2
        run 100
        failed 1
        crash 1
        restart 1
        run 500
        7 put a z > version 3
        run 100
        equal
     )"},
    {"an_old_append_truncates_nothing", Bug::kMatchingAppendTruncates, R"(
        elect 0
        7 put a x > version 1
        record 0 1
        7 put a y > version 2
        7 put a z > version 3
        replay 0 1
        run 5
        crash 1
        restart 1
        run 300
        equal
     )"},
    {"a_late_append_finds_a_compacted_log", Bug::kAppendsBeforeLog, R"(
        # Libraft takes an append that begins before its log for one that begins at its log's end.
        set group 3
        set nodes 4
        set threshold 4
        set trailing 2
        elect 0
        7 put a 1 > version 1
        7 put a 2 > version 2
        record 0 3
        add 3 > done
        role 3 voter > done           # it gets the log from the first entry on
        7 put a 3 > version 3
        7 put a 4 > version 4
        7 put a 5 > version 5
        7 put a 6 > version 6
        run 100
        seen 3 compacted
        replay 0 3
        run 5
        branch erpc/raft/append_before_log
        7 put a 7 > version 7
        run 100
        equal
     )"},
    {"a_log_is_compacted_and_restarted", Bug::kCompactedBeforeSnapshot, R"(
        set threshold 4
        set trailing 2
        elect 0
        7 put a 1
        7 put a 2
        7 put a 3
        7 put a 4
        7 put a 5
        7 put a 6
        7 put a 7
        run 100
        seen 1 snapshots_taken
        seen 1 compacted
        crash 1
        restart 1
        run 300
        7 get a > value 7
        equal
     )"},
    {"a_lagging_member_gets_a_snapshot", Bug::kNone, R"(
        set threshold 4
        set trailing 2
        elect 0
        isolate 2
        7 put a 1
        7 put a 2
        7 put a 3
        7 put a 4
        7 put a 5
        7 put a 6
        7 put a 7
        join 2
        run 2000
        seen 2 snapshots_installed
        equal
        crash 2
        restart 2
        run 300
        equal
     )"},
    {"a_snapshot_holds_the_sessions", Bug::kSessionsNotInSnapshot, R"(
        set threshold 4
        set trailing 2
        elect 0
        isolate 2
        at 0 put a 1
        at 0 put a 2
        at 0 put a 3
        at 0 put a 4
        at 0 put a 5
        at 0 put a 6 > version 6
        join 2
        run 2000
        seen 2 snapshots_installed
        transfer 2 > done
        again 2 > version 6
        run 200
        equal
     )"},
    {"a_retry_is_not_executed_again", Bug::kRunsAgain, R"(
        elect 0
        at 0 put a x > version 1
        at 0 put a y > version 2
        again 0 > version 2
        transfer 1 > done
        again 1 > version 2
     )"},
    {"one_way_loss_does_not_stop_the_group", Bug::kNone, R"(
        elect 0
        one_way 0 1                   # member 0 never hears member 1
        7 put a x > version 1
        one_way 0 2
        run 2000
        7 put a y > version 2
     )"},
};

TEST_P(ErpcRaftScripts, Passes) {
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem();
  EXPECT_EQ(Script(Bug::kNone).run(GetParam().script), "");
}

TEST_P(ErpcRaftScripts, KillsItsBug) {
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem();
  if (GetParam().bug == Bug::kNone) return;
  EXPECT_NE(Script(GetParam().bug).run(GetParam().script), "");
}

INSTANTIATE_TEST_SUITE_P(Erpc, ErpcRaftScripts, testing::ValuesIn(kScripts),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace pyrdma::erpc::raft
