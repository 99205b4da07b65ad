// A lock for the threads of one node. Many readers or one writer hold it. A waiting writer keeps
// new readers out, so that it gets its turn.
#pragma once
#include <atomic>
#include <cstdint>

#include "env/env.h"

namespace pyrdma::loco {

/// Not recursive. lock_shared()/unlock_shared() and lock()/unlock(), as in the standard library.
class RwLock {
 public:
  explicit RwLock(Env& env) : env_(env) {}

  void lock_shared() {
    env_.charge(Cost::kAtomic);
    if (try_shared()) [[likely]]
      return;
    env_.reached("store/index locked");
    wait([this] { return try_shared(); });
  }
  void unlock_shared() {
    env_.charge(Cost::kAtomic);
    if (state_.fetch_sub(1, std::memory_order_release) == (kWaiting | 1)) env_.notify(watch_);
  }
  void lock() {
    env_.charge(Cost::kAtomic);
    if (try_exclusive()) return;
    wait([this] {
      state_.fetch_or(kWaiting, std::memory_order_relaxed);
      return try_exclusive();
    });
  }
  void unlock() {
    env_.charge(Cost::kAtomic);
    state_.fetch_and(~kWriter, std::memory_order_release);
    env_.notify(watch_);
  }

 private:
  static constexpr std::uint32_t kWriter = 1U << 31;
  static constexpr std::uint32_t kWaiting = 1U << 30;

  template <class Take>
  void wait(Take&& take) {
    env_.poll_until([&] { return take(); }, kForever, &watch_);
    env_.charge(Cost::kLineTransfer);
  }
  bool try_shared() {
    if ((state_.fetch_add(1, std::memory_order_acquire) & (kWriter | kWaiting)) == 0) return true;
    unlock_shared();
    return false;
  }
  bool try_exclusive() {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    // A writer that takes the lock clears the mark; another waiting writer sets it again.
    return (state & ~kWaiting) == 0 &&
           state_.compare_exchange_strong(state, kWriter, std::memory_order_acquire);
  }

  Env& env_;
  std::atomic<std::uint32_t> state_{0};  // kWriter, kWaiting, and the number of readers
  Watch watch_;
};

}  // namespace pyrdma::loco
