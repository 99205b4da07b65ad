// The bounds of a session's sending rate. Rates are in bytes per nanosecond, so a rate of 1 is
// 8 Gbit/s. The algorithms of congestion control keep each rate in its bounds.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/units.h"

namespace pyrdma::erpc {

/// The least rate of the public code, 120 Mbit/s.
inline constexpr double kLeastRate = 0.015;

constexpr double rate_of_gbps(double gbps) { return gbps / 8; }

struct RateBounds {
  double least = kLeastRate;
  double most = kLeastRate;

  /// Returns the bounds for a link of `gbps` (Capabilities::link_gbps). A link slower than
  /// `least` has one rate only. Throws Error(kInvalidArgument) for a rate that is not above 0; so
  /// the caller must treat an unknown link rate, 0, before.
  static RateBounds of_link(double gbps, double least = kLeastRate) {
    const RateBounds bounds{std::min(least, rate_of_gbps(gbps)), rate_of_gbps(gbps)};
    bounds.check();
    return bounds;
  }

  /// Throws Error(kInvalidArgument) unless 0 < least <= most and both are finite.
  void check() const {
    if (least > 0 && least <= most && std::isfinite(most)) return;
    throw Error(ErrorCode::kInvalidArgument,
                "the rate of a session is bounded by " + std::to_string(least) + " and " +
                    std::to_string(most) +
                    " bytes per ns; give bounds above 0, the lower one first (is the rate of the "
                    "link known?)");
  }

  double clamp(double rate) const { return std::min(std::max(rate, least), most); }
  /// Returns the time in which a session at its least rate sends `bytes`: the horizon that a
  /// timing wheel needs if it holds at most so many bytes of each session. Rounded up; at most
  /// about a century.
  Time longest(double bytes) const {
    return static_cast<Time>(std::min(std::ceil(bytes / least), 4e18));
  }
};

}  // namespace pyrdma::erpc
