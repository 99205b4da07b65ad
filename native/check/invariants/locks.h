// Locks: at no moment do two clients certainly hold one lock, and nobody unlocks what he does not
// hold. A client certainly holds it from the end of its lock to the beginning of its unlock. Where
// locks return tickets (whole numbers), they are granted one after the other, none left out.
// One pass.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// Operations lock and unlock; owners as the model `lock` has them, one lock per key. The first
/// ticket seen may be any.
MaybeViolation check_locks(const History& history, const Operations& operations);

}  // namespace pyrdma::check
