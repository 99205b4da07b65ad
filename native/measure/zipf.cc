#include "measure/zipf.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace pyrdma::measure {

namespace {

// log(1+x)/x and (exp(x)-1)/x, continued through x = 0 (where the exponent is 1, the integral is a
// logarithm).
double log1p_over(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }
double expm1_over(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }

}  // namespace

Zipf::Zipf(std::uint64_t elements, double exponent) : elements_(elements), exponent_(exponent) {
  if (elements == 0)
    throw Error(ErrorCode::kInvalidArgument, "zipf: elements is 0; give at least 1");
  if (!(exponent >= 0) || !std::isfinite(exponent)) {
    throw Error(ErrorCode::kInvalidArgument, "zipf: exponent is " + std::to_string(exponent) +
                                                 "; give a finite number of at least 0");
  }
  integral_first_ = integral(1.5) - 1;
  integral_last_ = integral(static_cast<double>(elements) + 0.5);
  shortcut_ = 2 - inverse_integral(integral(2.5) - density(2));
}

std::uint64_t Zipf::operator()(Rng& rng) const {
  // The bars of height density(k) over [k - 1/2, k + 1/2] lie below the hat, which is the density
  // itself between the integers. The loop inverts the hat's area and rejects points above the bar
  // (figure 2 of the paper).
  for (;;) {
    const double area = integral_last_ + rng.uniform() * (integral_first_ - integral_last_);
    const double x = inverse_integral(area);
    double k = std::floor(x + 0.5);
    if (k < 1) k = 1;
    if (k > static_cast<double>(elements_)) k = static_cast<double>(elements_);
    if (k - x <= shortcut_ || area >= integral(k + 0.5) - density(k))
      return static_cast<std::uint64_t>(k) - 1;
  }
}

double Zipf::density(double x) const { return std::exp(-exponent_ * std::log(x)); }

double Zipf::integral(double x) const {
  const double log_x = std::log(x);
  return expm1_over((1 - exponent_) * log_x) * log_x;
}

double Zipf::inverse_integral(double y) const {
  // Rounding may bring the argument of the logarithm below zero at the very end of the range.
  const double t = std::max(-1.0, y * (1 - exponent_));
  return std::exp(log1p_over(t) * y);
}

}  // namespace pyrdma::measure
