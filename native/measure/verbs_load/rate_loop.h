// The closed loop, which keeps a window of requests in flight, and the open loop, which follows
// random arrival times.
#pragma once
#include <array>
#include <vector>

#include "measure/load.h"
#include "measure/verbs_load/connections.h"

namespace pyrdma::measure::verbs_load {

/// Requester posts prepared batches to a sender's routes and counts the completions. One thread.
class Requester {
 public:
  Requester(Env& env, const Load& load, Sender& sender, Rng rng);

  bool has_room() const { return outstanding_ + load_.batch <= load_.depth; }
  /// Whether the load lets the thread post now: refill=empty waits for the whole window.
  bool may_refill() const { return !load_.refill_empty || outstanding_ == 0; }
  std::uint64_t completed() const { return completed_; }
  std::uint32_t outstanding() const { return outstanding_; }
  /// Posts one batch; its signaled requests carry `stamp`.
  void post_batch(Time stamp, Time deadline);
  /// Waits for completions until `deadline`, takes them, and calls `done(stamp)` for each. Returns
  /// false on the deadline.
  template <class Done>
  bool take(Time deadline, Done&& done) {
    return take_raw(deadline, [&](std::uint64_t wr_id) {
      const auto covered = static_cast<std::uint32_t>(wr_id >> kStampBits);
      completed_ += covered;
      outstanding_ -= covered;
      done(static_cast<Time>(wr_id & kStampMask));
    });
  }
  /// Waits for completions as `take` does, and calls `done(wr_id)` for each.
  template <class Done>
  bool take_raw(Time deadline, Done&& done) {
    std::size_t count = 0;
    const bool some = env_.poll_until([&] { return (count = sender_.cq->poll(completions_)) != 0; },
                                      deadline, &sender_.cq->watch());
    for (std::size_t i = 0; i < count; ++i) {
      const fabric::Completion& completion = completions_[i];
      if (completion.status != fabric::Status::kSuccess) [[unlikely]]
        fail(completion);
      done(completion.wr_id);
    }
    return some;
  }
  /// Aims the requests of a batch at `route`, and returns the first.
  fabric::WorkRequest& aim(const Route& route);
  void post(const Route& route, std::span<const fabric::WorkRequest> requests, Time deadline);
  /// Waits until nothing is in flight. Throws Error(kTimeout) after `deadline`.
  void finish(Time deadline);
  /// Returns the time since `stamp`, of which the request carried only the low bits.
  static Time since(Time now, Time stamp) {
    return static_cast<Time>((static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(stamp)) &
                             kStampMask);
  }
  /// Throws Error(kTimeout): nothing completed.
  [[noreturn]] void stuck() const;

 private:
  // A wr_id holds the number of requests that its completion confirms, and the low bits of its
  // time.
  static constexpr int kStampBits = 48;
  static constexpr std::uint64_t kStampMask = (1ULL << kStampBits) - 1;

  const Route& next_route();
  void mark(Time stamp);
  fabric::PostResult ring(const Route& route, std::span<const fabric::WorkRequest> requests);
  [[noreturn]] void fail(const fabric::Completion& completion) const;

  Env& env_;
  const Load& load_;
  Sender& sender_;
  Rng rng_;
  std::vector<fabric::Sge> sges_;
  std::vector<fabric::WorkRequest> batch_;
  std::array<fabric::Completion, 64> completions_;
  const Route* aimed_ = nullptr;
  std::size_t turn_ = 0;
  bool moving_;                   // addresses change with every request
  std::uint64_t slots_;           // places in a region, for random addresses
  std::uint32_t period_ = 1;      // batches per signaled request
  std::uint32_t unsignaled_ = 0;  // batches since the last signaled request
  std::uint32_t outstanding_ = 0;
  std::uint64_t completed_ = 0;
};

/// mode=rate. Rows: ops, bytes, elapsed, rate, bandwidth; with record_latency a histogram named
/// after the operation.
void run_rate(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder, Rng rng);
/// mode=rate with signal_by=queue_pair. Records the same without latencies.
void run_rate_by_queue(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder,
                       Rng rng);
/// mode=open. Records the same, with latency from the intended times.
void run_open(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder, Rng rng);

}  // namespace pyrdma::measure::verbs_load
