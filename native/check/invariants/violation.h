// Violation is the finding of a checker without search.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check/operations.h"

namespace pyrdma::check {

struct Violation {
  std::string text;                   // names values, processes and events
  std::vector<std::uint32_t> events;  // events of the violation
  std::vector<Operation> operations;  // operations of the violation, where it has any
};
using MaybeViolation = std::optional<Violation>;

/// Makes a violation of these operations, or of these events.
Violation violation_of(std::string text, std::vector<Operation> operations);
Violation violation_at(std::string text, std::vector<std::uint32_t> events);

}  // namespace pyrdma::check
