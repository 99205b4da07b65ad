// At-most-once calls: a handler runs at most once per (client, session, request), only for what was
// called, and exactly once for a call that was answered. One pass.
#pragma once
#include "check/invariants/violation.h"

namespace pyrdma::check {

/// Operation rpc (of the client) and points exec (of the server), with the value [client, session,
/// request]. Answered calls need an exec only in histories that have any.
MaybeViolation check_rpc(const History& history, const Operations& operations);

}  // namespace pyrdma::check
