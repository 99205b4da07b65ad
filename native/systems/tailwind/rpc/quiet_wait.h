// The wait of a thread that seldom has work.
#pragma once
#include <algorithm>

#include "env/env.h"

namespace pyrdma::tailwind {

/// Waits like Env::poll_until. Once the wait is longer than `after`, the thread
/// sleeps for `sleep` between two looks: it leaves its core to others, and
/// ready() is found up to `sleep` later.
template <class Ready>
bool wait_quietly(Env &env, Ready &&ready, Time deadline, Watch &watch, Time after, Time sleep) {
  if (env.poll_until(ready, std::min(deadline, env.now() + after), &watch)) return true;
  const auto looks = [&] {
    if (ready()) return true;
    env.sleep_until(std::min(deadline, env.now() + sleep));
    return ready() || env.now() >= deadline;
  };
  return env.poll_until(looks, deadline, &watch) && ready();
}

}  // namespace pyrdma::tailwind
