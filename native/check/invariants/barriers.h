// Barriers: nobody leaves a round before all have entered it, so that per round the last entry is
// not after the first leave. One pass.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// Operation barrier, invoked to enter and ok to leave, with the value round, or [round, parties];
/// one barrier per key. Without parties, all that ever enter a round belong to it. With parties,
/// one that leaves before so many have entered is a violation too, and so is one entry too many.
MaybeViolation check_barriers(const History& history, const Operations& operations);

}  // namespace pyrdma::check
