// The smallest part of a history that cannot be explained.
#pragma once
#include <vector>

#include "check/models.h"
#include "check/verdict.h"

namespace pyrdma::check {

struct Window {
  std::vector<WindowOperation> operations;
  bool from_anywhere = false;  // it is impossible whatever the object held before
};

/// Takes the operations of one object that are not linearizable, and weakens them step by step as
/// long as they stay impossible: forgets what comes after, what was over before (with any state to
/// begin from), and the ends of single operations. Each step allows more than before, so what is
/// left is a reason why the whole is impossible. `furthest`: Search::furthest() of the whole.
Window smallest_window(ModelKind kind, const History& history, const std::vector<Operation>& ops,
                       std::uint32_t furthest);

}  // namespace pyrdma::check
