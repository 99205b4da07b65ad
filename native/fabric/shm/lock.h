// A lock in shared memory, held over one batch of requests. It survives its holder: a node takes
// over the lock of a dead holder. A holder may also be stopped, so nobody waits for long: a request
// that does not get the lock is tried again later, and fails after kLockTimeout.
#pragma once
#include "fabric/shm/layout.h"
#include "fabric/shm/session_block.h"

namespace pyrdma::fabric::shm {

inline constexpr Time kLockTimeout = 4 * kSecond;
/// The longest wait of a post. A holder that runs leaves much sooner.
inline constexpr Time kPatience = kMillisecond;
/// The longest wait of a change of state, which a holder that runs but has lost its core outlasts
/// seldom.
inline constexpr Time kControlPatience = 50 * kMillisecond;

/// Holds node and incarnation, so that the lock of a killed process is not taken for its
/// successor's.
inline std::uint32_t holder_word(NodeId node, std::uint32_t incarnation) {
  return incarnation << 9 | (node + 1);
}
static_assert(kMaxNodes < (1U << 9) && kMaxIncarnation < (1U << 23));

inline bool is_held_by(std::uint32_t holder, NodeId node) { return (holder & 0x1ff) == node + 1; }

/// Does the slow part of lock(): waits, takes over, gives up.
[[gnu::cold, gnu::noinline]] bool lock_contended(SharedLock& lock, std::uint32_t self,
                                                 const SessionBlock& session, Time patience);

/// `self` is the caller's holder_word(). Returns false when a holder that lives kept the lock for
/// longer than `patience`.
inline bool lock(SharedLock& lock, std::uint32_t self, const SessionBlock& session,
                 Time patience = kLockTimeout) {
  std::uint32_t nobody = 0;
  if (lock.holder.compare_exchange_strong(nobody, self, std::memory_order_acquire,
                                          std::memory_order_relaxed)) [[likely]] {
    return true;
  }
  return lock_contended(lock, self, session, patience);
}

inline void unlock(SharedLock& lock) { lock.holder.store(0, std::memory_order_release); }

}  // namespace pyrdma::fabric::shm
