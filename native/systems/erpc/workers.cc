#include "systems/erpc/workers.h"

#include <mutex>
#include <string>
#include <utility>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

Workers::Workers(Endpoint& endpoint, std::uint32_t count)
    : endpoint_(endpoint), env_(endpoint.env()), mutex_(env_) {
  for (std::uint32_t i = 0; i < count; ++i)
    threads_.push_back(env_.spawn("erpc/worker/" + std::to_string(i), [this] { work(); }));
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(watch_);
  threads_.clear();
}

void Workers::hand_over(const RequestHandle& handle) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(handle);
    requests_.back().is_worker_ = true;
  }
  waiting_.fetch_add(1, std::memory_order_release);
  env_.notify(watch_);
}

std::optional<RequestHandle> Workers::next() {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) return std::nullopt;
  RequestHandle handle = requests_.front();
  requests_.pop_front();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return handle;
}

void Workers::work() {
  const auto is_called = [this] {
    return waiting_.load(std::memory_order_acquire) != 0 ||
           is_stopping_.load(std::memory_order_acquire);
  };
  while (true) {
    env_.poll_until(is_called, kForever, &watch_);
    if (is_stopping_.load(std::memory_order_acquire)) return;
    std::optional<RequestHandle> handle = next();
    if (!handle) continue;
    try {
      endpoint_.handlers_[handle->type_].handler(*handle);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = error;
      answers_waiting_.store(true, std::memory_order_release);
    }
  }
}

void Workers::give_back(const RequestHandle& handle) {
  {
    const std::lock_guard lock(mutex_);
    answers_.push_back(handle);
  }
  answers_waiting_.store(true, std::memory_order_release);
  env_.notify(endpoint_.transport_.watch());
}

std::vector<RequestHandle> Workers::take_answers() {
  answers_waiting_.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
  return std::exchange(answers_, {});
}

}  // namespace pyrdma::erpc
