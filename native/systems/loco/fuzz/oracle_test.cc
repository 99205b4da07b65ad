// The oracle of failed clients compares the nodes that an error blames, not its text.
#include <gtest/gtest.h>

#include "systems/loco/fuzz/fates.h"

namespace pyrdma::loco {
namespace {

class OracleSim : public testing::Test {
 protected:
  static Error timeout(std::vector<NodeId> blamed) {
    return Error(ErrorCode::kTimeout, "node 0: no answer within 100 ms").blaming(std::move(blamed));
  }
  Fates fates{4};
};

TEST_F(OracleSim, AnErrorThatBlamesADeadNodeIsRight) {
  fates.died(1);
  fates.failed(0, timeout({2, 1}));
  EXPECT_EQ(fates.wrong_errors().size(), 0U);
}

TEST_F(OracleSim, TheNumberOfADeadNodeInTheTextProvesNothing) {
  fates.died(1);  // "100 ms" contains a 1
  fates.failed(0, timeout({}));
  EXPECT_EQ(fates.wrong_errors().size(), 1U);
}

TEST_F(OracleSim, ALivingNodeMustNotBeBlamedAlone) {
  fates.died(1);
  fates.failed(0, timeout({2}));
  EXPECT_EQ(fates.wrong_errors().size(), 1U);
}

TEST_F(OracleSim, ANodeThatADeadOneHoldsUpMayBeBlamed) {
  fates.died(1);
  fates.failed(0, timeout({2}));
  fates.failed(2, timeout({1}));
  EXPECT_EQ(fates.wrong_errors().size(), 0U);
}

TEST_F(OracleSim, LivingNodesMustNotBlameEachOther) {
  fates.died(1);
  fates.failed(0, timeout({2}));
  fates.failed(2, timeout({0}));
  EXPECT_EQ(fates.wrong_errors().size(), 2U);
}

TEST_F(OracleSim, ANodeThatDiesAfterItsOwnErrorIsDead) {
  fates.reached(1, Stage::kEnded);
  fates.died(1);
  fates.failed(1, timeout({}));
  fates.failed(0, timeout({1}));
  EXPECT_EQ(fates.wrong_errors().size(), 0U);
}

}  // namespace
}  // namespace pyrdma::loco
