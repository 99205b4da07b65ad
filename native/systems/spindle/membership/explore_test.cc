// The view change of a few members, in every order of its steps: each reads each other's row at any
// time or never, and members suspect, die, leave and join at any time. What membership_test.cc
// draws at random is here complete, for few members and few mishaps.
#include "check/explore.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/spindle/membership/membership.h"

namespace pyrdma::spindle {
namespace {

/// How often what may happen.
struct Mishaps {
  std::uint32_t crashes = 0, false_suspicions = 0, joins = 0, leaves = 0;
};

ViewShape view_of(Rank count) {
  std::vector<Member> members;
  for (NodeId node = 0; node < count; ++node) members.push_back({node, 0});
  return ViewShape::of(1, members, {SubgroupSpec{}});
}

/// The members of a view at one moment.
class Moment {
 public:
  enum class Act : std::uint8_t { kRead, kSuspect, kSuspectFalsely, kCrash, kJoin, kLeave };
  struct Choice {
    Act act = Act::kRead;
    Rank rank = 0;     // whose step it is
    Rank other = 0;    // whose row it reads, or whom it suspects
    RankSet lost = 0;  // those that never see the last row of a member that dies
  };

  Moment(const ViewShape& shape, bool partition_safety, Bugs bugs, Mishaps left)
      : members_(shape.size()), left_(left), crashed_(members_), deaf_(members_) {
    for (Rank rank = 0; rank < members_; ++rank) {
      cores_.emplace_back(shape, rank, partition_safety, bugs);
      pushed_.push_back(cores_[rank].row());
    }
  }

  std::vector<Choice> choices() const { return choices(left_); }
  std::vector<Choice> choices(const Mishaps& left) const {
    std::vector<Choice> all;
    for (Rank rank = 0; rank < members_; ++rank) {
      if (!is_up(rank)) continue;
      if (left.crashes != 0) add_crashes(rank, all);
      if (has_ended(rank)) continue;
      for (Rank other = 0; other < members_; ++other) {
        if (other == rank) continue;
        if (row_for(other, rank).version > cores_[rank].row_of(other).version)
          all.push_back({Act::kRead, rank, other});
        if (cores_[rank].is_certain(other)) continue;
        if (!is_up(other))
          all.push_back({Act::kSuspect, rank, other});
        else if (left.false_suspicions != 0)
          all.push_back({Act::kSuspectFalsely, rank, other});
      }
      if (left.joins != 0) all.push_back({Act::kJoin, rank});
      if (left.leaves != 0 && !cores_[rank].row().leaving) all.push_back({Act::kLeave, rank});
    }
    return all;
  }

  void take(const Choice& choice) {
    Membership& core = cores_[choice.rank];
    switch (choice.act) {
      case Act::kRead:
        core.take_row(choice.other, pushed_[choice.other]);
        break;
      case Act::kSuspectFalsely:
        --left_.false_suspicions;
        [[fallthrough]];
      case Act::kSuspect:
        core.suspect(choice.other);
        break;
      case Act::kCrash:
        --left_.crashes;
        crashed_[choice.rank] = true;
        deaf_[choice.rank] = choice.lost;
        return;
      case Act::kJoin:
        --left_.joins;
        core.ask_to_join({kJoiner, 0});
        asked_ |= bit_of(choice.rank);
        break;
      case Act::kLeave:
        --left_.leaves;
        core.ask_to_leave();
        break;
    }
    step(choice.rank);
  }

  static std::string describe(const Choice& choice) {
    const std::string who = "member " + std::to_string(choice.rank);
    const std::string other = std::to_string(choice.other);
    switch (choice.act) {
      case Act::kRead:
        return who + " reads the row of " + other;
      case Act::kSuspect:
        return who + " suspects " + other;
      case Act::kSuspectFalsely:
        return who + " suspects " + other + " falsely";
      case Act::kCrash:
        return who + " dies, its last row lost to the set " + std::to_string(choice.lost);
      case Act::kJoin:
        return who + " is asked to let a node join";
      case Act::kLeave:
        return who + " leaves";
    }
    return who;
  }

  std::string wrong() const {
    const Membership* first = nullptr;
    for (Rank rank = 0; rank < members_; ++rank) {
      if (!has_ended(rank)) continue;
      const Membership& core = cores_[rank];
      if (core.stays() && !core.has_trim())
        return "member " + std::to_string(rank) + " lacks messages of the trim";
      if (first == nullptr) first = &core;
      if (core.next_members() != first->next_members()) return "different next views";
      if (core.trim() != first->trim()) return "different trims";
    }
    return stuck();
  }

  check::StateHash hash() const {
    check::StateHash hash;
    for (Rank rank = 0; rank < members_; ++rank) {
      hash.add(encode(pushed_[rank]));
      hash.add(cores_[rank].is_changing());
      for (Rank other = 0; other < members_; ++other) hash.add(encode(cores_[rank].row_of(other)));
      hash.add(crashed_[rank]);
      hash.add(deaf_[rank]);
    }
    hash.add(asked_);
    for (const std::uint32_t each :
         {left_.crashes, left_.false_suspicions, left_.joins, left_.leaves})
      hash.add(each);
    return hash;
  }

 private:
  static constexpr NodeId kJoiner = 7;

  bool is_up(Rank rank) const { return !crashed_[rank]; }
  bool has_ended(Rank rank) const { return cores_[rank].is_agreed(); }
  /// The last row of a dead member may have been lost on its way.
  const ControlRow& row_for(Rank from, Rank to) const {
    return (deaf_[from] & bit_of(to)) != 0 ? cores_[to].row_of(from) : pushed_[from];
  }
  void add_crashes(Rank rank, std::vector<Choice>& all) const {
    for (RankSet lost = 0; lost < bit_of(members_); ++lost) {
      if ((lost & bit_of(rank)) == 0) all.push_back({Act::kCrash, rank, 0, lost});
    }
  }
  /// If nothing more happens by itself: whoever is up has ended the view, or lacks a majority, or
  /// nothing changes. A view that one member has ended is ended by all.
  std::string stuck() const {
    if (!choices(Mishaps{}).empty()) return "";
    bool has_any_ended = false;
    for (Rank rank = 0; rank < members_; ++rank)
      has_any_ended = has_any_ended || (is_up(rank) && has_ended(rank));
    for (Rank rank = 0; rank < members_; ++rank) {
      if (!is_up(rank) || has_ended(rank) || !cores_[rank].is_changing()) continue;
      if (has_any_ended || !cores_[rank].lacks_majority())
        return "member " + std::to_string(rank) + " does not end the view";
    }
    return "";
  }
  void step(Rank rank) {
    Membership& core = cores_[rank];
    bool is_new = core.step();
    if (core.is_to_wedge()) {
      // Each member has received something else.
      Rounds received(members_);
      for (Rank sender = 0; sender < members_; ++sender) received[sender] = (rank + sender) % 3;
      core.wedged(std::move(received));
      is_new = core.step() || is_new;
    }
    if (is_new) pushed_[rank] = core.row();
  }

  Rank members_;
  Mishaps left_;
  std::vector<Membership> cores_;
  std::vector<ControlRow> pushed_;
  RankSet asked_ = 0;  // to let a node join
  std::vector<bool> crashed_;
  std::vector<RankSet> deaf_;  // to the last row of a dead member
};

struct Begin {
  Rank members = 3;
  Mishaps mishaps;
  bool partition_safety = true;
};

check::Explored explore(const Begin& begin, Bugs bugs = {}) {
  const ViewShape shape = view_of(begin.members);
  return check::Explorer([&] {
           return std::make_unique<Moment>(shape, begin.partition_safety, bugs, begin.mishaps);
         })
      .run();
}

// Crashes, false suspicions, joins, leaves.
const std::vector<Begin> kFew{
    {3, {1, 0, 1, 0}}, {3, {0, 2, 0, 0}}, {3, {0, 1, 1, 0}}, {3, {1, 0, 1, 0}, false}};
const std::vector<Begin> kMore{{3, {1, 0, 0, 1}}, {3, {1, 1, 0, 0}}, {3, {1, 0, 1, 1}},
                               {3, {1, 1, 1, 0}}, {3, {0, 2, 1, 0}}, {3, {2, 0, 0, 0}, false}};

TEST(SpindleMembershipSim, EveryOrderOfFewMishaps) {
  std::vector<Begin> all = kFew;
  if (fuzz::search_factor() > 1) all.insert(all.end(), kMore.begin(), kMore.end());
  for (const Begin& begin : all) {
    if (fuzz::kSlowed && begin.mishaps.crashes != 0) continue;
    const check::Explored explored = explore(begin);
    EXPECT_EQ(explored.wrong, "") << explored.text();
    EXPECT_GT(explored.states, 10'000U);
    EXPECT_FALSE(explored.is_cut);
  }
}

/// A bug, and the fewest choices that show it.
struct Known {
  Bug bug = Bug::kNone;
  Mishaps mishaps;  // of three members
  std::size_t choices = 0;
};

class SpindleExploreBugs : public testing::TestWithParam<Known> {};

TEST_P(SpindleExploreBugs, AreFound) {
  const Known& known = GetParam();
  const check::Explored explored = explore({3, known.mishaps}, known.bug);
  EXPECT_NE(explored.wrong, "") << explored.text();
  EXPECT_EQ(explored.trace.size(), known.choices) << explored.text();
}

INSTANTIATE_TEST_SUITE_P(All, SpindleExploreBugs,
                         testing::Values(Known{Bug::kProposalIgnored, {1, 0, 1, 0}, 13},
                                         Known{Bug::kProposalBlended, {1, 0, 1, 0}, 13},
                                         Known{Bug::kTrimComputedAgain, {1, 0, 1, 0}, 13},
                                         Known{Bug::kJoinersForgotten, {1, 0, 1, 0}, 6},
                                         Known{Bug::kSuspectHeard, {0, 2, 0, 0}, 9},
                                         Known{Bug::kMinorityInstalls, {0, 2, 0, 0}, 4},
                                         Known{Bug::kTrimNotEchoed, {0, 2, 0, 0}, 5},
                                         Known{Bug::kEchoUncompared, {0, 2, 0, 0}, 7},
                                         Known{Bug::kAccuserStays, {0, 2, 0, 0}, 9},
                                         Known{Bug::kCommitUnheard, {0, 2, 0, 0}, 6}),
                         [](const auto& each) {
                           return std::string(
                               kBugNames[static_cast<std::size_t>(each.param.bug) - 1]);
                         });

}  // namespace
}  // namespace pyrdma::spindle
