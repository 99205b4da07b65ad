// DCQCN by sequences computed by hand, and its bounds under random marks.
#include "systems/erpc/dcqcn.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error_test.h"
#include "base/rng.h"

namespace pyrdma::erpc {
namespace {

constexpr double kDcqcnLink = 5;  // bytes per ns: 40 Gbit/s
const RateBounds kDcqcnBounds{kLeastRate, kDcqcnLink};
constexpr double kDcqcnGain = 1.0 / 256;
constexpr Time kDcqcnStep = 55'000;
constexpr std::uint64_t kDcqcnBytes = 10'000'000;

TEST(ErpcDcqcn, BeginsAtTheLinkAndStaysThere) {
  Dcqcn dcqcn({}, kDcqcnBounds, 0);
  EXPECT_TRUE(dcqcn.uncongested());
  dcqcn.advance(kSecond);
  dcqcn.on_sent(kDcqcnBytes, 2 * kSecond);
  EXPECT_EQ(dcqcn.rate(), kDcqcnLink);
}

TEST(ErpcDcqcn, ANotificationCutsByAlpha) {
  Dcqcn dcqcn({}, kDcqcnBounds, 0);
  dcqcn.on_notification(kMillisecond);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink / 2) << "alpha begins as 1";
  EXPECT_DOUBLE_EQ(dcqcn.target(), kDcqcnLink);
  EXPECT_DOUBLE_EQ(dcqcn.alpha(), 1);
  EXPECT_FALSE(dcqcn.uncongested());
  // Before alpha or the timer has its time, the next cut halves again.
  dcqcn.on_notification(kMillisecond + kDcqcnStep - 1);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink / 4);
  EXPECT_DOUBLE_EQ(dcqcn.target(), kDcqcnLink / 2) << "the rate before the cut";
}

TEST(ErpcDcqcn, AlphaFallsWithoutNotifications) {
  Dcqcn dcqcn({}, kDcqcnBounds, 0);
  dcqcn.on_notification(0);
  const Time then = 2 * kDcqcnStep + 7;
  dcqcn.advance(then);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink * 0.875) << "two halves of the distance";
  dcqcn.on_notification(then);
  const double alpha = (1 - kDcqcnGain) * (1 - kDcqcnGain);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink * 0.875 * (1 - alpha / 2));
  EXPECT_DOUBLE_EQ(dcqcn.alpha(), (1 - kDcqcnGain) * alpha + kDcqcnGain);
  // After a long rest alpha is near 0: a mark costs little.
  dcqcn.advance(kSecond);
  EXPECT_TRUE(dcqcn.uncongested());
  dcqcn.on_notification(kSecond);
  EXPECT_GT(dcqcn.rate(), 0.999 * kDcqcnLink);
  EXPECT_NEAR(dcqcn.alpha(), kDcqcnGain, 1e-6);
}

TEST(ErpcDcqcn, OneCutIsRecoveredInNineSteps) {
  Dcqcn dcqcn({}, kDcqcnBounds, 0);
  dcqcn.on_notification(0);
  dcqcn.advance(8 * kDcqcnStep);
  EXPECT_FALSE(dcqcn.uncongested()) << "1 / 512 is missing";
  dcqcn.advance(9 * kDcqcnStep);
  EXPECT_TRUE(dcqcn.uncongested()) << "less than 1 / 1000 is none";
}

TEST(ErpcDcqcn, NotificationsInOneIntervalCountOnce) {
  Dcqcn dcqcn({}, kDcqcnBounds, 0);
  dcqcn.on_notification(kMillisecond);
  for (Time t = 0; t < 50'000; t += 100) dcqcn.on_notification(kMillisecond + t);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink / 2);
  dcqcn.on_notification(kMillisecond + 50'000);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink / 4);
  DcqcnOptions options;
  options.least_between_cuts = 0;
  Dcqcn each(options, kDcqcnBounds, 0);
  for (int i = 0; i < 3; ++i) each.on_notification(0);
  EXPECT_DOUBLE_EQ(each.rate(), kDcqcnLink / 8);
}

// Cuts to a small rate, then lets the target begin far below the link.
Dcqcn slow_dcqcn(Time& now) {
  Dcqcn dcqcn({}, kDcqcnBounds, now);
  for (int i = 0; i < 6; ++i) dcqcn.on_notification(now += 50'000);
  return dcqcn;
}

TEST(ErpcDcqcn, TheTimerRecoversFastAndThenAdds) {
  Time now = 0;
  Dcqcn dcqcn = slow_dcqcn(now);
  double rate = kDcqcnLink / 64, target = kDcqcnLink / 32;
  EXPECT_DOUBLE_EQ(dcqcn.rate(), rate);
  EXPECT_DOUBLE_EQ(dcqcn.target(), target);
  for (int step = 1; step <= 20; ++step) {
    dcqcn.advance(now + kDcqcnStep - 1);
    EXPECT_DOUBLE_EQ(dcqcn.rate(), rate) << "not before the timer";
    if (step >= 5) target += 0.005;
    rate = (rate + target) / 2;
    dcqcn.advance(now += kDcqcnStep);
    EXPECT_DOUBLE_EQ(dcqcn.rate(), rate) << "step " << step;
    EXPECT_DOUBLE_EQ(dcqcn.target(), target) << "step " << step;
  }
}

TEST(ErpcDcqcn, TheByteCounterIncreasesToo) {
  Time now = 0;
  Dcqcn dcqcn = slow_dcqcn(now);
  const double rate = dcqcn.rate(), target = dcqcn.target();
  dcqcn.on_sent(kDcqcnBytes - 1, now);
  EXPECT_EQ(dcqcn.rate(), rate);
  dcqcn.on_sent(1, now);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), (rate + target) / 2);
  dcqcn.on_sent(2 * kDcqcnBytes, now);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), (rate + 7 * target) / 8);
}

TEST(ErpcDcqcn, BothCountersTogetherIncreaseHyper) {
  Time now = 0;
  Dcqcn dcqcn = slow_dcqcn(now);
  double target = dcqcn.target();
  for (int step = 1; step <= 9; ++step) {
    dcqcn.advance(now += kDcqcnStep);
    // The timer counts `step`, the bytes one less.
    if (step >= 5) target += step - 1 > 5 ? 0.05 * (step - 1 - 5) : 0.005;
    EXPECT_NEAR(dcqcn.target(), target, 1e-12) << "timer " << step;
    dcqcn.on_sent(kDcqcnBytes, now);
    if (step >= 5) target += step > 5 ? 0.05 * (step - 5) : 0.005;
    EXPECT_NEAR(dcqcn.target(), target, 1e-12) << "bytes " << step;
  }
  EXPECT_GT(target, 0.05 * (1 + 1 + 2 + 2 + 3 + 3));
}

TEST(ErpcDcqcn, ACutEndsTheIncreases) {
  Time now = 0;
  Dcqcn dcqcn = slow_dcqcn(now);
  for (int step = 0; step < 8; ++step) {
    dcqcn.advance(now += kDcqcnStep);
    dcqcn.on_sent(kDcqcnBytes, now);
  }
  dcqcn.on_sent(kDcqcnBytes - 1, now);
  dcqcn.on_notification(now += 1'000);
  const double rate = dcqcn.rate(), target = dcqcn.target();
  dcqcn.on_sent(1, now);
  dcqcn.advance(now + kDcqcnStep - 1);
  EXPECT_EQ(dcqcn.rate(), rate) << "the bytes and the timer begin again";
  for (int step = 1; step <= 4; ++step) dcqcn.advance(now += kDcqcnStep);
  EXPECT_EQ(dcqcn.target(), target) << "and so does the fast recovery";
  dcqcn.on_sent(3 * kDcqcnBytes, now);
  EXPECT_EQ(dcqcn.target(), target) << "of both counters";
}

TEST(ErpcDcqcn, ManyStepsAtOnceAreTheSameAsOneByOne) {
  Time now = 0;
  Dcqcn one = slow_dcqcn(now);
  Dcqcn many = one;
  for (int step = 1; step <= 300; ++step) one.advance(now + step * kDcqcnStep);
  many.advance(now + 300 * kDcqcnStep);
  EXPECT_EQ(one.rate(), many.rate());
  EXPECT_EQ(one.target(), many.target());
  EXPECT_LT(many.rate(), kDcqcnLink);
  many.advance(1'000 * kSecond);
  EXPECT_EQ(many.rate(), kDcqcnLink) << "the rate gets to the link itself";
}

bool dcqcn_stays_in_bounds(std::uint64_t seed) {
  Rng rng(seed);
  Dcqcn dcqcn({}, kDcqcnBounds, 0);
  Time now = 0;
  bool low = false, high = false;
  for (int i = 0; i < 100'000; ++i) {
    const double before = dcqcn.rate();
    // Phases of congestion and of rest, so that both bounds are met.
    const bool congested = (i / 20'000) % 2 == 0;
    switch (rng.below(3)) {
      case 0:
        now += static_cast<Time>(rng.below(100'000));
        dcqcn.advance(now);
        if (dcqcn.rate() < before) return false;
        break;
      case 1:
        dcqcn.on_sent(rng.below(1'000'000), now);
        if (dcqcn.rate() < before) return false;
        break;
      default:
        if (congested) dcqcn.on_notification(now);
        if (dcqcn.rate() > before || dcqcn.rate() < before / 2) return false;
    }
    if (dcqcn.rate() < kDcqcnBounds.least || dcqcn.rate() > kDcqcnBounds.most) return false;
    if (dcqcn.target() > kDcqcnBounds.most || dcqcn.target() < dcqcn.rate()) return false;
    if (dcqcn.alpha() < 0 || dcqcn.alpha() > 1) return false;
    low = low || dcqcn.rate() == kDcqcnBounds.least;
    high = high || (low && dcqcn.uncongested());
  }
  return low && high;
}

TEST(ErpcDcqcn, StaysInItsBounds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_TRUE(dcqcn_stays_in_bounds(seed)) << "seed " << seed;
}

TEST(ErpcDcqcn, AClockThatGoesBackHasNoEffect) {
  Dcqcn dcqcn({}, kDcqcnBounds, kSecond);
  dcqcn.on_notification(kSecond);
  dcqcn.advance(0);
  dcqcn.on_notification(0);
  dcqcn.on_sent(1, 0);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink / 2);
  dcqcn.advance(kSecond + kDcqcnStep);
  EXPECT_DOUBLE_EQ(dcqcn.rate(), kDcqcnLink * 0.75);
}

TEST(ErpcDcqcn, RefusesOptionsThatMakeNoSense) {
  const auto refused = [](const std::function<void(DcqcnOptions&)>& change,
                          std::string_view named) {
    DcqcnOptions options;
    change(options);
    return refuses([&] { Dcqcn(options, kDcqcnBounds, 0); }, ErrorCode::kInvalidArgument, {named});
  };
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.gain = 2; }, "2.000000"));
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.alpha_time = 0; }, "0"));
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.increase_time = -3; }, "-3"));
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.least_between_cuts = -4; }, "-4"));
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.increase_bytes = 0.5; }, "0.500000"));
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.add_rate = 0; }, "0.000000"));
  EXPECT_TRUE(refused([](DcqcnOptions& o) { o.hyper_rate = std::nan(""); }, "nan"));
}

}  // namespace
}  // namespace pyrdma::erpc
