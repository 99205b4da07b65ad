// How long a run that comes to rest may stand still.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace pyrdma::fuzz {

/// The time for which nothing happens. A long run, or a slow node, has all of it after each step:
/// otherwise who has much left to do when the faults end would count as stuck.
class Patience {
 public:
  explicit Patience(Time limit) : limit_(limit) {}
  /// Gives all of the time again.
  void renew(Time now) {
    since_ = now;
    work_ = 0;
    has_begun_ = true;
  }
  /// `progress` is a count that grows with each step, and of which a stuck run has a bound. `work`
  /// is what the work that is known to be left takes; the most of it since the last step is waited
  /// for as well.
  bool is_over(Time now, std::uint64_t progress, Time work = 0) {
    if (!has_begun_ || progress != progress_) renew(now);
    progress_ = progress;
    work_ = std::max(work_, work);
    return now > since_ + limit_ + work_;
  }

 private:
  const Time limit_;
  Time since_ = 0, work_ = 0;
  std::uint64_t progress_ = 0;
  bool has_begun_ = false;
};

}  // namespace pyrdma::fuzz
