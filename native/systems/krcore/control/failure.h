// What ends a background thread of a service, and how its users learn of it.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "env/sync.h"

namespace pyrdma::krcore {

/// The first error that has ended a background thread, or a completion queue. Without one of them a
/// service cannot go on, so every call of its users throws this error.
class Failure {
 public:
  explicit Failure(Env& env) : env_(env), mutex_(env) {}

  /// Starts a thread. This object outlives it.
  std::unique_ptr<Thread> spawn(const std::string& name, std::function<void()> body) {
    return env_.spawn(name, [this, name, body = std::move(body)] {
      try {
        body();
      } catch (const Error& error) {
        keep(name, error);
      } catch (const std::exception& error) {
        keep(name, Error(ErrorCode::kInternal, error.what()));
      }
    });
  }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// Throws the error. Costs a load where there is none.
  void check() {
    if (has_failed_.load(std::memory_order_relaxed)) [[unlikely]]
      throw_error();
  }

  /// Keeps an error after which the service cannot go on. Never throws, for those who hold locks.
  void keep(Error error) {
    const std::lock_guard<Mutex> lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    has_failed_.store(true, std::memory_order_release);
  }

 private:
  void keep(const std::string& thread, const Error& error) {
    keep(Error(error.code(),
               "krcore: thread '" + thread + "' of node " + std::to_string(env_.node()) +
                   " ended with an error: " + error.what(),
               false)
             .blaming(error.nodes()));
  }
  [[noreturn, gnu::noinline]] void throw_error() {
    const std::lock_guard<Mutex> lock(mutex_);
    throw Error(*error_);
  }
  Env& env_;
  Mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> has_failed_{false};
};

/// Carries out a piece of background work. What a peer has sent, or a device that is full, may make
/// it fail: that ends the piece alone. Returns whether it succeeded.
template <class Work>
bool attempt(Env& env, Work&& work) {
  try {
    work();
    return true;
  } catch (const Error&) {
    env.reached("krcore/job_failed");
    return false;
  }
}

}  // namespace pyrdma::krcore
