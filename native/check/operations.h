// Operations: an invocation with its completion, found from the events of a history.
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
  Value input;   // of the invocation
  Value output;  // of an ok completion
  Time call_time = 0;
  Time return_time = kForever;
  std::uint32_t call = 0;       // index of the invocation
  std::uint32_t ret = kNever;   // index of the ok; kNever: the outcome is unknown, it may take
                                // effect at any time after the invocation, or not at all
  std::uint32_t info = kNever;  // index of the event that said so, when there is one
  std::int32_t process = 0;
  std::int32_t node = -1;
  Function f = Function::kRead;

  bool known() const { return ret != kNever; }
};

struct Operations {
  std::vector<Operation> all;         // by invocation; those that failed are left out
  std::vector<std::uint32_t> points;  // indices of white-box events

  // What is wrong with the history: an end without a beginning, two open operations of one process.
  std::string error;
  std::size_t error_event = 0;
};

/// Pairs by process, and by `op` where it is set. An operation that never ended is unknown.
Operations pair_operations(const History& history);

}  // namespace pyrdma::check
