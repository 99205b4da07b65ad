#include "measure/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace pyrdma::measure {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<Time> random_values(std::uint64_t seed, int count) {
  Rng rng(seed);
  std::vector<Time> values;
  for (int i = 0; i < count; ++i)
    values.push_back(static_cast<Time>(std::exp2(rng.uniform() * 41)));
  return values;
}

TEST(Histogram, PercentilesAreWithinAThousandthOfTheSortedValues) {
  std::vector<Time> values = random_values(1, 20'000);
  Histogram histogram;
  for (const Time value : values) histogram.record(value);
  std::sort(values.begin(), values.end());
  for (const double percent : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9}) {
    const auto rank =
        static_cast<std::size_t>(percent / 100 * static_cast<double>(values.size()) + 0.5) - 1;
    const auto exact = static_cast<double>(values[rank]);
    EXPECT_NEAR(static_cast<double>(histogram.percentile(percent)), exact, exact / 1000 + 1)
        << percent;
  }
  EXPECT_EQ(histogram.total(), values.size());
}

TEST(Histogram, EmptyAndExtremes) {
  Histogram histogram;
  EXPECT_EQ(histogram.percentile(50), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.record(-5);
  histogram.record(2 * Histogram::kHighest);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_GE(histogram.max(), Histogram::kHighest);
  EXPECT_EQ(histogram.percentile(0), 0);
}

TEST(Histogram, MergeEqualsRecordingAll) {
  Histogram all, left, right;
  for (const Time value : random_values(2, 5000)) {
    all.record(value);
    (value % 2 == 0 ? left : right).record(value);
  }
  left.merge(right);
  EXPECT_EQ(left.encode(), all.encode());
  EXPECT_EQ(left.max(), all.max());
  EXPECT_EQ(left.min(), all.min());
}

TEST(Histogram, DecodesWhatItEncodes) {
  for (const int count : {0, 1, 2, 1000}) {
    Histogram histogram;
    for (const Time value : random_values(3, count)) histogram.record(value, 3);
    const Histogram back = Histogram::decode(bytes(histogram.encode()));
    EXPECT_EQ(back.encode(), histogram.encode());
    EXPECT_EQ(back.total(), histogram.total());
    EXPECT_EQ(back.mean(), histogram.mean());
    EXPECT_EQ(back.percentile(99), histogram.percentile(99));
  }
}

TEST(Histogram, RefusesBrokenEncodings) {
  Histogram histogram;
  for (const Time value : random_values(4, 200)) histogram.record(value);
  const std::string good = histogram.encode();
  EXPECT_THROW(Histogram::decode(bytes(good.substr(0, 20))), Error);
  EXPECT_THROW(Histogram::decode(bytes(good + "x")), Error);
  Rng rng(5);
  for (int i = 0; i < 5000; ++i) {  // damaged input is refused or decodes, without a crash
    std::string damaged = good;
    damaged[rng.below(damaged.size())] = static_cast<char>(rng());
    try {
      EXPECT_LE(Histogram::decode(bytes(damaged)).min(), Histogram::kHighest);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace pyrdma::measure
