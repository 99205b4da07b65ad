// Loads whose threads measure over one common interval, and the threads themselves.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "env/env.h"
#include "measure/params.h"
#include "measure/recorder.h"

namespace pyrdma::measure {

/// The parameters of Interval: warmup_ns, duration_ns, iterations. A workload that takes
/// them calls check_interval().
inline std::vector<ParameterSpec> interval_parameters() {
  return {
      {"warmup_ns", std::int64_t{10'000}, "ns", "time before the measurement; discarded", 0, 1e15},
      {"duration_ns", std::int64_t{1'000'000}, "ns", "measured time; 0: by iterations", 0, 1e15},
      {"iterations", std::int64_t{0}, "count",
       "maximum number of measured operations per thread; 0: no limit except the duration", 0,
       1e15},
  };
}

/// Throws Error(kInvalidArgument) when nothing ends the interval.
inline void check_interval(const Params& params) {
  if (params.integer("duration_ns") == 0 && params.integer("iterations") == 0)
    throw_parameter(params, "duration_ns", "and iterations are both 0; give one of them");
}

/// One interval for all threads of a node, from the end of the warm-up. A thread that waits for a
/// lock through the whole interval counts no operation; it does not measure later. Threads share it
/// for reading; each thread has its own counts.
class Interval {
 public:
  Interval(Time start, const Params& params)
      : opens_(start + params.integer("warmup_ns")),
        closes_(params.integer("duration_ns") == 0 ? kForever
                                                   : opens_ + params.integer("duration_ns")),
        half_(opens_ + params.integer("duration_ns") / 2),
        most_(params.integer("iterations") == 0
                  ? ~std::uint64_t{0}
                  : static_cast<std::uint64_t>(params.integer("iterations"))) {}

  /// An operation has ended at `now`. Returns true when it counts.
  bool count(Time now) {
    if (!covers(now)) return false;
    ++operations_;
    early_ += now < half_;
    last_ = now;
    return true;
  }
  bool covers(Time now) const { return now >= opens_ && now < closes_; }
  bool over(Time now) const { return now >= closes_ || operations_ >= most_; }
  void add_rates(ThreadRecorder& recorder) const {
    const bool by_count = closes_ == kForever || operations_ >= most_;
    const auto elapsed = static_cast<double>((by_count ? last_ : closes_) - opens_);
    const auto operations = static_cast<double>(operations_);
    recorder.add("ops", "count", operations);
    if (!by_count) recorder.add("early_ops", "count", static_cast<double>(early_));
    recorder.add("elapsed", "ns", elapsed);
    recorder.add("rate", "op/s", elapsed > 0 ? operations / elapsed * 1e9 : 0);
  }

 private:
  Time opens_, closes_, half_, last_ = 0;
  std::uint64_t most_, operations_ = 0, early_ = 0;  // early_: operations in the first half
};

/// Runs body(i) on threads 0 to count-1, with thread 0 the calling thread. Rethrows the error of a
/// thread.
template <class Body>
void on_threads(Env& env, std::uint32_t count, const Body& body) {
  std::vector<std::unique_ptr<Thread>> others;
  for (std::uint32_t i = 1; i < count; ++i) {
    others.push_back(env.spawn("load/" + std::to_string(i), [&body, i] { body(i); }));
  }
  body(0);
  for (const auto& thread : others) thread->join();
}

}  // namespace pyrdma::measure
