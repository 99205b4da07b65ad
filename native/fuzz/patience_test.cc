// How long a run may stand still: a limit, and the time of the work that is left.
#include "fuzz/patience.h"

#include <gtest/gtest.h>

namespace pyrdma::fuzz {
namespace {

TEST(Patience, EndsWhenNothingHasHappenedForTheLimit) {
  Patience patience(10);
  EXPECT_FALSE(patience.is_over(100, 1));
  EXPECT_FALSE(patience.is_over(110, 1));
  EXPECT_FALSE(patience.is_over(111, 2));
  EXPECT_FALSE(patience.is_over(121, 2));
  EXPECT_TRUE(patience.is_over(122, 2));
}

// Work that is done by then was waited for: what follows it has the limit.
TEST(Patience, WaitsForTheMostWorkSinceTheLastStep) {
  Patience patience(10);
  EXPECT_FALSE(patience.is_over(100, 1, 5));
  EXPECT_FALSE(patience.is_over(120, 1, 40));
  EXPECT_FALSE(patience.is_over(150, 1, 0));
  EXPECT_TRUE(patience.is_over(151, 1, 0));
  EXPECT_FALSE(patience.is_over(160, 2, 0));
  EXPECT_TRUE(patience.is_over(171, 2, 0)) << "the work before the step counts no more";
  patience.renew(200);
  EXPECT_FALSE(patience.is_over(210, 2, 0));
  EXPECT_TRUE(patience.is_over(211, 2, 0));
}

}  // namespace
}  // namespace pyrdma::fuzz
