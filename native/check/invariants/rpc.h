// At-most-once calls: a handler runs at most once per (client, session, request), only for a call,
// and exactly once for an answered call. One pass.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// The operation is rpc (of the client); the points are exec (of the server). Both have the value
/// [client, session, request]. An answered call needs an exec only in a history with such points.
MaybeViolation check_rpc(const History& history, const Operations& operations);

}  // namespace pyrdma::check
