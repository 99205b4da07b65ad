// A doorbell register that several queue pairs share.
#pragma once
#include <atomic>
#include <cstdint>

#include "env/env.h"

namespace pyrdma::measure::verbs_load {

/// Doorbell lets one thread at a time post through a register, as a driver's spin lock does.
class Doorbell {
 public:
  /// Calls `post` with the lock held. The line of a spin lock visits each waiter before the next
  /// owner runs on, so the waiters lengthen every handoff.
  template <class Post>
  void ring(Env& env, Post&& post) {
    env.charge(Cost::kAtomic);
    env.sleep_until(0);  // simulated threads come in the order of their clocks
    if (!try_acquire()) {
      waiting_.fetch_add(1, std::memory_order_relaxed);
      env.poll_until([this] { return try_acquire(); }, kForever, &watch_);
      env.charge(Cost::kLineTransfer, waiting_.fetch_sub(1, std::memory_order_relaxed));
    }
    post();
    env.sleep_until(0);  // the lock is held for as long as the post takes
    held_.store(false, std::memory_order_release);
    env.notify(watch_);
  }

 private:
  bool try_acquire() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  std::atomic<bool> held_{false};
  std::atomic<std::uint32_t> waiting_{0};
  Watch watch_;
};

}  // namespace pyrdma::measure::verbs_load
