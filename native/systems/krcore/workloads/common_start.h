// All clients of a run begin at one time: a rate of clients that measure one after the other would
// be a sum of rates without load.
#pragma once
#include <atomic>
#include <cstdint>

#include "measure/params.h"
#include "runtime/exchange.h"
#include "systems/krcore/workloads/options.h"

namespace pyrdma::krcore {

/// One on each node of the run.
class CommonStart {
 public:
  /// `threads`: clients of this node. A node without clients calls meet() itself.
  CommonStart(Env& env, const measure::Params& params, std::uint32_t threads)
      : env_(env), params_(params), threads_(threads) {}

  /// Blocks client `index` of this node until all clients of all nodes have called it, and then
  /// until the common begin.
  void wait(std::uint32_t index) {
    ready_.fetch_add(1, std::memory_order_acq_rel);
    if (index == 0) {
      await([this] { return ready_.load(std::memory_order_acquire) >= threads_; });
      meet();
      has_met_.store(true, std::memory_order_release);
    } else {
      await([this] { return has_met_.load(std::memory_order_acquire); });
    }
    env_.sleep_until(begin_);
  }
  void meet() {
    runtime::node_barrier(env_, params_.key("krcore/ready"), 600 * kSecond);
    begin_ = common_begin(env_, params_);
  }

 private:
  // Looks seldom, since connections may still be made on these cores.
  template <class Ready>
  void await(const Ready& ready) {
    while (!ready()) env_.sleep_until(env_.now() + 10 * kMicrosecond);
  }
  Env& env_;
  const measure::Params& params_;
  const std::uint32_t threads_;
  std::atomic<std::uint32_t> ready_{0};
  std::atomic<bool> has_met_{false};
  Time begin_ = 0;
};

}  // namespace pyrdma::krcore
