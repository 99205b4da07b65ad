// A lock in shared memory, held over one batch of requests. It survives its holder: the lock of a
// dead node is taken over, and a holder that does not let go within kLockTimeout is taken for
// unreachable.
#pragma once
#include "fabric/shm/layout.h"
#include "fabric/shm/session_block.h"

namespace pyrdma::fabric::shm {

inline constexpr Time kLockTimeout = 4 * kSecond;

/// Node and incarnation: the lock of a process that was killed is not taken for its successor's.
inline std::uint32_t holder_word(NodeId node, std::uint32_t incarnation) {
  return incarnation << 9 | (node + 1);
}
static_assert(kMaxNodes < (1U << 9) && kMaxIncarnation < (1U << 23));

/// The rest of lock(): waits, takes over, gives up.
[[gnu::cold, gnu::noinline]] bool lock_contended(SharedLock& lock, std::uint32_t self,
                                                 const SessionBlock& session);

/// `self` is the caller's holder_word(). False when the holder did not let go in time.
inline bool lock(SharedLock& lock, std::uint32_t self, const SessionBlock& session) {
  std::uint32_t nobody = 0;
  if (lock.holder.compare_exchange_strong(nobody, self, std::memory_order_acquire,
                                          std::memory_order_relaxed)) [[likely]] {
    return true;
  }
  return lock_contended(lock, self, session);
}

inline void unlock(SharedLock& lock) { lock.holder.store(0, std::memory_order_release); }

}  // namespace pyrdma::fabric::shm
