#include "bindings/waiting.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace pyrdma::bindings {

Time duration_of(double seconds, const char* what) {
  if (std::isfinite(seconds) && seconds >= 0 && seconds <= 1e9)
    return static_cast<Time>(seconds * 1e9);
  throw Error(ErrorCode::kInvalidArgument,
              std::string(what) + " is " + std::to_string(seconds) + " s; give 0 to 1e9");
}

// Virtual time passes quickly, so the slices grow in a simulation.
void wait_sliced(Session& session, NodeId node, Time duration,
                 FunctionRef<bool(Env&, Time)> wait_until) {
  Time slice = 20 * kMillisecond;
  Time deadline = -1;
  for (;;) {
    const bool over = session.call([&] {
      Env& env = session.env(node);
      const Time now = env.now();
      if (deadline < 0) deadline = now + duration;
      return wait_until(env, std::min(deadline, now + slice)) || now + slice >= deadline;
    });
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (over) return;
    if (session.simulated()) slice *= 2;
  }
}

}  // namespace pyrdma::bindings
