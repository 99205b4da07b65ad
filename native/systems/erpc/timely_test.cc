// Timely by sequences computed by hand, and its bounds under random times.
#include "systems/erpc/timely.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "base/error_test.h"
#include "base/rng.h"
#include "systems/erpc/rate_control.h"

namespace pyrdma::erpc {
namespace {

constexpr double kTimelyLink = 3.125;  // bytes per ns: 25 Gbit/s
const RateBounds kTimelyBounds{kLeastRate, kTimelyLink};

TEST(ErpcTimely, BeginsAtTheLink) {
  Timely timely({}, kTimelyBounds, 0);
  EXPECT_EQ(timely.rate(), kTimelyLink);
  EXPECT_TRUE(timely.uncongested());
  EXPECT_TRUE(timely.bypasses(50'000)) << "t_low itself";
  EXPECT_FALSE(timely.bypasses(50'001));
  EXPECT_EQ(timely.update(10'000, 10'000), kTimelyLink) << "no increase above the most";
}

TEST(ErpcTimely, ALongTimeCutsByItsExcess) {
  Timely timely({}, kTimelyBounds, 0);
  // 1 - 0.26 * (1 - 1000 / 2000) = 0.87
  EXPECT_DOUBLE_EQ(timely.update(2'000'000, 2'000'000), kTimelyLink * 0.87);
  EXPECT_FALSE(timely.uncongested());
  EXPECT_FALSE(timely.bypasses(10'000)) << "a slow session needs each update";
  // 1 - 0.26 * (1 - 1000 / 4000) = 0.805
  EXPECT_DOUBLE_EQ(timely.update(4'000'000, 6'000'000), kTimelyLink * 0.87 * 0.805);
}

TEST(ErpcTimely, AShortTimeAddsOneStep) {
  Timely timely({}, kTimelyBounds, 0);
  const double cut = timely.update(2'000'000, 2'000'000);
  EXPECT_DOUBLE_EQ(timely.update(49'999, 3'000'000), cut + 0.005);
  // Half of the least round trip has passed: half a step.
  EXPECT_DOUBLE_EQ(timely.update(49'999, 3'001'000), cut + 0.0075);
  EXPECT_DOUBLE_EQ(timely.update(49'999, 3'001'000), cut + 0.0075) << "no time has passed";
  EXPECT_DOUBLE_EQ(timely.update(49'999, 2'000'000), cut + 0.0075) << "a clock that goes back";
  EXPECT_DOUBLE_EQ(timely.update(49'999, 3'002'000), cut + 0.01) << "must not count twice";
}

TEST(ErpcTimely, TheGradientDecidesInBetween) {
  Timely timely({}, kTimelyBounds, 0);
  // Average difference: 0.46 * (100 - 2) us = 45.08 us, gradient 22.54. The cut is at most a half.
  EXPECT_DOUBLE_EQ(timely.update(100'000, 100'000), kTimelyLink / 2);
  // No difference: the average falls to 0.54 * 45.08 us = 24.34 us, gradient 12.17.
  EXPECT_DOUBLE_EQ(timely.update(100'000, 200'000), kTimelyLink / 4);
  // Small gradients cut by themselves.
  Timely slow({}, kTimelyBounds, 0);
  slow.update(49'000, 49'000);  // below t_low, so no cut
  double average = 0.46 * 47'000;
  EXPECT_EQ(slow.rate(), kTimelyLink);
  double rate = kTimelyLink, last = 49'000;
  Time now = 49'000;
  for (const double rtt :
       {50'000., 50'100., 50'100., 50'200., 50'150., 50'150., 50'100., 50'100.}) {
    average = 0.54 * average + 0.46 * (rtt - last);
    last = rtt;
    const double gradient = average / 2'000;
    ASSERT_GT(gradient, 0);
    rate = std::max(rate * (1 - 0.26 * gradient), rate / 2);
    now += 50'000;
    EXPECT_NEAR(slow.update(static_cast<Time>(rtt), now), rate, 1e-12) << rtt;
  }
}

TEST(ErpcTimely, FiveFallingTimesMakeTheIncreaseFiveTimes) {
  Timely timely({}, kTimelyBounds, 0);
  Time now = 10'000'000;
  timely.update(900'000, now);
  double rate = timely.update(800'000, now += 10'000);
  std::vector<double> steps;
  for (Time rtt = 700'000; rtt >= 200'000; rtt -= 100'000) {
    const double next = timely.update(rtt, now += 10'000);
    steps.push_back((next - rate) / 0.005);
    rate = next;
  }
  // The first time, 900 us, gives an average difference of 413 us. The falls of 100 us lower it to
  // 177, 49.6, -19.2, -56.4, -76.4 us and so on. From the third fall on it is below 0, and from the
  // fifth on the step is five times. `steps` begins with the second fall.
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_LT(steps[0], 0);
  EXPECT_NEAR(steps[1], 1, 1e-9);
  EXPECT_NEAR(steps[2], 1, 1e-9);
  EXPECT_NEAR(steps[3], 5, 1e-9);
  EXPECT_NEAR(steps[4], 5, 1e-9);
  EXPECT_NEAR(steps[5], 5, 1e-9);
  // An equal time ends the sequence.
  const double same = timely.update(200'000, now += 10'000);
  EXPECT_NEAR((same - rate) / 0.005, 1, 1e-9);
}

TEST(ErpcTimely, SamplesBelowTheLeastRoundTripAreIgnored) {
  Timely timely({}, kTimelyBounds, 0);
  const double cut = timely.update(2'000'000, 2'000'000);
  for (const Time rtt : {Time{0}, Time{-5}, Time{1'999}, std::numeric_limits<Time>::min()})
    EXPECT_EQ(timely.update(rtt, 9'000'000), cut) << rtt;
  EXPECT_DOUBLE_EQ(timely.update(2'000, 9'000'000), cut + 0.005);
}

TEST(ErpcTimely, ThePatchWeighsBothDirections) {
  TimelyOptions options;
  options.patched = true;
  Timely timely(options, kTimelyBounds, 0);
  // Gradient far above 0.25: weight 1, error (100 - 50) / 50 = 1, so 1 - 0.26.
  EXPECT_DOUBLE_EQ(timely.update(100'000, 100'000), kTimelyLink * 0.74);
  // The average difference is 0.54 * 45.08 - 0.46 * 40 = 5.94 us: the weight is still 1.
  EXPECT_DOUBLE_EQ(timely.update(60'000, 200'000), kTimelyLink * 0.74 * (1 - 0.26 * 0.2));
  const double rate = timely.rate();  // then 0.54 * 5.94 - 0.46 * 5 = 0.91 us: gradient 0.45
  EXPECT_DOUBLE_EQ(timely.update(55'000, 300'000), rate * (1 - 0.26 * 0.1));
  const double then = timely.rate();
  // 0.54 * 0.90909 us = 0.49091 us: gradient 0.24545..., weight 0.99091
  const double average = 0.54 * (0.54 * (0.54 * 0.46 * 98'000 - 0.46 * 40'000) - 0.46 * 5'000);
  const double weight = 2 * average / 2'000 + 0.5;
  ASSERT_GT(weight, 0.9);
  ASSERT_LT(weight, 1);
  EXPECT_NEAR(timely.update(55'000, 400'000),
              then * (1 - 0.26 * weight * 0.1) + 0.005 * (1 - weight), 1e-12);
  // A fall of 3 us: the average difference is below -0.5 us, the gradient below -0.25. Weight 0.
  const double before = timely.rate();
  EXPECT_DOUBLE_EQ(timely.update(52'000, 500'000), before + 0.005);
}

// Runs the times of a seed through Timely; returns false where a property does not hold.
bool timely_stays_in_bounds(const TimelyOptions& options, std::uint64_t seed) {
  Rng rng(seed);
  Timely timely(options, kTimelyBounds, 0);
  Time now = 0;
  bool low = false, high = false;
  for (int i = 0; i < 20'000; ++i) {
    // Phases of congestion and of rest, so that both bounds are met.
    const Time most = (i / 2'000) % 2 == 0 ? 5'000'000 : 60'000;
    const Time rtt = static_cast<Time>(rng.below(static_cast<std::uint64_t>(most)));
    now += static_cast<Time>(rng.below(20'000));
    const double before = timely.rate();
    const double rate = timely.update(rtt, now);
    if (rate < kTimelyBounds.least || rate > kTimelyBounds.most || rate < before / 2) return false;
    if (rtt < options.min_rtt && rate != before) return false;
    if (rtt < options.t_low && rate < before) return false;
    if (rtt > options.t_high && rate > before) return false;
    if (rate > before + 5 * options.add_rate + 1e-12) return false;
    low = low || rate == kTimelyBounds.least;
    high = high || rate > 2 * kTimelyBounds.least;
  }
  return low && high;
}

TEST(ErpcTimely, StaysInItsBounds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    TimelyOptions options;
    options.patched = seed % 2 == 1;
    EXPECT_TRUE(timely_stays_in_bounds(options, seed)) << "seed " << seed;
  }
}

TEST(ErpcTimely, LongerTimesNeverGiveAHigherRate) {
  for (Time rtt = 1'100'000; rtt < 10'000'000; rtt += 100'000) {
    Timely shorter({}, kTimelyBounds, 0), longer({}, kTimelyBounds, 0);
    EXPECT_GE(shorter.update(rtt, 10'000'000), longer.update(rtt + 100'000, 10'000'000));
  }
}

TEST(ErpcTimely, RecoversFromTheLeastRate) {
  Timely timely({}, kTimelyBounds, 0);
  Time now = 0;
  while (timely.rate() > kTimelyBounds.least) timely.update(10'000'000, now += 10'000);
  int steps = 0;
  for (; !timely.uncongested() && steps < 10'000; ++steps) timely.update(10'000, now += 10'000);
  EXPECT_NEAR(steps, 622, 1) << "3.11 bytes per ns in steps of 0.005";
}

TEST(ErpcTimely, RefusesOptionsThatMakeNoSense) {
  const auto refuses_after = [](const std::function<void(TimelyOptions&)>& change,
                                std::string_view named) {
    TimelyOptions options;
    change(options);
    return refuses([&] { Timely(options, kTimelyBounds, 0); }, ErrorCode::kInvalidArgument,
                   {named});
  };
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.min_rtt = 0; }, "0"));
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.t_low = 1'999; }, "1999"));
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.t_high = 49'999; }, "49999"));
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.ewma = 1.5; }, "1.500000"));
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.beta = 0; }, "0.000000"));
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.beta = std::nan(""); }, "nan"));
  EXPECT_TRUE(refuses_after([](TimelyOptions& o) { o.add_rate = -1; }, "-1.000000"));
}

TEST(ErpcRateBounds, ComeFromTheLink) {
  const RateBounds bounds = RateBounds::of_link(25);
  EXPECT_EQ(bounds.most, kTimelyLink);
  EXPECT_EQ(bounds.least, kLeastRate);
  EXPECT_EQ(RateBounds::of_link(0.08).least, 0.01) << "a link slower than the least rate";
  EXPECT_EQ(bounds.clamp(0), kLeastRate);
  EXPECT_EQ(bounds.clamp(1), 1);
  EXPECT_EQ(bounds.clamp(1e9), kTimelyLink);
  EXPECT_EQ(bounds.longest(32 * 1024), 2'184'534) << "the public code's horizon in ns";
  EXPECT_EQ((RateBounds{1e-300, 1}.longest(1e9)), 4'000'000'000'000'000'000);
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double gbps : {0.0, -1.0, infinite, std::nan("")})
    EXPECT_TRUE(refuses([&] { RateBounds::of_link(gbps); }, ErrorCode::kInvalidArgument)) << gbps;
  EXPECT_TRUE(refuses(
      [] {
        RateBounds{2, 1}.check();
      },
      ErrorCode::kInvalidArgument, {"2.000000", "1.000000"}));
}

// Over shared memory all round trips are shorter than Timely's least one.
TEST(ErpcTimely, ARateThatHasFallenRisesAgainWhereRoundTripsAreShort) {
  Options options;
  options.link_gbps = 25;
  RateControl rate(options, 0);
  EXPECT_TRUE(rate.is_direct());
  EXPECT_TRUE(rate.skips(50 * kMicrosecond));
  EXPECT_FALSE(rate.skips(50 * kMicrosecond + 1));
  Time now = kMillisecond;
  EXPECT_TRUE(rate.answered(5 * kMillisecond, now, false));
  EXPECT_FALSE(rate.is_direct());
  EXPECT_FALSE(rate.skips(500));
  int answers = 0;
  for (; !rate.is_direct() && answers < 1000; ++answers) rate.answered(500, now += 3000, false);
  // It fell from 3.125 to 2.475 bytes per ns, and each answer adds 0.005; rounding may take one
  // more.
  EXPECT_GE(answers, 130);
  EXPECT_LE(answers, 131);
  EXPECT_TRUE(rate.skips(500));
}

}  // namespace
}  // namespace pyrdma::erpc
