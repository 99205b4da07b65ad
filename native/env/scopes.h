// The steps of the environment itself; see scope.h.
#pragma once
#include "env/scope.h"

namespace pyrdma::env_scope {

/// One turn of a poll loop whose predicate is a plain test: a load, a test, a call through a
/// reference, the loop. Counted in the compiled code of Event::wait by hand.
inline constexpr CpuScope poll_turn{"env/poll_turn", 20};

}  // namespace pyrdma::env_scope
