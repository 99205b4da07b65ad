// Who may begin a domain again.
#include "systems/spindle/dds/view_log.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <vector>

#include "env/sim/crash_disk_test.h"
#include "runtime/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

using Ids = std::vector<std::uint64_t>;

LoggedViews knows(const LoggedView& accepted, const LoggedView& ran) { return {accepted, ran}; }

Ids ids(const std::vector<NodeId>& nodes, const std::vector<LoggedViews>& known) {
  Ids found;
  for (const LoggedView& view : must_have_majority(nodes, known)) found.push_back(view.id);
  return found;
}

const LoggedView kAll{3, {0, 1, 2, 3, 4}};

TEST(SpindleViewLog, TheNewestViewThatRanCounts) {
  const LoggedView older{2, {0, 1, 2}};
  EXPECT_EQ(ids({0, 1}, {knows(kAll, kAll), knows(older, older)}), Ids{3});
}

// Of five, three began view 4 and ran in it; one of them does not know that it ran. The two others
// and this one are three of five, but just one of the members of view 4.
TEST(SpindleViewLog, AnAcceptedViewMayHaveRunElsewhere) {
  const LoggedView next{4, {0, 1, 2}};
  EXPECT_EQ(ids({2, 3, 4}, {knows(next, kAll), knows(kAll, kAll), knows(kAll, kAll)}), (Ids{3, 4}));
}

// A member of view 4 is here that did not agree to it: it never ran. Two of its members alone may
// not begin, since the others may have made another view of the same number.
TEST(SpindleViewLog, AViewThatAMemberDidNotAcceptNeverRan) {
  const LoggedView next{4, {0, 1, 2}}, other{4, {0, 3, 4}};
  EXPECT_EQ(ids({1, 2}, {knows(next, kAll), knows(kAll, kAll)}), Ids{3});
  EXPECT_EQ(ids({0, 1}, {knows(other, other), knows(next, kAll)}), Ids{4});
  EXPECT_EQ(must_have_majority({0, 1}, {knows(other, other), knows(next, kAll)})[0], other);
}

TEST(SpindleViewLog, AFirstViewThatNeverRanNeedsItsFoundersMajority) {
  const LoggedView first{1, {0, 1, 2}};
  EXPECT_EQ(ids({0, 1}, {knows(first, {}), knows(first, {})}), Ids{1});
  EXPECT_EQ(ids({0, 1}, {knows(first, {}), knows({}, {})}), Ids{});
  EXPECT_EQ(ids({0}, {knows({}, {})}), Ids{});
}

LoggedViews views_of(std::uint64_t number) {
  std::vector<NodeId> members(number % 64 + 1);
  std::iota(members.begin(), members.end(), static_cast<NodeId>(number));
  return knows({number, members}, {number / 2, {0, 1, 2}});
}

/// Returns the views that a node finds on such a disk; nothing if they are refused.
std::optional<LoggedViews> found_on(Env& inner, const Bytes& content, Bugs bugs = {}) {
  CrashDisk disk({{"views.log", content}});
  EnvWithDisk env(inner, disk);
  try {
    return ViewLog(env, false, bugs).views();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(names(error.what(), {"views.log", "offset", "join"}));
    return std::nullopt;
  }
}

/// A disk to which views 1, 2 and so on were written.
struct WrittenViews {
  CrashDisk disk;
  WrittenViews(Env& inner, std::uint64_t count) {
    EnvWithDisk env(inner, disk);
    ViewLog log(env);
    for (std::uint64_t number = 1; number <= count; ++number) log.write(views_of(number));
  }
  const Bytes& content() const { return disk.content("views.log"); }
};

// An older record does not stand for a damaged one.
TEST(SpindleViewLogSim, NoChangedByteForgetsAView) {
  runtime::run_world("sim", 1, [](Env& env, const runtime::Kill&) {
    std::uint64_t refused = 0, forgotten = 0;
    for (const std::uint64_t count : {1U, 2U, 5U}) {
      const WrittenViews written(env, count);
      for (std::size_t at = 0; at < written.content().size(); ++at) {
        Bytes damaged = written.content();
        damaged[at] ^= static_cast<std::byte>(1U << at % 8);
        const auto found = found_on(env, damaged);
        refused += !found;
        EXPECT_TRUE(!found || *found == views_of(count)) << "byte " << at;
        const auto careless = found_on(env, damaged, Bug::kDamagedViewsForgotten);
        ASSERT_TRUE(careless);
        forgotten += *careless != views_of(count);
      }
    }
    EXPECT_GT(refused, 200U);
    EXPECT_GT(forgotten, 100U) << "the bug";
  });
}

// Who has lost its views knows of none until it joins.
TEST(SpindleViewLogSim, LostViewsComeWithTheNextOne) {
  runtime::run_world("sim", 1, [](Env& inner, const runtime::Kill&) {
    WrittenViews written(inner, 5);
    EnvWithDisk env(inner, written.disk);
    env.storage().open("views.log")->write(4096 + 20, Bytes(4, std::byte{0xff}));  // the fifth one
    EXPECT_FALSE(found_on(inner, written.content()));
    {
      ViewLog log(env, /*forgets=*/true);
      EXPECT_TRUE(log.is_lost());
      EXPECT_TRUE(log.views() == LoggedViews());
    }
    ViewLog log(env, /*forgets=*/true);
    EXPECT_TRUE(log.is_lost()) << "as long as it knows of no view";
    log.write(views_of(7));
    EXPECT_FALSE(log.is_lost());
    EXPECT_TRUE(*found_on(inner, written.content()) == views_of(7));
  });
}

}  // namespace
}  // namespace pyrdma::spindle::dds
