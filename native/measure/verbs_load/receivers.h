// The receiving side of send and write_imm: threads that keep receives posted.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "measure/load.h"
#include "measure/verbs_load/connections.h"

namespace pyrdma::measure::verbs_load {

/// Receivers starts a thread per Receiver; the destructor ends them.
class Receivers {
 public:
  /// All receives are posted when the constructor returns. Thread i records as thread
  /// `first_thread` + i: received, receive_rate.
  Receivers(Env& env, const Load& load, std::vector<Receiver>& receivers, Recorder& recorder,
            std::uint32_t first_thread);
  ~Receivers();
  /// Ends the threads and rethrows an exception of one.
  void stop();

 private:
  void serve(Receiver& receiver, ThreadRecorder& recorder);
  void end();

  Env& env_;
  const Load& load_;
  std::vector<Receiver>& receivers_;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<Thread>> threads_;  // last member: joined first
};

}  // namespace pyrdma::measure::verbs_load
