// Scripts of groups that change; scripts_test.cc runs them.
#include <gtest/gtest.h>

#include "systems/erpc/raft/script_test.h"

namespace pyrdma::erpc::raft {
namespace {

constexpr ScriptCase kChangeScripts[] = {
    {"a_change_that_is_cut_off_is_forgotten", Bug::kConfigurationKept, R"(
        set group 3
        set nodes 4
        elect 0
        7 put a x > version 1
        run 100
        isolate 0
        lone 0 add 3
        run 20
        kill 0
        restart 0                     # with the change, which nobody else has
        servers 0 4
        elect 1
        7 put a y > version 2
        join 0
        run 500
        branch erpc/raft/truncated
        servers 0 3
        kill 3
        equal
     )"},
    {"a_change_is_cut_off_behind_a_snapshot", Bug::kNone, R"(
        # The committed configuration is in the snapshot alone.
        set group 3
        set nodes 4
        set threshold 4
        set trailing 2
        elect 0
        7 put a 1
        7 put a 2
        7 put a 3
        7 put a 4
        7 put a 5
        7 put a 6
        run 100
        seen 0 compacted
        isolate 0
        lone 0 add 3
        run 20
        elect 1
        7 put a 7 > version 7
        join 0
        run 500
        branch erpc/raft/truncated
        servers 0 3
        kill 3
        equal
     )"},
    {"a_leader_waits_before_it_changes_the_group", Bug::kChangesAtOnce, R"(
        # Two changes without a common majority (D. Ongaro, 2015).
        set group 4
        set nodes 5
        set pre_vote off
        elect 0
        7 put a w > version 1
        add 4 > done
        role 4 standby > done
        7 put a x > version 2
        run 200
        cut 0 1
        cut 0 2
        cut 0 3
        cut 1 4
        lone 0 role 4 voter           # at 0 and 4
        run 20
        elect 1                       # by 2 and 3
        kill 3                        # it gets nothing of the second term
        cut 1 3
        remove 0                      # by 1 and 2 of 1, 2 and 3
        run 5
        restart 3
        run 50
        kill 1
        kill 2
        heal
        elect 0                       # by 3 and 4 of five
        7 put b y
        restart 1
        restart 2
        run 1000
        equal
     )"},
    {"the_only_voter_takes_a_new_term", Bug::kSoleVoterKeepsTerm, R"(
        set group 2
        set nodes 3
        elect 0
        7 put a x > version 1
        remove 0 > done
        run 1000
        leads 1
        7 put a y > version 2
     )"},
    {"a_group_grows_and_shrinks", Bug::kNone, R"(
        set group 3
        set nodes 4
        elect 0
        7 put a x > version 1
        add 3 > done
        role 3 standby > done
        run 300
        role 3 voter > done
        role 3 voter > invalid
        add 3 > invalid
        7 put a y > version 2
        run 200
        equal
        kill 1
        7 put a z > version 3
        remove 1 > done
        remove 1 > invalid
        kill 2
        7 put a w > version 4         # 0 and 3 are two of three voters
        restart 2
        7 put a v > version 5
        run 500
        equal
     )"},
    {"the_lead_is_handed_over", Bug::kNone, R"(
        elect 0
        transfer 2 > done
        leads 2
        7 put a x > version 1
        transfer 2 > invalid
     )"},
    {"a_change_comes_with_the_lead", Bug::kConfigurationReadLate, R"(
        # The heir stands for election while it stores the change.
        set group 3
        set nodes 4
        elect 0
        7 put a x > version 1
        run 100
        lone 0 add 3
        lone 0 transfer 1
        run 100
        leads 1
        servers 1 4
        servers 2 4
        role 3 voter > done
        7 put a y > version 2
        run 300
        equal
     )"},
    {"a_standby_votes_for_who_counts_it", Bug::kStandbyRefusesVote, R"(
        set group 4
        elect 0
        7 put a x > version 1
        role 2 standby > done
        run 100
        cut 0 2
        lone 0 role 2 voter           # at 0, 1 and 3
        run 20
        kill 0
        elect 1                       # by three of four, 2 among them
        7 put a y > version 2
        restart 0
        heal
        run 500
        equal
     )"},
    {"a_member_in_memory_is_replaced", Bug::kNone, R"(
        set memory on
        elect 0
        7 put a x > version 1
        wipe 2
        remove 2 > done
        restart 2
        run 100
        add 2 > done
        role 2 voter > done
        kill 1
        7 put a y > version 2
        run 300
        equal
     )"},
    {"an_old_answer_does_not_speak_for_the_new_member", Bug::kNone, R"(
        set memory on
        elect 0
        record 2 0
        7 put a x > version 1
        7 put a y > version 2
        7 put a z > version 3
        run 100
        wipe 2
        remove 2 > done
        restart 2
        run 100
        add 2 > done
        replay 2 0                    # the old member 2 had all these entries
        run 10
        role 2 voter > done
        kill 1
        7 put a w > version 4
        run 300
        equal
     )"},
};

INSTANTIATE_TEST_SUITE_P(Changes, ErpcRaftScripts, testing::ValuesIn(kChangeScripts),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace pyrdma::erpc::raft
