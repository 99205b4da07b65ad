#include "check/invariants/violation.h"

#include <algorithm>

namespace pyrdma::check {

Violation violation_of(std::string text, std::vector<Operation> operations) {
  Violation found{std::move(text), {}, std::move(operations)};
  for (const Operation& op : found.operations) {
    found.events.push_back(op.call);
    if (op.known()) found.events.push_back(op.ret);
  }
  std::ranges::sort(found.events);
  return found;
}

Violation violation_at(std::string text, std::vector<std::uint32_t> events) {
  std::ranges::sort(events);
  return {std::move(text), std::move(events), {}};
}

}  // namespace pyrdma::check
