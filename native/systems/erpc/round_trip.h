// The retransmission timeout of a session by its measured round trips. Not in the paper, whose
// timeout of 5 ms is that of the fullest switch (section 5.2.3): a lost packet then costs a
// thousand round trips of an idle network. Source: RFC 6298, sections 2, 3 and 5.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace pyrdma::erpc {

/// Times in ns. Without a sample the timeout is the longest one.
class RoundTrip {
 public:
  /// Takes a measured time of at least 0, of a packet that was sent once.
  void take(Time sample) {
    kept_ = 0;
    if (mean_ < 0) {
      mean_ = sample;
      deviation_ = sample / 2;
    } else {
      const Time error = sample - mean_;
      deviation_ += ((error < 0 ? -error : error) - deviation_) / 4;
      mean_ += error / 8;
    }
  }
  /// An answer has come after `copies`, and says nothing of the round trip. The timeout stays as
  /// long as it is until the next sample: otherwise a timeout below the round trip would never give
  /// one.
  void keep(std::uint32_t copies) { kept_ = std::max(kept_, copies); }
  /// Returns the timeout after `copies` that were sent again without an answer: each doubles it.
  Time timeout(std::uint32_t copies, Time least, Time longest) const {
    constexpr std::uint32_t kMostDoublings = 16;
    if (mean_ < 0) return longest;
    const Time first = std::max(mean_ + 4 * deviation_, least);
    if (first >= longest) return longest;
    return std::min(first << std::min(std::max(copies, kept_), kMostDoublings), longest);
  }

 private:
  Time mean_ = -1, deviation_ = 0;
  std::uint32_t kept_ = 0;  // doublings
};

}  // namespace pyrdma::erpc
