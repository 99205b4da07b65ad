// One group of members in virtual time: elections, replication, restarts, snapshots, changes.
#include "systems/erpc/raft/member.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "systems/erpc/raft/world_test.h"

namespace pyrdma::erpc::raft {
namespace {

ByteView text_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

Key key_named(std::string_view name) {
  Key key{};
  std::copy_n(text_bytes(name).begin(), std::min(name.size(), key.size()), key.begin());
  return key;
}

std::optional<KvAnswer> put(World& world, World::Client& client, std::string_view key,
                            std::string_view value) {
  client.logic->put(world.now(), key_named(key), text_bytes(value));
  if (!world.finish(client, 10 * kSecond)) return std::nullopt;
  return client.answer;
}

std::string findings(World& world) {
  std::string all;
  for (const auto& finding : world.invariants().findings()) all += finding.text + '\n';
  return all;
}

TEST(ErpcRaftMember, AGroupElectsReplicatesAndAppliesEverywhere) {
  PYRDMA_NEED_LIBRAFT();
  World world({});
  ASSERT_TRUE(world.run_until([&] { return world.leader().has_value(); }, 5 * kSecond));
  auto& client = world.add_client(7, {0, 1, 2});
  for (int i = 0; i < 20; ++i) {
    const auto answer = put(world, client, "a", "value " + std::to_string(i));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->version, static_cast<std::uint64_t>(i + 1));
  }
  world.run(kSecond);
  for (NodeId n = 0; n < 3; ++n) {
    EXPECT_EQ(world.state(n).get(key_named("a")).version, 20u) << "member " << n;
    EXPECT_EQ(world.member(n).failure(), "");
  }
  EXPECT_EQ(findings(world), "");
}

TEST(ErpcRaftMember, ARestartedGroupKeepsAllThatItAcknowledged) {
  PYRDMA_NEED_LIBRAFT();
  WorldOptions options;
  options.member.snapshot_threshold = 16;
  options.member.snapshot_trailing = 4;
  World world(options);
  auto& client = world.add_client(7, {0, 1, 2});
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(put(world, client, "k" + std::to_string(i), "v"));
    for (NodeId n = 0; n < 3; ++n) world.crash(n);
    for (NodeId n = 0; n < 3; ++n) ASSERT_TRUE(world.restart(n)) << world.why();
  }
  ASSERT_TRUE(put(world, client, "last", "v"));
  world.run(kSecond);
  for (NodeId n = 0; n < 3; ++n) {
    EXPECT_EQ(world.state(n).get(key_named("k3")).version, 5u) << "member " << n;
    EXPECT_GT(world.member(n).first_index(), 1u) << "the log is compacted";
  }
  EXPECT_EQ(world.state(0).snapshot(), world.state(2).snapshot());
  EXPECT_EQ(findings(world), "");
}

// Member 1 has voted for member 0. It stores a later term without a vote, starts again, votes for
// member 2, starts again, and is asked by another candidate of the same term. Libraft asks for a
// vote and for a term one by one. A vote in the term that the member has loaded must not overwrite
// that term, and a term begins without the vote of the last one.
std::string vote_twice(Bug bug) {
  WorldOptions options;
  options.bugs = bug;
  World world(options);
  if (!world.elect(0)) return "nobody leads";
  world.run(kSecond);
  const std::uint64_t index = world.member(1).last_index(), last_term = world.member(1).term();
  world.crash(0);
  world.crash(2);
  const auto ask = [&](NodeId candidate, std::uint64_t last) {
    world.isolate(1);
    world.inject(candidate, 1,
                 encode(RequestVote{last_term + 3, std::uint64_t{candidate} + 1, last,
                                    last == 0 ? 0 : last_term, true, false}));
    world.run(5 * kMillisecond);
    const std::uint64_t vote = world.member(1).vote();
    world.crash(1);
    return world.restart(1) ? vote : 99;
  };
  if (ask(2, 0) != 0) return "a vote for an old log";
  if (ask(2, index) != 3) return "no vote";
  if (ask(0, index) != 3) return "a second vote in the term";
  return findings(world);
}

TEST(ErpcRaftMember, ARestartedMemberVotesOnceInItsTerm) {
  PYRDMA_NEED_LIBRAFT();
  EXPECT_EQ(vote_twice(Bug::kNone), "");
  EXPECT_NE(vote_twice(Bug::kTermForgotten), "");
}

// Member 0 has the longest log and an old term, and member 1 a new term and a short log. Each needs
// the other's vote.
bool elects_the_longest_log(Bug bug) {
  WorldOptions options;
  options.bugs = bug;
  World world(options);
  if (!world.elect(0)) return false;
  world.crash(2);
  world.isolate(0);
  KvCommand command;
  command.operation = KvOperation::kPut;
  command.client = command.sequence = 1;
  world.ask(0, encode(command), [](const KvAnswer&) {});
  world.run(5 * kMillisecond);
  world.inject(2, 1, encode(RequestVote{world.member(1).term() + 5, 3, 0, 0, true, false}));
  world.run(kSecond);
  world.heal();
  return world.run_until([&] { return world.leader() == 0u; }, 5 * kSecond);
}

TEST(ErpcRaftMember, ACandidateLearnsTheTermFromARefusedPreVote) {
  PYRDMA_NEED_LIBRAFT();
  EXPECT_TRUE(elects_the_longest_log(Bug::kNone));
  EXPECT_FALSE(elects_the_longest_log(Bug::kPreVoteHidesTerm));
}

// A member that starts again waits for an election timeout by its clock before it stands.
TEST(ErpcRaftMember, ARestartedFollowerDoesNotStandAtOnce) {
  PYRDMA_NEED_LIBRAFT();
  WorldOptions options;
  options.member.pre_vote = false;
  World world(options);
  ASSERT_TRUE(world.elect(0));
  world.run(kSecond);
  const std::uint64_t term = world.member(0).term();
  world.crash(1);
  ASSERT_TRUE(world.restart(1)) << world.why();
  world.run(kSecond);
  EXPECT_EQ(world.member(1).term(), term);
  EXPECT_TRUE(world.member(0).leads());
}

// The member holds three entries of an older leader behind those that it shares with the new one.
// The new leader commits entries of its own in their places, and its append is cut before them.
std::string commit_leftovers(Bug bug) {
  WorldOptions options;
  options.nodes = options.group = 5;
  options.bugs = bug;
  World world(options);
  if (!world.elect(0)) return "nobody leads";
  world.run(100 * kMillisecond);
  const std::uint64_t shared = world.member(1).last_index(), term = world.member(1).term();
  for (const NodeId n : {2U, 3U, 4U}) world.block(0, n);
  KvCommand command;
  command.operation = KvOperation::kPut;
  command.client = 1;
  for (command.sequence = 1; command.sequence <= 3; ++command.sequence)
    world.ask(0, encode(command), [](const KvAnswer&) {});
  world.run(5 * kMillisecond);
  if (world.member(1).last_index() != shared + 3) return "no leftovers";
  world.crash(0);
  world.isolate(1);
  world.inject(2, 1, encode(AppendEntries{term + 1, shared, term, shared + 3, {}}));
  world.run(5 * kMillisecond);
  return world.member(1).commit_index() > shared ? "a leftover is committed" : findings(world);
}

TEST(ErpcRaftMember, AnAppendCommitsNoLeftover) {
  PYRDMA_NEED_LIBRAFT();
  EXPECT_EQ(commit_leftovers(Bug::kNone), "");
  EXPECT_NE(commit_leftovers(Bug::kCommitsBeyondAppend), "");
}

// A leader that hands the lead over is asked by another member first, then by its heir.
std::uint64_t second_vote(Bug bug) {
  WorldOptions options;
  options.bugs = bug;
  World world(options);
  if (!world.elect(0)) return 99;
  world.run(kSecond);
  const std::uint64_t term = world.member(0).term(), last = world.member(0).last_index();
  world.member(0).transfer(2, [](Outcome) {});
  world.isolate(0);
  for (const NodeId candidate : {1U, 2U}) {
    world.inject(candidate, 0,
                 encode(RequestVote{term + 1, candidate + 1, last, term, true, false}));
    world.run(5 * kMillisecond);
  }
  return world.member(0).vote();
}

TEST(ErpcRaftMember, AnHeirGetsNoSecondVote) {
  PYRDMA_NEED_LIBRAFT();
  EXPECT_EQ(second_vote(Bug::kNone), 2u);
  EXPECT_EQ(second_vote(Bug::kVotesForHeirAgain), 3u);
}

// One message of a member whose memory is damaged must not take all terms from the group.
bool survives_a_leap(Bug bug, const Message& message) {
  WorldOptions options;
  options.bugs = bug;
  World world(options);
  if (!world.elect(0)) return false;
  world.run(100 * kMillisecond);
  world.inject(1, 0, encode(message));
  world.run(kSecond);
  auto& client = world.add_client(7, {0, 1, 2});
  return put(world, client, "a", "x").has_value() && findings(world).empty();
}

TEST(ErpcRaftMember, ATermFarAheadIsNotTaken) {
  PYRDMA_NEED_LIBRAFT();
  const Message messages[] = {AppendResult{kMaxNumber, 0, 0}, VoteResult{kMaxNumber, false, 1},
                              RequestVote{kMaxNumber, 2, 0, 0, true, false},
                              InstallSnapshot{kMaxNumber, 1, 1, 1, {{1}, {2}}, {}},
                              AppendEntries{kMaxNumber, 0, 0, 0, {}}};
  for (const Message& message : messages)
    EXPECT_TRUE(survives_a_leap(Bug::kNone, message)) << message.index();
  EXPECT_FALSE(survives_a_leap(Bug::kAnyTermTaken, messages[0]));
}

// Votes of a term that nobody has asked for, answers that leave their kind open, and
// acknowledgements of entries that do not exist.
TEST(ErpcRaftMember, AnswersThatNoMemberGivesAreRefused) {
  PYRDMA_NEED_LIBRAFT();
  World world({});
  ASSERT_TRUE(world.elect(0));
  world.run(100 * kMillisecond);
  const std::uint64_t term = world.member(0).term(), last = world.member(0).last_index();
  const std::uint64_t refused = world.member(0).counters().refused;
  for (const Message& message :
       {Message(VoteResult{term + 2, true, 1}), Message(VoteResult{term + 1, true, 2}),
        Message(VoteResult{term, true, 0}), Message(AppendResult{term, 0, last + 1})})
    world.inject(1, 0, encode(message));
  world.run(5 * kMillisecond);
  EXPECT_EQ(world.member(0).counters().refused, refused + 4);
  EXPECT_TRUE(world.member(0).leads());
  EXPECT_EQ(world.member(0).term(), term);
}

// An entry of a deposed leader is cut off and comes again, from a third leader, while the first
// leader's message with it is still under way.
TEST(ErpcRaftMember, AnEntryMayBeCutOffAndComeAgain) {
  PYRDMA_NEED_LIBRAFT();
  World world({});
  ASSERT_TRUE(world.elect(0));
  world.run(100 * kMillisecond);
  const std::uint64_t term = world.member(0).term(), last = world.member(0).last_index();
  world.isolate(0);
  KvCommand command;
  command.operation = KvOperation::kPut;
  command.client = command.sequence = 1;
  const Bytes payload = encode(command), barrier(8);
  const auto append = [&](NodeId from, std::uint64_t later, std::vector<EntryView> entries) {
    world.inject(from, 0, encode(AppendEntries{term + later, last, term, last, entries}));
  };
  const auto round = [&](std::uint64_t later) {
    append(1, later, {{term + later, EntryType::kBarrier, barrier}});
    append(
        2, later + 1,
        {{term, EntryType::kCommand, payload}, {term + later + 1, EntryType::kBarrier, barrier}});
  };
  world.ask(0, payload, [](const KvAnswer&) {});
  world.run(kMillisecond);
  world.pause(0, true);
  round(1);
  world.run(50 * kMillisecond);  // the first leader's messages have failed
  world.pause(0, false);
  world.run(kMillisecond);
  EXPECT_EQ(world.member(0).last_index(), last + 2);
  round(3);
  world.run(kMillisecond);
  world.crash(0);
  ASSERT_TRUE(world.restart(0)) << world.why();
  EXPECT_EQ(world.member(0).last_index(), last + 2);
  EXPECT_EQ(findings(world), "");
}

/// Puts `count` keys without waiting for one before the next; all are answered at the end.
void put_many(World& world, NodeId leader, std::uint64_t count) {
  std::uint64_t answered = 0;
  for (std::uint64_t i = 1; i <= count; ++i) {
    KvCommand command;
    command.operation = KvOperation::kPut;
    command.client = 50;
    command.sequence = i;
    std::memcpy(command.key.data(), &i, sizeof i);
    command.value = Value::of(Bytes(kMaxValue, std::byte{3}));
    world.ask(leader, encode(command), [&](const KvAnswer& answer) {
      answered += answer.status == KvStatus::kDone ? 1 : 0;
    });
    if (i % 100 == 0) world.run(10 * kMillisecond);
  }
  world.run(100 * kMillisecond);
  EXPECT_EQ(answered, count);
}

TEST(ErpcRaftMember, ALongAppendIsCutAndTheRestFollows) {
  PYRDMA_NEED_LIBRAFT();
  WorldOptions options;
  options.member.max_message = 2 * kMaxPayload;
  options.member.snapshot_threshold = 100'000;
  World world(options);
  ASSERT_TRUE(world.elect(0));
  world.isolate(2);
  put_many(world, 0, 3000);
  world.heal();
  world.run(3 * kSecond);
  EXPECT_GT(world.branches().at("erpc/raft/cut_append"), 0u);
  EXPECT_EQ(world.state(2).keys(), 3000u);
  EXPECT_EQ(findings(world), "");
}

TEST(ErpcRaftMember, ASnapshotThatIsTooLongIsCountedAndTheGroupGoesOn) {
  PYRDMA_NEED_LIBRAFT();
  WorldOptions options;
  options.member.max_message = options.member.max_snapshot = 2 * kMaxPayload;
  options.member.snapshot_threshold = 100;
  options.member.snapshot_trailing = 10;
  World world(options);
  ASSERT_TRUE(world.elect(0));
  world.isolate(2);
  put_many(world, 0, 3000);
  world.heal();
  world.run(5 * kSecond);
  ASSERT_TRUE(world.leader());
  EXPECT_GT(world.member(*world.leader()).counters().too_long, 0u);
  EXPECT_EQ(world.state(2).keys(), 0u);
  auto& client = world.add_client(7, {0, 1, 2});
  EXPECT_TRUE(put(world, client, "a", "x"));
  for (NodeId n = 0; n < 3; ++n) EXPECT_EQ(world.member(n).failure(), "");
  EXPECT_EQ(findings(world), "");
}

}  // namespace
}  // namespace pyrdma::erpc::raft
