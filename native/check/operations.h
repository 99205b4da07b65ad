// Operations: each is an invocation with its completion, paired from the events of a history.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check/history.h"

namespace pyrdma::check {

inline constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

struct Operation {
  Value key;
  Value input;   // the invocation's value
  Value output;  // the value of an ok completion
  Time call_time = 0;
  Time return_time = kForever;
  std::uint32_t call = 0;  // index of the invocation
  // Index of the ok. kNever: the outcome is unknown; the operation may take effect at any time
  // after the invocation, or never.
  std::uint32_t ret = kNever;
  std::uint32_t info = kNever;  // index of the event that said so, if any
  std::int32_t process = 0;
  std::int32_t node = -1;
  Function f = Function::kRead;

  bool known() const { return ret != kNever; }
};

struct Operations {
  std::vector<Operation> all;         // by invocation; failed operations are left out
  std::vector<std::uint32_t> points;  // indices of white-box events

  // Says why the history is malformed: an end without a beginning, or two open operations of a
  // process.
  std::string error;
  std::size_t error_event = 0;
};

/// Pairs by process, and by `op` where it is set. An operation without an end has an unknown
/// outcome.
Operations pair_operations(const History& history);

}  // namespace pyrdma::check
