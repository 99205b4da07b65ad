// The view change as a pure core, under random schedules: rows arrive late, members crash between
// any two steps, suspicions are false. Whoever ends the view agrees on the next one and on the
// trim.
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
  Model(std::uint32_t size, Bugs bugs) : shape_(shape_of(size)) {
    for (Rank rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<Node>(shape_, rank, bugs));
      members_.back()->received.resize(size);
      members_.back()->seen.assign(size, Rounds(size));
    }
    rows_.assign(size, std::vector<std::deque<ControlRow>>(size));
  }

  std::uint32_t size() const { return shape_.size(); }
  bool is_up(Rank rank) const { return members_[rank]->is_up; }
  bool has_ended(Rank rank) const { return members_[rank]->next.has_value(); }
  Membership& core(Rank rank) { return members_[rank]->core; }
  void crash(Rank rank) { members_[rank]->is_up = false; }

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
      if (node.delivered.size() < size()) node.delivered.resize(size());
      node.delivered[sender] = std::max(node.delivered[sender], stable);
    }
  }
  bool has_row(Rank from, Rank to) const { return !rows_[from][to].empty(); }
  /// The oldest row under way arrives.
  void arrive(Rank from, Rank to) {
    auto& rows = rows_[from][to];
    members_[to]->core.take_row(from, rows.front());
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
      if (2 * stay <= size()) return "a view without a majority";
      for (Rank each = 0; each < size(); ++each) {
        const Rounds& delivered = members_[each]->delivered;
        for (Rank sender = 0; sender < delivered.size(); ++sender) {
          if (delivered[sender] > node.trim[sender])
            return "member " + std::to_string(each) + " has delivered beyond the trim";
        }
        for (Rank sender = 0; sender < size() && members_[each]->next; ++sender) {
          if (members_[each]->received[sender] < node.trim[sender])
            return "member " + std::to_string(each) + " lacks messages of the trim";
        }
      }
    }
    return "";
  }
  /// Whether the members that are up and that no other one suspects have all ended the view.
  std::string stuck() const {
    std::vector<Rank> up;
    for (Rank rank = 0; rank < size(); ++rank) {
      if (is_up(rank)) up.push_back(rank);
    }
    if (2 * up.size() <= size()) return "";
    for (const Rank rank : up) {
      for (const Rank other : up) {
        if (members_[rank]->core.is_suspected(other)) return "";
      }
    }
    for (const Rank rank : up) {
      if (members_[rank]->core.is_changing() && !members_[rank]->next)
        return "member " + std::to_string(rank) + " does not end the view";
    }
    return "";
  }

 private:
  struct Node {
    Node(const ViewShape& shape, Rank rank, Bugs bugs) : core(shape, rank, true, bugs) {}
    Membership core;
    bool is_up = true;
    Rounds received, delivered, trim;
    std::vector<Rounds> seen;
    std::optional<std::vector<Member>> next;
  };
  const ViewShape shape_;
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

/// One view change under a random schedule. Returns what is wrong.
std::string random_change(std::uint64_t seed, Bugs bugs) {
  Rng rng(seed, -1, "membership");
  Model model(3 + static_cast<std::uint32_t>(rng.below(4)), bugs);
  const auto any = [&] { return static_cast<Rank>(rng.below(model.size())); };
  std::uint32_t crashes = 0, joiners = 0;
  const std::uint64_t steps = 40 + rng.below(300);
  const std::uint64_t crash_rate = 1 + rng.below(6), suspect_rate = 1 + rng.below(8);
  for (std::uint64_t i = 0; i < steps; ++i) {
    const Rank a = any(), b = any();
    const std::uint64_t act = rng.below(200);
    if (act < 90) {
      if (a != b && model.is_up(b) && model.has_row(a, b)) model.arrive(a, b);
    } else if (act < 130) {
      if (model.is_up(a) && !model.has_ended(a)) model.receive(a, b, rng.below(4));
    } else if (act < 165) {
      if (a != b && model.is_up(b) && model.is_up(a) && !model.has_ended(b))
        model.acknowledge(a, b);
    } else if (act < 165 + crash_rate) {
      if (2 * (crashes + 1) < model.size() && model.is_up(a)) {
        ++crashes;
        model.crash(a);
      }
    } else if (act < 175 + suspect_rate) {
      // A false suspicion often concerns the leader.
      const Rank whom = rng.below(2) == 0 ? model.core(a).leader() : b;
      const bool is_due = !model.is_up(whom) || rng.below(8) == 0;
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
    if (const std::string wrong = model.wrong(); !wrong.empty()) return wrong;
  }
  return finish(model);
}

TEST(SpindleMembershipSim, AllAgreeUnderRandomSchedules) {
  const std::uint64_t seeds = (fuzz::kSlowed ? 2'000 : 20'000) * fuzz::search_factor();
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    ASSERT_EQ(random_change(seed, {}), "") << "seed " << seed;
}

struct FoundInCore {
  Bug bug;
  std::uint64_t seeds;  // within which it is found
};
class SpindleMembershipBugs : public testing::TestWithParam<FoundInCore> {};

TEST_P(SpindleMembershipBugs, AreFound) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= GetParam().seeds && found == 0; ++seed) {
    if (!random_change(seed, GetParam().bug).empty()) found = seed;
  }
  EXPECT_NE(found, 0U);
  RecordProperty("seeds_to_kill", static_cast<int>(found));
}

INSTANTIATE_TEST_SUITE_P(All, SpindleMembershipBugs,
                         testing::Values(FoundInCore{Bug::kProposalIgnored, 20'000},
                                         FoundInCore{Bug::kProposalBlended, 20'000},
                                         FoundInCore{Bug::kSuspicionsUnheard, 20'000},
                                         FoundInCore{Bug::kSuspectHeard, 20'000},
                                         FoundInCore{Bug::kMinorityInstalls, 20'000},
                                         FoundInCore{Bug::kTrimNotEchoed, 20'000},
                                         FoundInCore{Bug::kTrimComputedAgain, 20'000},
                                         FoundInCore{Bug::kJoinersForgotten, 20'000}),
                         [](const auto& each) {
                           return std::string(
                               kBugNames[static_cast<std::size_t>(each.param.bug) - 1]);
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
      out += ", changes";
      for (const Change& change : row.changes) {
        out += change.kind == Change::Kind::kRemove ? " -" : " +";
        out += std::to_string(change.member.node);
      }
      out += row.committed ? " committed" : "";
      if (row.trimmed) {
        out += ", trim";
        for (const std::uint64_t each : row.trim) out += ' ' + std::to_string(each);
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
  ControlRow row;
  row.version = 1;
  row.changes = {{Change::Kind::kJoin, {7, 0}}};
  const Bytes good = encode(row);
  ASSERT_TRUE(decode(good, shape));
  Bytes bytes = good;
  EXPECT_FALSE(decode(with_byte(bytes, 0, 1 << 3), shape)) << "suspects rank 3 of 3 members";
  bytes = good;
  EXPECT_FALSE(decode(with_byte(bytes, 8, 1), shape)) << "an accuser that is not suspected";
  bytes = good;
  EXPECT_FALSE(decode(with_byte(bytes, 17, 200), shape)) << "200 changes";
  bytes = good;
  EXPECT_FALSE(decode(with_byte(bytes, 19, 2), shape)) << "an unknown kind";
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode(ByteView(good).first(length), shape)) << length;
}

// A trim beyond what this member has received is not copied.
TEST(SpindleMembershipSim, ATrimIsAtMostWhatWasReceived) {
  for (const std::uint64_t trim : {4UL, 5UL}) {
    const ViewShape shape = shape_of(3);
    Membership core(shape, 1);
    core.suspect(2);
    core.step();
    core.wedged(Rounds(3, 4));
    ControlRow leader;
    leader.version = 5;
    leader.suspected = bit_of(2);
    leader.changes = {{Change::Kind::kRemove, shape.members[2]}};
    leader.committed = leader.wedged = leader.trimmed = true;
    leader.received = Rounds(3, trim);
    leader.trim = Rounds(3, trim);
    core.take_row(0, leader);
    core.step();
    EXPECT_EQ(core.is_agreed(), trim == 4);
  }
}

}  // namespace
}  // namespace pyrdma::spindle
