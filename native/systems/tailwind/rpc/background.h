// Threads that seldom have work: where they run and how they wait.
#pragma once
#include <algorithm>
#include <cstdint>

#include "env/env.h"

namespace pyrdma::tailwind {

/// The dispatch thread has core 0 and the workers the next ones. Other threads of a server share a
/// core with the last worker if there is none beside them, never with the dispatch thread.
inline std::uint32_t background_core(const Env &env, std::uint32_t workers) {
  return env.cores() == 0 ? Env::kNextCore : std::min(workers + 1, env.cores() - 1);
}

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
