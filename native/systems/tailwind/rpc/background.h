// Where the threads of a server run, and how those wait that seldom have work.
#pragma once
#include <algorithm>
#include <cstdint>

#include "env/env.h"

namespace pyrdma::tailwind {

/// The core of thread `number` beside the dispatch thread: the next ones behind it in turns, never
/// its own where the node has another. The caller is the dispatch thread. A node that has begun
/// again, or that has had other threads, may run it on any core. Real nodes have no cores that one
/// can name.
inline std::uint32_t core_beside(Env &env, std::uint32_t number) {
  const std::uint32_t cores = env.cores();
  if (cores == 0) return Env::kNextCore;
  return cores == 1 ? 0 : (env.core() + 1 + number % (cores - 1)) % cores;
}

/// The workers have the first cores beside the dispatch thread. Other threads of a server share a
/// core with the last worker if there is none beside them.
inline std::uint32_t background_core(Env &env, std::uint32_t workers) {
  return core_beside(env, std::min(workers, std::max(env.cores(), 2U) - 2));
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
