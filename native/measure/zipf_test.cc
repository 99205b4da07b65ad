#include "measure/zipf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace pyrdma::measure {
namespace {

TEST(Zipf, FrequenciesFollowThePowerLaw) {
  for (const double exponent : {0.0, 0.5, 0.99, 1.0, 1.5}) {
    constexpr std::uint64_t kElements = 20;
    constexpr int kDraws = 200'000;
    const Zipf zipf(kElements, exponent);
    Rng rng(7);
    std::vector<int> seen(kElements);
    for (int i = 0; i < kDraws; ++i) ++seen.at(zipf(rng));
    double norm = 0;
    for (std::uint64_t k = 1; k <= kElements; ++k)
      norm += std::pow(static_cast<double>(k), -exponent);
    double chi_square = 0;
    for (std::uint64_t k = 0; k < kElements; ++k) {
      const double expected = kDraws * std::pow(static_cast<double>(k + 1), -exponent) / norm;
      chi_square += (seen[k] - expected) * (seen[k] - expected) / expected;
    }
    EXPECT_LT(chi_square, 43.8) << exponent;  // 19 degrees of freedom, 0.1 %
  }
}

TEST(Zipf, OneElementAndVeryMany) {
  Rng rng(1);
  EXPECT_EQ(Zipf(1, 0.99)(rng), 0U);
  const Zipf large(std::uint64_t{1} << 40, 0.99);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(large(rng), large.elements());
}

TEST(Zipf, RefusesWhatHasNoDistribution) {
  EXPECT_THROW(Zipf(0, 1), Error);
  EXPECT_THROW(Zipf(5, -1), Error);
  EXPECT_THROW(Zipf(5, std::nan("")), Error);
}

}  // namespace
}  // namespace pyrdma::measure
