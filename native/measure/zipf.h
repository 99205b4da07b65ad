// Zipf draws ranks by rejection-inversion (Hoermann and Derflinger, "Rejection-inversion to
// generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996), in constant time
// and space for any number of elements.
#pragma once
#include <cstdint>

#include "base/rng.h"

namespace pyrdma::measure {

/// Draws rank k of 0..elements-1 with probability proportional to 1/(k+1)^exponent. Any thread may
/// call it.
class Zipf {
 public:
  /// Throws Error(kInvalidArgument) for no elements or a negative or infinite exponent. Exponent 0
  /// is uniform; YCSB's skew is 0.99.
  Zipf(std::uint64_t elements, double exponent);
  std::uint64_t operator()(Rng& rng) const;
  std::uint64_t elements() const { return elements_; }

 private:
  double integral(double x) const;
  double inverse_integral(double y) const;
  double density(double x) const;

  std::uint64_t elements_;
  double exponent_;
  double integral_first_;  // lower end of the inverted area: the whole bar of element 1
  double integral_last_;   // its upper end
  double shortcut_;        // a point this near above an integer is always accepted
};

}  // namespace pyrdma::measure
