// A barrier: no client leaves a round before all have entered it. Per round, the last entry is thus
// not after the first leave. One pass.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// The operation is barrier, invoked to enter and ok to leave, with the value round, or [round,
/// parties]; one barrier per key. Without parties, all clients that ever enter a round belong to
/// it. With parties, a leave before so many have entered is a violation too, and so is one entry
/// too many.
MaybeViolation check_barriers(const History& history, const Operations& operations);

}  // namespace pyrdma::check
