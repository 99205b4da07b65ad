// Finds the smallest part of a history that cannot be explained.
#pragma once
#include <vector>

#include "check/models.h"
#include "check/verdict.h"

namespace pyrdma::check {

struct Window {
  std::vector<WindowOperation> operations;
  bool from_anywhere = false;  // impossible for every earlier content of the object
};

/// Takes the operations of one object that are not linearizable, and weakens them step by step as
/// long as they stay impossible: it forgets the later operations, the operations that were over
/// before (with any state to begin from), and the ends of single operations. Each step allows more
/// than before, so the remaining operations are a reason why the whole is impossible. `ends` are
/// event indices at which the search of the whole failed, ascending; up to the last one, the
/// history is impossible. The effort is linear in the number of operations.
Window smallest_window(ModelKind kind, const History& history, const std::vector<Operation>& ops,
                       const std::vector<std::uint32_t>& ends);

}  // namespace pyrdma::check
