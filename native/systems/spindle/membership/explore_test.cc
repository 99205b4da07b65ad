// The view change of three members, in every order of its steps: each reads each other's row at any
// time or never, and members suspect, die, leave and join at any time. What membership_test.cc
// draws at random is here complete, for few members and few mishaps.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "fuzz/small_test.h"
#include "systems/spindle/membership/membership.h"

namespace pyrdma::spindle {
namespace {

constexpr Rank kMembers = 3;

/// How often what may happen.
struct Mishaps {
  std::uint32_t crashes = 0, false_suspicions = 0, joins = 0, leaves = 0;
};

ViewShape three() {
  std::vector<Member> members;
  for (NodeId node = 0; node < kMembers; ++node) members.push_back({node, 0});
  return ViewShape::of(1, members, {SubgroupSpec{}});
}

/// The members of a view at one moment.
class Moment {
 public:
  Moment(const ViewShape& shape, Bugs bugs, Mishaps left) : left_(left) {
    for (Rank rank = 0; rank < kMembers; ++rank) {
      cores_.emplace_back(shape, rank, true, bugs);
      pushed_.push_back(cores_[rank].row());
    }
  }

  /// All that may happen next, each with its state.
  std::vector<Moment> next() const {
    std::vector<Moment> all;
    const auto add = [&](auto&& act) {
      Moment& after = all.emplace_back(*this);
      act(after);
    };
    for (Rank rank = 0; rank < kMembers; ++rank) {
      if (!is_up(rank)) continue;
      if (left_.crashes != 0) add_crashes(rank, add);
      if (has_ended(rank)) continue;
      for (Rank other = 0; other < kMembers; ++other) {
        if (other == rank) continue;
        if (row_for(other, rank).version > cores_[rank].row_of(other).version)
          add([&](Moment& g) { g.read(other, rank); });
        if (cores_[rank].is_certain(other)) continue;
        if (!is_up(other))
          add([&](Moment& g) { g.suspect(rank, other); });
        else if (left_.false_suspicions != 0)
          add([&](Moment& g) {
            --g.left_.false_suspicions;
            g.suspect(rank, other);
          });
      }
      if (left_.joins != 0)
        add([&](Moment& g) {
          --g.left_.joins;
          g.cores_[rank].ask_to_join({7, 0});
          g.step(rank);
        });
      if (left_.leaves != 0 && !cores_[rank].row().leaving)
        add([&](Moment& g) {
          --g.left_.leaves;
          g.cores_[rank].ask_to_leave();
          g.step(rank);
        });
    }
    return all;
  }

  std::string wrong() const {
    const Membership* first = nullptr;
    for (Rank rank = 0; rank < kMembers; ++rank) {
      if (!has_ended(rank)) continue;
      const Membership& core = cores_[rank];
      if (core.stays() && !core.has_trim())
        return "member " + std::to_string(rank) + " lacks messages of the trim";
      if (first == nullptr) first = &core;
      if (core.next_members() != first->next_members()) return "different next views";
      if (core.trim() != first->trim()) return "different trims";
    }
    return "";
  }
  /// If nothing more happens by itself: whoever is up has ended the view, or lacks a majority, or
  /// nothing changes. A view that one member has ended is ended by all.
  std::string stuck() const {
    Moment calm = *this;
    calm.left_ = {};
    if (!calm.next().empty()) return "";
    bool has_any_ended = false;
    for (Rank rank = 0; rank < kMembers; ++rank)
      has_any_ended = has_any_ended || (is_up(rank) && has_ended(rank));
    for (Rank rank = 0; rank < kMembers; ++rank) {
      if (!is_up(rank) || has_ended(rank) || !cores_[rank].is_changing()) continue;
      if (has_any_ended || !cores_[rank].lacks_majority())
        return "member " + std::to_string(rank) + " does not end the view";
    }
    return "";
  }

  std::string key() const {
    Bytes bytes;
    ByteWriter out(bytes);
    for (Rank rank = 0; rank < kMembers; ++rank) {
      out.put(ByteView(encode(pushed_[rank])));
      out.put(static_cast<std::uint8_t>(cores_[rank].is_changing()));
      for (Rank other = 0; other < kMembers; ++other)
        out.put(ByteView(encode(cores_[rank].row_of(other))));
      out.put(static_cast<std::uint8_t>(crashed_[rank]));
      out.put(static_cast<std::uint8_t>(deaf_[rank]));
    }
    for (const std::uint32_t each :
         {left_.crashes, left_.false_suspicions, left_.joins, left_.leaves})
      out.put(static_cast<std::uint8_t>(each));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  bool is_up(Rank rank) const { return !crashed_[rank]; }
  bool has_ended(Rank rank) const { return cores_[rank].is_agreed(); }
  /// The last row of a dead member may have been lost on its way.
  const ControlRow& row_for(Rank from, Rank to) const {
    return (deaf_[from] & bit_of(to)) != 0 ? cores_[to].row_of(from) : pushed_[from];
  }
  template <class Add>
  void add_crashes(Rank rank, Add&& add) const {
    for (RankSet lost = 0; lost < bit_of(kMembers); ++lost) {
      if ((lost & bit_of(rank)) != 0) continue;
      add([&](Moment& g) {
        --g.left_.crashes;
        g.crashed_[rank] = true;
        g.deaf_[rank] = lost;
      });
    }
  }
  void read(Rank from, Rank to) {
    cores_[to].take_row(from, pushed_[from]);
    step(to);
  }
  void suspect(Rank rank, Rank other) {
    cores_[rank].suspect(other);
    step(rank);
  }
  void step(Rank rank) {
    Membership& core = cores_[rank];
    bool is_new = core.step();
    if (core.is_to_wedge()) {
      // Each member has received something else.
      Rounds received(kMembers);
      for (Rank sender = 0; sender < kMembers; ++sender) received[sender] = (rank + sender) % 3;
      core.wedged(std::move(received));
      is_new = core.step() || is_new;
    }
    if (is_new) pushed_[rank] = core.row();
  }

  Mishaps left_;
  std::vector<Membership> cores_;
  std::vector<ControlRow> pushed_;
  std::array<bool, kMembers> crashed_{};
  std::array<RankSet, kMembers> deaf_{};  // to the last row of a dead member
};

struct Explored {
  std::string wrong;  // the first thing
  std::size_t moments = 0;
};

/// Goes through all moments that can follow from the begin of a view.
Explored explore(Mishaps mishaps, Bugs bugs = {}) {
  const ViewShape shape = three();
  std::vector<Moment> open{Moment(shape, bugs, mishaps)};
  std::unordered_set<std::string> known{open[0].key()};
  while (!open.empty()) {
    const Moment moment = std::move(open.back());
    open.pop_back();
    std::string wrong = moment.stuck();
    for (Moment& after : moment.next()) {
      if (!known.insert(after.key()).second) continue;
      if (wrong.empty()) wrong = after.wrong();
      open.push_back(std::move(after));
    }
    if (!wrong.empty()) return {wrong, known.size()};
  }
  return {"", known.size()};
}

// Crashes, false suspicions, joins, leaves.
const std::vector<Mishaps> kFew{{1, 0, 1, 0}, {0, 2, 0, 0}, {0, 1, 1, 0}};
const std::vector<Mishaps> kMore{
    {1, 0, 0, 1}, {1, 1, 0, 0}, {1, 0, 1, 1}, {1, 1, 1, 0}, {0, 2, 1, 0}};

TEST(SpindleMembershipSim, EveryOrderOfFewMishaps) {
  std::vector<Mishaps> all = kFew;
  if (fuzz::search_factor() > 1) all.insert(all.end(), kMore.begin(), kMore.end());
  for (const Mishaps& mishaps : all) {
    if (fuzz::kSlowed && mishaps.crashes != 0) continue;
    const Explored explored = explore(mishaps);
    EXPECT_EQ(explored.wrong, "") << mishaps.crashes << ' ' << mishaps.false_suspicions << ' '
                                  << mishaps.joins << ' ' << mishaps.leaves;
    EXPECT_GT(explored.moments, 10'000U);
  }
}

class SpindleExploreBugs : public testing::TestWithParam<std::pair<Bug, Mishaps>> {};

TEST_P(SpindleExploreBugs, AreFound) {
  const auto& [bug, mishaps] = GetParam();
  EXPECT_NE(explore(mishaps, bug).wrong, "");
}

INSTANTIATE_TEST_SUITE_P(All, SpindleExploreBugs,
                         testing::Values(std::pair{Bug::kProposalIgnored, Mishaps{1, 0, 1, 0}},
                                         std::pair{Bug::kProposalBlended, Mishaps{1, 0, 1, 0}},
                                         std::pair{Bug::kTrimComputedAgain, Mishaps{1, 0, 1, 0}},
                                         std::pair{Bug::kJoinersForgotten, Mishaps{1, 0, 1, 0}},
                                         std::pair{Bug::kSuspectHeard, Mishaps{0, 2, 0, 0}},
                                         std::pair{Bug::kMinorityInstalls, Mishaps{0, 2, 0, 0}},
                                         std::pair{Bug::kTrimNotEchoed, Mishaps{0, 2, 0, 0}},
                                         std::pair{Bug::kEchoUncompared, Mishaps{0, 2, 0, 0}},
                                         std::pair{Bug::kAccuserStays, Mishaps{0, 2, 0, 0}},
                                         std::pair{Bug::kCommitUnheard, Mishaps{0, 2, 0, 0}}),
                         [](const auto& each) {
                           return std::string(
                               kBugNames[static_cast<std::size_t>(each.param.first) - 1]);
                         });

}  // namespace
}  // namespace pyrdma::spindle
