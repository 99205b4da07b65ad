#include "fabric/shm/lock.h"

#include <sched.h>

#include <chrono>

namespace pyrdma::fabric::shm {

bool lock_contended(SharedLock& lock, std::uint32_t self, const SessionBlock& session,
                    Time patience) {
  using Clock = std::chrono::steady_clock;  // not the session's clock, which a peer could set
  const auto give_up = Clock::now() + std::chrono::nanoseconds(patience);
  for (std::uint32_t turn = 1;; ++turn) {
    std::uint32_t holder = relaxed(lock.holder);
    if (holder == 0) {
      if (lock.holder.compare_exchange_weak(holder, self, std::memory_order_acquire)) return true;
      continue;
    }
    if (turn % 64 != 0 && patience != 0) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      continue;
    }
    const std::uint32_t node = (holder & 0x1ff) - 1;
    const bool orphaned =
        node >= session.node_count() || session.status(node).has_ended(holder >> 9);
    if (orphaned && lock.holder.compare_exchange_strong(holder, self, std::memory_order_acquire)) {
      return true;
    }
    if (Clock::now() >= give_up) return false;
    sched_yield();  // the holder may have lost its core
  }
}

}  // namespace pyrdma::fabric::shm
