// A meeting of all threads of all nodes of a run, while their event loops go on.
#pragma once
#include <atomic>
#include <string>

#include "base/error.h"
#include "measure/params.h"
#include "systems/erpc/meeting.h"

namespace pyrdma::erpc {

/// Threads of a node meet here; one of them meets the other nodes. Uses the parameter
/// `wait_timeout_ms` and the key `meeting` of the run.
class NodeMeeting {
 public:
  NodeMeeting(Env& env, const measure::Params& params, std::uint32_t threads)
      : meeting_(env, params.key("meeting")),
        threads_(threads),
        timeout_(params.integer("wait_timeout_ms") * kMillisecond) {}

  /// Runs the event loop until all threads of all nodes have called this with `round`, which counts
  /// from 1. Throws Error(kTimeout), naming what did not come.
  void wait(Endpoint& endpoint, std::uint32_t thread, std::uint32_t round) {
    arrived_.fetch_add(1, std::memory_order_acq_rel);
    if (thread == 0) {
      await(endpoint, arrived_, round * threads_);
      meeting_.wait(endpoint, timeout_);
      released_.store(round, std::memory_order_release);
    } else {
      await(endpoint, released_, round);
    }
  }

 private:
  void await(Endpoint& endpoint, const std::atomic<std::uint32_t>& count, std::uint32_t wanted) {
    const Time deadline = endpoint.env().now() + timeout_;
    while (count.load(std::memory_order_acquire) < wanted) {
      endpoint.run_for(20 * kMicrosecond);
      if (endpoint.env().now() < deadline) continue;
      throw Error(ErrorCode::kTimeout, "a thread of node " + std::to_string(endpoint.env().node()) +
                                           " did not come: " + endpoint.describe_pending());
    }
  }
  Meeting meeting_;
  const std::uint32_t threads_;
  const Time timeout_;
  std::atomic<std::uint32_t> arrived_{0}, released_{0};
};

}  // namespace pyrdma::erpc
