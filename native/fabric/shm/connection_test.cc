// Connections of which one side alone is reset, and requests that find no receive.
#include <gtest/gtest.h>

#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {
namespace {

QpOptions options_of(Transport transport) {
  QpOptions options;
  options.transport = transport;
  options.timeout_us = 100;
  options.retry_count = 1;
  return options;
}

std::uint64_t& word(End& end, std::size_t offset) {
  return *reinterpret_cast<std::uint64_t*>(end.region->data() + offset);
}

Status write_word(End& from, End& to, std::uint64_t value) {
  word(from, 0) = value;
  EXPECT_TRUE(from.qp->write(from.region->sge(0, 8), to.region->remote(), 8));
  const auto got = from.wait(1);
  return got.size() == 1 ? got[0].status : Status::kGeneral;
}

TEST(ShmConnection, AResetDrawsAnotherSequenceNumber) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t before = pair.a.qp->address().psn;
    pair.a.qp->modify(QpState::kReset);
    EXPECT_NE(pair.a.qp->address().psn, before);
    EXPECT_EQ(pair.a.qp->address().qp_num, pair.a.qp->qp_num());
  }
}

TEST(ShmConnection, AReliableOneThatOnlyOneSideHasRenewedIsDead) {
  for (const bool sender_was_reset : {true, false}) {
    Pair pair(options_of(Transport::kRc));
    ASSERT_EQ(write_word(pair.a, pair.b, 1), Status::kSuccess);
    ASSERT_EQ(write_word(pair.b, pair.a, 1), Status::kSuccess);
    End& renewed = sender_was_reset ? pair.a : pair.b;
    End& other = sender_was_reset ? pair.b : pair.a;
    renewed.qp->modify(QpState::kReset);
    renewed.qp->connect(other.qp->address());
    EXPECT_EQ(write_word(pair.a, pair.b, 2), Status::kRetryExceeded);
    EXPECT_EQ(word(pair.b, 8), 1U);
    pair.reconnect();
    renewed.qp->modify(QpState::kReset);
    renewed.qp->connect(other.qp->address());
    EXPECT_EQ(write_word(pair.b, pair.a, 2), Status::kRetryExceeded);
    EXPECT_EQ(word(pair.a, 8), 1U);
    pair.reconnect();
    EXPECT_EQ(write_word(pair.a, pair.b, 3), Status::kSuccess);
    EXPECT_EQ(word(pair.b, 8), 3U);
  }
}

TEST(ShmConnection, AnUnreliableOneGoesOnWhenOneSideIsRenewed) {
  for (const bool sender_was_reset : {true, false}) {
    Pair pair(options_of(Transport::kUc));
    ASSERT_EQ(write_word(pair.a, pair.b, 1), Status::kSuccess);
    End& renewed = sender_was_reset ? pair.a : pair.b;
    renewed.qp->modify(QpState::kReset);
    renewed.qp->connect((sender_was_reset ? pair.b : pair.a).qp->address());
    EXPECT_EQ(write_word(pair.a, pair.b, 2), Status::kSuccess);
    EXPECT_EQ(word(pair.b, 8), 2U);
  }
}

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
