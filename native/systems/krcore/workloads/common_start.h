// All clients of a run begin at one time: a rate of clients that measure one after the other would
// be a sum of rates without load.
#pragma once
#include <atomic>
#include <cstdint>

#include "measure/interval.h"
#include "measure/params.h"
#include "runtime/exchange.h"
#include "systems/krcore/workloads/options.h"

namespace pyrdma::krcore {

/// One on each node of the run.
class CommonStart {
 public:
  /// `threads`: clients of this node.
  CommonStart(Env& env, const measure::Params& params, std::uint32_t threads)
      : env_(env), params_(params), threads_(threads) {}

  /// Runs client(i) on each thread of this node, or only meets the other nodes if it has none.
  /// Rethrows the error of a client, for which the others do not wait.
  template <class Client>
  void run(const Client& client) {
    if (threads_ == 0) return meet();
    measure::on_threads(env_, threads_, [&](std::uint32_t i) {
      try {
        client(i);
      } catch (...) {
        has_failed_.store(true, std::memory_order_release);
        env_.notify(watch_);
        throw;
      }
    });
  }
  /// Blocks client `index` of this node until all clients of all nodes have called it, and then
  /// until the common begin. Returns false when a client of this node has failed before.
  [[nodiscard]] bool wait(std::uint32_t index) {
    ready_.fetch_add(1, std::memory_order_acq_rel);
    env_.notify(watch_);
    if (index == 0) {
      if (!await([this] { return ready_.load(std::memory_order_acquire) >= threads_; }))
        return false;
      meet();
      has_met_.store(true, std::memory_order_release);
      env_.notify(watch_);
    } else if (!await([this] { return has_met_.load(std::memory_order_acquire); })) {
      return false;
    }
    env_.sleep_until(begin_);
    return true;
  }
  /// Waits until all nodes have met. A node without clients calls it itself.
  void meet() {
    runtime::node_barrier(env_, params_.key("krcore/ready"), 600 * kSecond);
    begin_ = common_begin(env_, params_);
  }

 private:
  template <class Ready>
  bool await(const Ready& ready) {
    const auto failed = [this] { return has_failed_.load(std::memory_order_acquire); };
    env_.poll_until([&] { return failed() || ready(); }, kForever, &watch_);
    return !failed();
  }
  Env& env_;
  const measure::Params& params_;
  const std::uint32_t threads_;
  std::atomic<std::uint32_t> ready_{0};
  std::atomic<bool> has_met_{false}, has_failed_{false};
  Watch watch_;
  Time begin_ = 0;
};

}  // namespace pyrdma::krcore
