// A resource of the simulated NIC that serves one job after another: an engine, a pipeline, a link.
#pragma once
#include <algorithm>
#include <cstdint>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

/// Serves jobs in the order of the calls. A job that is ready only later takes its share of the
/// resource now, and other jobs may overtake it while it waits. So a job that waits elsewhere
/// leaves no gap.
class Server {
 public:
  /// Serves a job that is ready at `ready` and takes `time`. Returns the time at which it is done.
  /// A caller whose clock runs ahead of the events passes 0 for `now`.
  Picos serve(Picos now, Picos ready, Picos time) {
    free_ = std::max(free_, std::min(now, ready)) + time;
    return std::max(free_, ready + time);
  }
  /// Serves a job that takes `time` while it arrives: from `arrival` before `end` until `end`. An
  /// idle server that is faster than the arrival adds no time. Returns the time at which it is
  /// done.
  Picos pass(Picos now, Picos end, Picos time, Picos arrival) {
    free_ = std::max(free_, std::min(now, end) - arrival) + time;
    return std::max(free_, end);
  }
  /// Serves a message of `packets` that are ready one after another, the last one at `ready`.
  /// Returns the time at which the last packet is done.
  Picos serve_packets(Picos now, Picos ready, std::uint32_t packets, Picos time) {
    return pass(now, ready + time, packets * time, packets * time);
  }
  /// Returns the time at which all jobs are done that do not wait for something else.
  Picos free_at() const { return free_; }
  /// Gives up the jobs that wait at `now`. Their times stay as they were told.
  void drop_backlog(Picos now) { free_ = std::min(free_, now); }

 private:
  Picos free_ = 0;
};

}  // namespace pyrdma::fabric::sim
