// Who may begin a domain again.
#include "systems/spindle/dds/view_log.h"

#include <gtest/gtest.h>

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

// A crash tears the newest record: the one before it is there.
TEST(SpindleViewLogSim, ATornRecordLeavesTheOneBefore) {
  runtime::run_world("sim", 2, [](Env& env, const runtime::Kill&) {
    if (env.node() != 0) return;
    const LoggedViews older = knows(kAll, kAll), newer = knows({4, {0, 1}}, kAll);
    {
      ViewLog log(env);
      EXPECT_EQ(log.views().accepted.id, 0U);
      log.write(older);
      log.write(newer);
    }
    EXPECT_EQ(ViewLog(env).views().accepted, newer.accepted);
    const auto file = env.storage().open("views.log");
    file->write(16, Bytes(4, std::byte{0xff}));  // the second record is in the first place
    const ViewLog log(env);
    EXPECT_EQ(log.views().accepted, older.accepted);
    EXPECT_EQ(log.views().ran, older.ran);
  });
}

}  // namespace
}  // namespace pyrdma::spindle::dds
