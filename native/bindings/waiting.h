// The common parts of bound calls: waiting that Ctrl-C can interrupt, and the check that objects
// belong together.
#pragma once
#include "bindings/objects.h"

namespace pyrdma::bindings {

/// Converts seconds to nanoseconds. Throws Error, naming `what`, if the value is not a duration.
Time duration_of(double seconds, const char* what);

/// Waits for up to `duration` by calls of `wait_until(env, deadline)`, which returns true when the
/// wait is done. Between the calls other threads get the session, and Ctrl-C interrupts the wait.
void wait_sliced(Session& session, NodeId node, Time duration,
                 FunctionRef<bool(Env&, Time)> wait_until);

/// Throws Error when `b`, described by `what`, belongs to another node or cluster than `a`.
template <class T, class U>
void same_node(const T& a, const U& b, const char* what) {
  if (a.node() == b.node() && &a.session() == &b.session()) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("the ") + what + " belongs to node " + std::to_string(b.node()) +
                  " or to another cluster; give one of node " + std::to_string(a.node()));
}

}  // namespace pyrdma::bindings
