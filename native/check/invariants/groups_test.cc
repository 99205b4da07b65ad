// Multicast and Raft: each rule is kept, then broken in one place.
#include <gtest/gtest.h>

#include <string>

#include "base/error_test.h"
#include "base/rng.h"
#include "check/check.h"
#include "check/histories_test.h"
#include "check/invariants/raft.h"

namespace pyrdma::check {
namespace {

using enum Function;
using testing::i;

struct GroupNotes {
  History history;
  Time now = 0;
  void sent(int sender, std::int64_t number) {
    history.invoke(++now, 100 + sender, kBcast, {}, Value::pair(sender, number));
    history.complete(++now, 100 + sender, EventType::kOk, kBcast, {}, {});
  }
  void deliver(int node, std::int64_t view, int sender, std::int64_t number) {
    history.point(++now, node, kDeliver, {}, Value::pair(sender, number), view);
  }
  void view(int node, std::int64_t view, Value members) {
    history.point(++now, node, kView, {}, members, view);
  }
  void raft(int node, Function f, std::int64_t key, Value value, std::int64_t term = -1) {
    history.point(++now, node, f, key == 0 ? Value() : i(key), value, term);
  }
};

void expect_names(const GroupNotes& notes, const char* model,
                  const std::vector<std::string_view>& values) {
  const Verdict verdict = check_history(notes.history, model);
  EXPECT_EQ(verdict.answer, Answer::kNo);
  EXPECT_TRUE(names(verdict.text, values));
  EXPECT_FALSE(verdict.events.empty());
}

// --- multicast ----------------------------------------------------------------------------------

GroupNotes two_members() {
  GroupNotes notes;
  const Value both = Value::pair(0, 1);
  notes.view(0, 1, both);
  notes.view(1, 1, both);
  for (const int number : {0, 1, 2}) notes.sent(0, number);
  notes.sent(1, 0);
  for (const int node : {0, 1}) {
    notes.deliver(node, 1, 0, 0);
    notes.deliver(node, 1, 1, 0);
  }
  notes.deliver(0, 1, 0, 1);
  return notes;
}

TEST(Multicast, APrefixIsEnoughUntilTheViewEnds) {
  GroupNotes notes = two_members();
  EXPECT_EQ(check_history(notes.history, "multicast").text, "");
  notes.view(0, 2, i(7));
  GroupNotes missing = notes;
  missing.view(1, 2, i(7));
  expect_names(missing, "multicast", {"1", "2", "15", "16", "3"});
  notes.deliver(1, 1, 0, 1);
  notes.view(1, 2, i(7));
  EXPECT_EQ(check_history(notes.history, "multicast").text, "");
  notes.view(0, 2, i(7));
  expect_names(notes, "multicast", {"0", "2", "18"});
}

TEST(Multicast, BreaksOfEachRuleAreFound) {
  const auto broken = [](auto change, const std::vector<std::string_view>& values) {
    GroupNotes notes = two_members();
    change(notes);
    expect_names(notes, "multicast", values);
  };
  broken([](GroupNotes& n) { n.deliver(0, 1, 0, 1); }, {"0", "[0 1]", "14"});
  broken([](GroupNotes& n) { n.deliver(0, 1, 0, 9); }, {"[0 9]"});
  broken([](GroupNotes& n) { n.deliver(1, 1, 0, 2); }, {"[0 1]"});
  broken(
      [](GroupNotes& n) {
        n.sent(1, 1);
        n.deliver(1, 1, 1, 1);
      },
      {"2", "1", "[0 1]", "0", "14", "[1 1]"});
  broken([](GroupNotes& n) { n.view(2, 1, Value::pair(0, 2)); }, {"1", "[0 1]", "0"});
  GroupNotes backwards;
  backwards.deliver(0, 1, 0, 5);
  backwards.deliver(0, 2, 0, 4);
  expect_names(backwards, "multicast", {"0", "[0 4]", "1", "[0 5]"});
}

/// Random runs: members deliver in one order. The checker finds two swapped neighbours at one
/// member.
TEST(Multicast, TwoMessagesExchangedAtOneMemberAreFound) {
  Rng rng(41, 0, "multicast");
  for (int n = 0; n < 3'000 / testing::kScale; ++n) {
    const int members = 2 + static_cast<int>(rng.below(4));
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(members));
    std::vector<std::pair<int, std::int64_t>> order;
    for (int m = 0; m < 20; ++m) {
      const std::size_t sender = rng.below(numbers.size());
      order.emplace_back(static_cast<int>(sender), numbers[sender]++);
    }
    const std::size_t where = rng.below(order.size() - 1);
    const int who = n % 2 == 0 ? -1 : static_cast<int>(rng.below(numbers.size()));
    GroupNotes notes;
    for (const auto& [sender, number] : order) notes.sent(sender, number);
    for (int node = 0; node < members; ++node) {
      auto mine = order;
      if (node == who) std::swap(mine[where], mine[where + 1]);
      for (const auto& [sender, number] : mine) notes.deliver(node, 1, sender, number);
    }
    const Verdict verdict = check_history(notes.history, "multicast");
    ASSERT_EQ(verdict.answer, who < 0 ? Answer::kYes : Answer::kNo) << verdict.text;
  }
}

// --- Raft ---------------------------------------------------------------------------------------

/// Node 0 leads term 1 and has two entries on nodes 0 and 1, the first committed.
GroupNotes three_nodes() {
  GroupNotes notes;
  notes.raft(0, kLeader, 0, {}, 1);
  for (const int node : {0, 1})
    for (const int index : {1, 2}) notes.raft(node, kAppend, index, i(10 * index), 1);
  notes.raft(0, kCommit, 0, i(1), 1);
  notes.raft(0, kApply, 1, i(10));
  return notes;
}

TEST(Raft, KeepsItsInvariants) {
  GroupNotes notes = three_nodes();
  notes.raft(1, kLeader, 0, {}, 2);
  notes.raft(1, kAppend, 3, i(30), 2);
  notes.raft(2, kAppend, 1, i(10), 1);
  notes.raft(0, kFollower, 0, {});
  notes.raft(0, kTruncate, 0, i(1));
  notes.raft(0, kAppend, 2, i(20), 1);
  notes.raft(1, kCommit, 0, i(2), 2);
  notes.raft(1, kApply, 1, i(10));
  notes.raft(1, kApply, 2, i(20));
  notes.raft(1, kRecover, 0, {});
  notes.raft(1, kApply, 1, i(10));
  notes.raft(2, kSnapshot, 2, {});
  notes.raft(2, kAppend, 3, i(30), 2);
  notes.raft(2, kApply, 3, i(30));
  EXPECT_EQ(check_history(notes.history, "raft").text, "");
}

TEST(Raft, BreaksOfEachInvariantAreFound) {
  const auto broken = [](auto change, const std::vector<std::string_view>& values) {
    GroupNotes notes = three_nodes();
    change(notes);
    expect_names(notes, "raft", values);
  };
  broken([](GroupNotes& n) { n.raft(1, kLeader, 0, {}, 1); }, {"Election Safety", "1", "0", "7"});
  broken([](GroupNotes& n) { n.raft(0, kTruncate, 0, i(1)); },
         {"Leader Append-Only", "0", "1", "2"});
  broken([](GroupNotes& n) { n.raft(2, kAppend, 1, i(11), 1); }, {"Log Matching", "1"});
  broken([](GroupNotes& n) { n.raft(2, kLeader, 0, {}, 2); },
         {"Leader Completeness", "2", "7", "0"});
  broken(
      [](GroupNotes& n) {  // was elected before the missing entry was known as committed
        n.raft(2, kAppend, 1, i(10), 1);
        n.raft(2, kLeader, 0, {}, 3);
        n.raft(0, kCommit, 0, i(2), 1);
      },
      {"Leader Completeness", "2", "3", "0"});
  broken(
      [](GroupNotes& n) {
        n.raft(2, kAppend, 1, i(99), 7);
        n.raft(2, kCommit, 0, i(1), 7);
      },
      {"State Machine Safety", "2", "1", "8"});
  broken([](GroupNotes& n) { n.raft(1, kApply, 1, i(11)); },
         {"State Machine Safety", "1", "0", "6", "7"});
  broken([](GroupNotes& n) { n.raft(0, kApply, 3, i(30)); }, {"0", "3", "1"});
  broken([](GroupNotes& n) { n.raft(1, kCommit, 0, i(5), 1); }, {"1", "5", "2"});
  broken([](GroupNotes& n) { n.raft(1, kSnapshot, 2, {}); }, {"1", "2"});
  broken([](GroupNotes& n) { n.raft(1, kAppend, 4, i(1), 1); }, {"1", "4", "2"});
}

/// Log matching by digests gives the same answer as log matching by comparison.
TEST(Raft, DigestsFindExactlyTheLogsThatDoNotMatch) {
  Rng rng(42, 0, "raft");
  int bad = 0;
  for (int n = 0; n < 20'000 / testing::kScale; ++n) {
    RaftInvariants raft;
    std::vector<std::vector<std::pair<std::int64_t, std::uint64_t>>> logs(3);
    bool matching = true, found = false;
    for (std::uint32_t at = 0; at < 12 && matching; ++at) {
      const std::size_t node = rng.below(3);
      auto& log = logs[node];
      const auto term = static_cast<std::int64_t>(1 + rng.below(3));
      const std::uint64_t command = rng.below(10) == 0 ? 1 : 0;
      log.emplace_back(term, command);
      for (std::size_t other = 0; other < 3; ++other) {
        const auto& theirs = logs[other];
        for (std::size_t k = 0; k < std::min(log.size(), theirs.size()); ++k)
          if (log[k].first == theirs[k].first)
            matching = matching && std::equal(log.begin(), log.begin() + static_cast<int>(k) + 1,
                                              theirs.begin());
      }
      found = raft.append(at, static_cast<std::int32_t>(node),
                          static_cast<std::int64_t>(log.size()), term, command)
                  .has_value();
      ASSERT_EQ(found, !matching) << n;
    }
    bad += found;
  }
  EXPECT_GT(bad, 1000 / testing::kScale);
}

}  // namespace
}  // namespace pyrdma::check
