// What bound calls share: waiting that hears Ctrl-C, and the check that objects belong together.
#pragma once
#include "bindings/objects.h"

namespace pyrdma::bindings {

/// Nanoseconds. Throws Error for what is no duration, naming `what`.
Time duration_of(double seconds, const char* what);

/// Waits for up to `duration` by calls of `wait_until(env, deadline)`, which says whether it is
/// done. Between them other threads get the session and Ctrl-C is heard.
void wait_sliced(Session& session, NodeId node, Time duration,
                 FunctionRef<bool(Env&, Time)> wait_until);

/// Throws Error when `b`, a `what`, is of another node or cluster than `a`.
template <class T, class U>
void same_node(const T& a, const U& b, const char* what) {
  if (a.node() == b.node() && &a.session() == &b.session()) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("the ") + what + " belongs to node " + std::to_string(b.node()) +
                  " or to another cluster; give one of node " + std::to_string(a.node()));
}

}  // namespace pyrdma::bindings
