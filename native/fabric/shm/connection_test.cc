// Requests of a connection that find no receive.
#include <gtest/gtest.h>

#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {
namespace {

TEST(ShmConnection, TheRetriesWithoutAReceiveAreCounted) {
  constexpr Time kTimer = 30 * kMillisecond;
  for (std::uint32_t retries = 0; retries < 3; ++retries) {
    QpOptions options;
    options.rnr_retry = retries;
    options.rnr_timer_us = kTimer / kMicrosecond;
    Pair pair(options);
    const Time begin = pair.a.env->now();
    ASSERT_TRUE(pair.a.qp->send(pair.a.region->sge(0, 8)));
    const auto got = pair.a.wait(1);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].status, Status::kRnrRetryExceeded);
    EXPECT_GE(pair.a.env->now() - begin, retries * kTimer);
    if (retries == 0) {
      EXPECT_LT(pair.a.env->now() - begin, kTimer) << "one attempt needs no timer";
    }
    EXPECT_EQ(pair.a.qp->state(), QpState::kError);
  }
}

}  // namespace
}  // namespace pyrdma::fabric::shm
