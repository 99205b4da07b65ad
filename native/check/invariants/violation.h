// What a checker without search found.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check/operations.h"

namespace pyrdma::check {

struct Violation {
  std::string text;                   // names values, processes and events
  std::vector<std::uint32_t> events;  // that it is about
  std::vector<Operation> operations;  // that it is about, where there are any
};
using MaybeViolation = std::optional<Violation>;

/// The violation that these operations are, one way or other.
Violation violation_of(std::string text, std::vector<Operation> operations);
Violation violation_at(std::string text, std::vector<std::uint32_t> events);

}  // namespace pyrdma::check
