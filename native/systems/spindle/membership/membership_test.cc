// The view change as a pure core, under random schedules: rows arrive late or are skipped, members
// crash between any two steps, suspicions are false. Whoever ends the view agrees on the next one
// and on the trim, and the view ends wherever a majority can end it.
#include "systems/spindle/membership/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/rng.h"
#include "base/scenario_test.h"
#include "fuzz/small_test.h"

namespace pyrdma::spindle {
namespace {

ViewShape shape_of(std::uint32_t size) {
  std::vector<Member> members;
  for (NodeId node = 0; node < size; ++node) members.push_back({node, 0});
  return ViewShape::of(1, members, {SubgroupSpec{}});
}

/// Members of one view, and the rows under way between them.
class Model {
 public:
  Model(std::uint32_t size, Bugs bugs, bool partition_safety = true)
      : shape_(shape_of(size)), partition_safety_(partition_safety) {
    for (Rank rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<Node>(shape_, rank, partition_safety, bugs));
      members_.back()->received.resize(size);
      members_.back()->delivered.resize(size);
      members_.back()->seen.assign(size, Rounds(size));
    }
    rows_.assign(size, std::vector<std::deque<ControlRow>>(size));
  }

  std::uint32_t size() const { return shape_.size(); }
  bool is_up(Rank rank) const { return members_[rank]->is_up; }
  bool has_ended(Rank rank) const { return members_[rank]->next.has_value(); }
  Membership& core(Rank rank) { return members_[rank]->core; }
  /// The newest `lost` rows to each other member never arrive.
  void crash(Rank rank, std::size_t lost = 0) {
    members_[rank]->is_up = false;
    for (auto& rows : rows_[rank]) rows.resize(rows.size() - std::min(lost, rows.size()));
  }

  /// A member receives messages of a sender, unless it is wedged.
  void receive(Rank rank, Rank sender, std::uint64_t count) {
    if (members_[rank]->core.row().wedged) return;
    members_[rank]->received[sender] += count;
  }
  /// A member learns what another one has received, and may deliver.
  void acknowledge(Rank from, Rank to) {
    Node& node = *members_[to];
    node.seen[from] = members_[from]->received;
    for (Rank sender = 0; sender < size(); ++sender) {
      std::uint64_t stable = node.received[sender];
      for (Rank member = 0; member < size(); ++member) {
        if (member != to) stable = std::min(stable, node.seen[member][sender]);
      }
      node.delivered[sender] = std::max(node.delivered[sender], stable);
    }
  }
  bool has_row(Rank from, Rank to) const { return !rows_[from][to].empty(); }
  /// The oldest row under way arrives. `skips`: a newer one has overwritten it.
  void arrive(Rank from, Rank to, bool skips = false) {
    auto& rows = rows_[from][to];
    if (!skips || rows.size() == 1) members_[to]->core.take_row(from, rows.front());
    rows.pop_front();
    step(to);
  }
  void step(Rank rank) {
    Node& node = *members_[rank];
    if (!node.is_up || node.next) return;
    bool is_new = node.core.step();
    if (node.core.is_to_wedge()) {
      node.core.wedged(node.received);
      is_new = node.core.step() || is_new;
    }
    if (is_new) {
      for (Rank to = 0; to < size(); ++to) {
        if (to != rank) rows_[rank][to].push_back(node.core.row());
      }
    }
    if (node.core.is_agreed()) {
      node.next = node.core.next_members();
      node.trim = node.core.trim();
    }
  }

  /// Returns what is wrong: two members disagree, or one has delivered more than the trim.
  std::string wrong() const {
    std::optional<Rank> first;
    for (Rank rank = 0; rank < size(); ++rank) {
      const Node& node = *members_[rank];
      if (!node.next) continue;
      if (!first) first = rank;
      const Node& other = *members_[*first];
      if (*node.next != *other.next) return "different members of the next view";
      if (node.trim != other.trim) return "different trims";
      std::size_t stay = 0;
      for (const Member& member : *node.next) {
        stay += shape_.rank_of(member).has_value();
        if (std::ranges::count(*node.next, member.node, &Member::node) > 1)
          return "node " + std::to_string(member.node) + " twice in the next view";
      }
      for (Rank each = 0; each < size(); ++each) stay += members_[each]->core.row().leaving;
      if (partition_safety_ && 2 * stay <= size()) return "a view without a majority";
      if (node.core.stays() && !node.core.has_trim())
        return "member " + std::to_string(rank) + " lacks messages of the trim";
      for (Rank each = 0; each < size(); ++each) {
        for (Rank sender = 0; sender < size(); ++sender) {
          if (members_[each]->delivered[sender] > node.trim[sender])
            return "member " + std::to_string(each) + " has delivered beyond the trim";
        }
      }
    }
    return "";
  }
  /// When all rows have arrived and all crashes are known: each member that is up has ended the
  /// view, or is in a minority, or nothing changes. A view that one member has ended is ended by
  /// all.
  std::string stuck() const {
    bool has_any_ended = false;
    for (Rank rank = 0; rank < size(); ++rank)
      has_any_ended = has_any_ended || (is_up(rank) && has_ended(rank));
    for (Rank rank = 0; rank < size(); ++rank) {
      const Membership& core = members_[rank]->core;
      if (!is_up(rank) || has_ended(rank) || !core.is_changing()) continue;
      if (has_any_ended && partition_safety_)
        return "member " + std::to_string(rank) + " does not hear of the end of the view";
      if (!core.lacks_majority())
        return "member " + std::to_string(rank) + " does not end the view";
    }
    return "";
  }
  std::uint32_t ended() const {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(members_, [](const auto& node) { return node->next.has_value(); }));
  }

 private:
  struct Node {
    Node(const ViewShape& shape, Rank rank, bool partition_safety, Bugs bugs)
        : core(shape, rank, partition_safety, bugs) {}
    Membership core;
    bool is_up = true;
    Rounds received, delivered, trim;
    std::vector<Rounds> seen;
    std::optional<std::vector<Member>> next;
  };
  const ViewShape shape_;
  const bool partition_safety_;
  std::vector<std::unique_ptr<Node>> members_;
  std::vector<std::vector<std::deque<ControlRow>>> rows_;  // by sender, receiver
};

/// Whatever is under way arrives, and crashes are noticed.
std::string finish(Model& model) {
  for (std::uint32_t round = 0; round < 60; ++round) {
    for (Rank from = 0; from < model.size(); ++from) {
      for (Rank to = 0; to < model.size(); ++to) {
        if (from == to || !model.is_up(to)) continue;
        if (!model.is_up(from)) model.core(to).suspect(from);
        while (model.has_row(from, to)) model.arrive(from, to);
        model.step(to);
      }
    }
  }
  const std::string wrong = model.wrong();
  return wrong.empty() ? model.stuck() : wrong;
}

struct RandomChange {
  std::string wrong;
  std::uint32_t ended = 0;  // members
};

/// One view change under a random schedule.
RandomChange random_change(std::uint64_t seed, Bugs bugs) {
  Rng rng(seed, -1, "membership");
  // Without partition safety suspicions are true, and all but one member may crash.
  const bool partition_safety = rng.below(8) != 0;
  Model model(3 + static_cast<std::uint32_t>(rng.below(4)), bugs, partition_safety);
  const auto any = [&] { return static_cast<Rank>(rng.below(model.size())); };
  std::uint32_t crashes = 0, joiners = 0;
  const std::uint64_t steps = 40 + rng.below(300);
  const std::uint64_t crash_rate = 1 + rng.below(6), suspect_rate = 1 + rng.below(8);
  const std::uint64_t false_rate =
      partition_safety ? rng.below(3) : 0;  // of suspicions, in eighths
  const auto act_once = [&] {
    const Rank a = any(), b = any();
    const std::uint64_t act = rng.below(200);
    if (act < 90) {
      if (a != b && model.is_up(b) && model.has_row(a, b)) model.arrive(a, b, rng.below(4) == 0);
    } else if (act < 130) {
      if (model.is_up(a) && !model.has_ended(a)) model.receive(a, b, rng.below(4));
    } else if (act < 165) {
      if (a != b && model.is_up(b) && model.is_up(a) && !model.has_ended(b))
        model.acknowledge(a, b);
    } else if (act < 165 + crash_rate) {
      const bool may =
          partition_safety ? 2 * (crashes + 1) < model.size() : crashes + 1 < model.size();
      if (may && model.is_up(a)) {
        ++crashes;
        model.crash(a, rng.below(4));
      }
    } else if (act < 175 + suspect_rate) {
      // A false suspicion often concerns the leader.
      const Rank whom = rng.below(2) == 0 ? model.core(a).leader() : b;
      const bool is_due = !model.is_up(whom) || rng.below(8) < false_rate;
      if (model.is_up(a) && a != whom && !model.has_ended(a) && is_due) model.core(a).suspect(whom);
      model.step(a);
    } else if (act < 188 && joiners < 3 && rng.below(10) == 0) {
      const Member joiner{100 + joiners++, 0};
      model.core(any()).ask_to_join(joiner);  // only the leader proposes it
      model.core(0).ask_to_join({joiner.node + 50, 0});
    } else if (act == 187 && !model.is_up(b)) {
      model.core(a).ask_to_join({b, 1});  // it has restarted
    } else if (act == 188 && rng.below(6) == 0) {
      model.core(a).ask_to_leave();
    }
    model.step(a);
  };
  for (std::uint64_t i = 0; i < steps; ++i) {
    act_once();
    if (const std::string wrong = model.wrong(); !wrong.empty()) return {wrong};
  }
  const std::string wrong = finish(model);
  return {wrong, model.ended()};
}

TEST(SpindleMembershipSim, AllAgreeUnderRandomSchedules) {
  const std::uint64_t seeds = (fuzz::kSlowed ? 2'000 : 20'000) * fuzz::search_factor();
  std::uint64_t ended = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const RandomChange change = random_change(seed, {});
    ASSERT_EQ(change.wrong, "") << "seed " << seed;
    ended += change.ended != 0;
  }
  EXPECT_GT(ended, seeds / 2) << "views that end";
}

struct FoundInCore {
  Bug bug;
  std::uint64_t seeds;  // within which it is found
};
class SpindleMembershipBugs : public testing::TestWithParam<FoundInCore> {};

TEST_P(SpindleMembershipBugs, AreFound) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= GetParam().seeds && found == 0; ++seed) {
    if (!random_change(seed, GetParam().bug).wrong.empty()) found = seed;
  }
  EXPECT_NE(found, 0U);
  RecordProperty("seeds_to_kill", static_cast<int>(found));
}

INSTANTIATE_TEST_SUITE_P(
    All, SpindleMembershipBugs,
    testing::Values(
        FoundInCore{Bug::kProposalIgnored, 20'000}, FoundInCore{Bug::kProposalBlended, 20'000},
        FoundInCore{Bug::kSuspicionsUnheard, 20'000}, FoundInCore{Bug::kSuspectHeard, 20'000},
        FoundInCore{Bug::kMinorityInstalls, 20'000}, FoundInCore{Bug::kTrimNotEchoed, 20'000},
        FoundInCore{Bug::kTrimComputedAgain, 20'000}, FoundInCore{Bug::kJoinersForgotten, 20'000},
        FoundInCore{Bug::kEchoUncompared, 20'000}, FoundInCore{Bug::kAccuserStays, 20'000},
        FoundInCore{Bug::kCommitUnheard, 20'000}),
    [](const auto& each) {
      return std::string(kBugNames[static_cast<std::size_t>(each.param.bug) - 1]);
    });

// Views of three: after each delivery of a row, in turn, each member crashes, or two do.
TEST(SpindleMembershipSim, EveryCrashPointOfThreeMembers) {
  std::uint64_t runs = 0;
  for (Rank victim = 0; victim < 3; ++victim) {
    for (Rank second = 0; second < 3; ++second) {
      for (std::uint64_t at = 0; at < 40; ++at) {
        for (std::uint64_t order = 0; order < 6; ++order) {
          Model model(3, {});
          for (Rank rank = 0; rank < 3; ++rank) {
            for (Rank sender = 0; sender < 3; ++sender) model.receive(rank, sender, rank + sender);
          }
          model.crash(victim);
          model.core((victim + 1) % 3).suspect(victim);
          model.step((victim + 1) % 3);
          // The rows arrive in a turn that `order` permutes.
          std::vector<std::pair<Rank, Rank>> ways{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}};
          std::rotate(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(order), ways.end());
          std::uint64_t arrived = 0;
          for (std::uint32_t round = 0; round < 30; ++round) {
            for (const auto& [from, to] : ways) {
              if (!model.is_up(to) || !model.has_row(from, to)) continue;
              model.arrive(from, to);
              if (++arrived == at && second != victim) model.crash(second);
            }
          }
          ++runs;
          ASSERT_EQ(finish(model), "") << victim << ' ' << second << ' ' << at << ' ' << order;
        }
      }
    }
  }
  EXPECT_EQ(runs, 3U * 3 * 40 * 6);
}

// Steps and states of a view change, as data.
TEST(SpindleMembershipSim, GoldenTraces) {
  std::optional<Model> model;
  run_scenario("systems/spindle/membership/view_changes.txt", [&](const ScenarioStep& step) {
    std::string out;
    const auto rank = [&](std::size_t at) { return static_cast<Rank>(step.number(at)); };
    if (step.command == "members") {
      model.emplace(static_cast<std::uint32_t>(step.number(0)), Bugs());
    } else if (step.command == "receive") {
      model->receive(rank(0), rank(1), step.number(2));
    } else if (step.command == "suspect") {
      model->core(rank(0)).suspect(rank(1));
      model->step(rank(0));
    } else if (step.command == "join") {
      for (Rank each = 0; each < model->size(); ++each)
        model->core(each).ask_to_join({static_cast<NodeId>(step.number(0)), 0});
      model->step(0);
    } else if (step.command == "leave") {
      model->core(rank(0)).ask_to_leave();
      model->step(rank(0));
    } else if (step.command == "crash") {
      model->crash(rank(0));
    } else if (step.command == "arrive") {
      while (model->is_up(rank(1)) && model->has_row(rank(0), rank(1)))
        model->arrive(rank(0), rank(1));
    } else if (step.command == "show") {
      const Membership& core = model->core(rank(0));
      const ControlRow& row = core.row();
      out = "member " + std::to_string(rank(0)) + ": leader " + std::to_string(core.leader()) +
            ", suspects";
      for (Rank each = 0; each < model->size(); ++each) {
        if (core.is_suspected(each)) out += ' ' + std::to_string(each);
      }
      out += row.wedged ? ", wedged" : "";
      if (row.accepted) {
        out += row.committed ? ", committed" : ", accepted";
        out += " of " + std::to_string(row.accepted->leader) + ":";
        for (const Change& change : row.accepted->changes) {
          out += change.kind == Change::Kind::kRemove ? " -" : " +";
          out += std::to_string(change.member.node);
        }
        out += ", trim";
        for (const std::uint64_t each : row.accepted->trim) out += ' ' + std::to_string(each);
      }
      if (core.is_agreed()) {
        out += ", next view";
        for (const Member& member : core.next_members()) out += ' ' + std::to_string(member.node);
      }
    } else {
      throw step.wrong("is no known command");
    }
    return out;
  });
}

/// The bytes of a row whose body has been changed, with a checksum that fits.
ByteView with_byte(Bytes& row, std::size_t at, std::uint8_t value) {
  row[24 + at] = std::byte{value};
  const ByteView body = ByteView(row).subspan(24);
  const std::uint64_t sum = checksum(body, version_of(row.data()));
  std::memcpy(row.data() + 8, &sum, sizeof sum);
  return row;
}

// Rows come from outside: what is no row of this view is not taken.
TEST(SpindleMembershipSim, FieldsOutsideTheirBoundsAreRefused) {
  const ViewShape shape = shape_of(3);
  constexpr NodeId kNodes = 9;
  ControlRow row;
  row.version = 1;
  row.accepted = Proposal{2, {{Change::Kind::kJoin, {7, 0}}}, Rounds(3)};
  const Bytes good = encode(row);
  ASSERT_TRUE(decode(good, shape, kNodes));
  EXPECT_EQ(decode(good, shape, kNodes)->accepted, row.accepted);
  const auto refused = [&](std::size_t at, std::uint8_t value) {
    Bytes bytes = good;
    return !decode(with_byte(bytes, at, value), shape, kNodes);
  };
  EXPECT_TRUE(refused(0, 1 << 3)) << "suspects rank 3 of 3 members";
  EXPECT_TRUE(refused(8, 1)) << "an accuser that is not suspected";
  EXPECT_TRUE(refused(16, 2)) << "committed, and nothing is accepted";
  EXPECT_TRUE(refused(17, 3)) << "the leader has rank 3 of 3 members";
  EXPECT_TRUE(refused(18, 200)) << "200 changes";
  EXPECT_TRUE(refused(20, 2)) << "an unknown kind";
  EXPECT_TRUE(refused(20, 0)) << "removes a node that is no member";
  EXPECT_TRUE(refused(21, 2)) << "node 2 is in the view already";
  EXPECT_TRUE(refused(21, kNodes)) << "there is no such node";
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode(ByteView(good).first(length), shape, kNodes)) << length;
  row.accepted->changes = {{Change::Kind::kRemove, {0, 0}},
                           {Change::Kind::kRemove, {1, 0}},
                           {Change::Kind::kRemove, {2, 0}}};
  EXPECT_FALSE(decode(encode(row), shape, kNodes)) << "nobody stays";
}

// A member that stays accepts no trim beyond what it has received. One that goes accepts any.
TEST(SpindleMembershipSim, ATrimIsAtMostWhatWasReceived) {
  for (const std::uint64_t trim : {4UL, 5UL}) {
    for (const bool stays : {true, false}) {
      const ViewShape shape = shape_of(3);
      Membership core(shape, 1);
      core.suspect(2);
      core.step();
      core.wedged(Rounds(3, 4));
      ControlRow leader;
      leader.version = 5;
      leader.suspected = bit_of(2);
      leader.wedged = true;
      leader.received = Rounds(3, trim);
      leader.accepted =
          Proposal{0, {{Change::Kind::kRemove, shape.members[stays ? 2 : 1]}}, Rounds(3, trim)};
      core.take_row(0, leader);
      core.step();
      EXPECT_EQ(core.is_agreed(), trim == 4 || !stays);
    }
  }
}

}  // namespace
}  // namespace pyrdma::spindle
