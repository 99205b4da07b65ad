// Locks for protocol code, for real and simulated threads alike. They use Env::poll_until, so that
// contention costs virtual time in the simulated world.
#pragma once
#include <atomic>
#include <cstdint>

#include "env/env.h"

namespace pyrdma {

/// Mutex excludes threads of one node from each other. Not recursive, not fair. unlock() is a
/// release, lock() an acquire.
class Mutex {
 public:
  explicit Mutex(Env& env) : env_(env) {}
  void lock() {
    env_.charge(Cost::kAtomic);
    if (try_acquire()) [[likely]]
      return;
    wait();
    env_.charge(Cost::kLineTransfer);
  }
  bool try_lock() {
    env_.charge(Cost::kAtomic);
    return try_acquire();
  }
  void unlock() {
    held_.store(false, std::memory_order_release);
    env_.notify(watch_);
  }

 private:
  void wait() {
    for (;;) {
      try {
        env_.poll_until([this] { return try_acquire(); }, kForever, &watch_);
        return;
      } catch (...) {
        // The holder unwinds too when its node is killed, and lets go. So a real thread waits on,
        // and destructors may lock.
        if (env_.is_simulated()) throw;
      }
    }
  }
  bool try_acquire() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  Env& env_;
  std::atomic<bool> held_{false};
  Watch watch_;
};

/// set() sets the event once. Every later wait() returns at once and sees all writes before set().
class Event {
 public:
  explicit Event(Env& env) : env_(env) {}
  void set() {
    is_set_.store(true, std::memory_order_release);
    env_.notify(watch_);
  }
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  /// Returns false when `deadline` passed first.
  bool wait(Time deadline = kForever) {
    return env_.poll_until([this] { return is_set(); }, deadline, &watch_);
  }

 private:
  Env& env_;
  std::atomic<bool> is_set_{false};
  Watch watch_;
};

}  // namespace pyrdma
