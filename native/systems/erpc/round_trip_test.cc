#include "systems/erpc/round_trip.h"

#include <gtest/gtest.h>

namespace pyrdma::erpc {

namespace {

constexpr Time kLeast = 300 * kMicrosecond, kLongest = 5 * kMillisecond;

TEST(ErpcRoundTrip, WithoutASampleTheTimeoutIsTheLongest) {
  EXPECT_EQ(RoundTrip().timeout(3, kLeast, kLongest), kLongest);
}

// By hand: mean 1 ms, deviation 500 us; then error 200 us, so 1,025 us and 425 us.
TEST(ErpcRoundTrip, TheTimeoutIsTheMeanAndFourDeviations) {
  RoundTrip trip;
  trip.take(kMillisecond);
  EXPECT_EQ(trip.timeout(0, kLeast, kLongest), 3 * kMillisecond);
  trip.take(1200 * kMicrosecond);
  EXPECT_EQ(trip.timeout(0, kLeast, kLongest), (1025 + 4 * 425) * kMicrosecond);
}

TEST(ErpcRoundTrip, ShortTripsGiveTheLeastTimeoutWhichDoublesWithEachCopy) {
  RoundTrip trip;
  trip.take(5 * kMicrosecond);
  EXPECT_EQ(trip.timeout(0, kLeast, kLongest), kLeast);
  EXPECT_EQ(trip.timeout(1, kLeast, kLongest), 2 * kLeast);
  EXPECT_EQ(trip.timeout(2, kLeast, kLongest), 4 * kLeast);
  EXPECT_EQ(trip.timeout(1000, kLeast, kLongest), kLongest);
  EXPECT_EQ(trip.timeout(0, kLeast, kMicrosecond), kMicrosecond) << "the option is shorter";
}

// A copy's answer says nothing of the round trip: the doubled timeout stays until one does.
TEST(ErpcRoundTrip, TheTimeoutStaysDoubledUntilTheNextSample) {
  RoundTrip trip;
  trip.take(5 * kMicrosecond);
  trip.keep(2);
  trip.keep(0);
  EXPECT_EQ(trip.timeout(0, kLeast, kLongest), 4 * kLeast);
  EXPECT_EQ(trip.timeout(1, kLeast, kLongest), 4 * kLeast);
  EXPECT_EQ(trip.timeout(3, kLeast, kLongest), 8 * kLeast);
  trip.take(5 * kMicrosecond);
  EXPECT_EQ(trip.timeout(0, kLeast, kLongest), kLeast);
}

}  // namespace

}  // namespace pyrdma::erpc
