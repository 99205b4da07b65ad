// Where crashes fall among the operations of many runs.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "fuzz/scenario.h"

namespace pyrdma::loco {

class CrashTimes {
 public:
  void add(const fuzz::Outcome& outcome, const fuzz::Options& options) {
    if (outcome.crashed_after.empty()) return;
    ++(outcome.crashed_after.size() == 1 ? single_ : several_);
    ++quarters_[std::min<std::uint64_t>(3, outcome.crashed_after.front() * 4 / options.operations)];
  }
  /// Expects the first crashes in each quarter of the operations, and single and several ones.
  void expect_spread(std::uint64_t seeds) const {
    for (std::size_t i = 0; i < quarters_.size(); ++i)
      EXPECT_GE(quarters_.at(i), seeds / 40) << "quarter " << i;
    EXPECT_GE(single_, seeds / 10);
    EXPECT_GE(several_, seeds / 40);
  }

 private:
  std::array<std::uint64_t, 4> quarters_{};
  std::uint64_t single_ = 0, several_ = 0;  // runs
};

}  // namespace pyrdma::loco
