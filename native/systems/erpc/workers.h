// Worker threads for handlers that take long (eRPC, section 3.2). The dispatch thread hands
// requests over, and sends the answers that come back.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "env/env.h"
#include "env/sync.h"
#include "systems/erpc/handler.h"

namespace pyrdma::erpc {

class Workers {
 public:
  Workers(Endpoint& endpoint, std::uint32_t count);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Ends the threads after the handlers that run now, which may still call give_back().
  void stop();
  /// Dispatch thread: a worker runs the handler of this request.
  void hand_over(const RequestHandle& handle);
  /// Any thread: the request is answered, for the dispatch thread to send.
  void give_back(const RequestHandle& handle);
  /// Dispatch thread: returns the answered requests. Rethrows the error of a handler.
  std::vector<RequestHandle> take_answers();
  bool has_answers() const { return answers_waiting_.load(std::memory_order_acquire); }

 private:
  void work();
  std::optional<RequestHandle> next();

  Endpoint& endpoint_;
  Env& env_;
  Mutex mutex_;
  std::deque<RequestHandle> requests_;
  std::vector<RequestHandle> answers_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<bool> answers_waiting_{false}, is_stopping_{false};
  std::optional<Error> failure_;
  Watch watch_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace pyrdma::erpc
