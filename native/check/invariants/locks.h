// A lock: two clients never certainly hold it at once, and no client unlocks a lock that it does
// not hold. A client certainly holds it from the end of its lock to the beginning of its unlock.
// Locks that return tickets (whole numbers) grant them one after the other, none left out. One
// pass.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// The operations are lock and unlock, with the owners of the model `lock`; one lock per key. The
/// first ticket may be any.
MaybeViolation check_locks(const History& history, const Operations& operations);

}  // namespace pyrdma::check
