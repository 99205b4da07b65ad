// The parts that load loops share: the measured window (closed loop) and random arrival times (open
// loop).
#pragma once
#include <cmath>
#include <cstdint>

#include "base/rng.h"
#include "base/units.h"
#include "measure/recorder.h"

namespace pyrdma::measure {

/// Window lasts from the end of the warm-up until `duration` has passed or `iterations` operations
/// are done, whichever is first; 0 switches a bound off.
class Window {
 public:
  Window(Time start, Time warmup, Time duration, std::uint64_t iterations)
      : opens_(start + warmup), duration_(duration), iterations_(iterations) {}

  /// Takes the time and the number of operations completed so far. Returns true once the window is
  /// over.
  bool over(Time now, std::uint64_t completed) {
    if (!open_) {
      if (now < opens_) return false;
      open_ = true;
      begin_ = now;
      base_ = completed;
    }
    end_ = now;
    operations_ = completed - base_;
    return (duration_ != 0 && now - begin_ >= duration_) ||
           (iterations_ != 0 && operations_ >= iterations_);
  }
  bool open() const { return open_; }
  std::uint64_t operations() const { return operations_; }
  Time elapsed() const { return end_ - begin_; }
  Time duration() const { return duration_; }
  /// Returns a time by which a healthy run is long over: the deadline of its polls.
  Time deadline() const { return opens_ + duration_ + (iterations_ != 0 ? 3600 : 60) * kSecond; }

 private:
  Time opens_, duration_;
  std::uint64_t iterations_;
  bool open_ = false;
  Time begin_ = 0, end_ = 0;
  std::uint64_t base_ = 0, operations_ = 0;
};

/// Adds the rows of a loop: ops, bytes, elapsed, rate, bandwidth.
void add_rates(ThreadRecorder& recorder, const Window& window, std::uint64_t bytes_each);

/// ClockStride says how many operations to do between two readings of the clock. The readings then
/// cost little, and the window still ends within about a thousandth of its length.
class ClockStride {
 public:
  ClockStride(Time start, Time duration) : last_(start), fine_(duration / 1024 + 1) {}
  bool due(std::uint64_t completed) const { return completed >= next_; }
  void read(Time now, std::uint64_t completed) {
    if (now - last_ < fine_ && stride_ < kMost)
      stride_ *= 2;
    else if (now - last_ > 2 * fine_ && stride_ > 1)
      stride_ /= 2;
    last_ = now;
    next_ = completed + stride_;
  }

 private:
  static constexpr std::uint64_t kMost = 4096;
  Time last_, fine_;
  std::uint64_t stride_ = 1, next_ = 0;
};

/// Arrivals draws the times of a Poisson process for an open loop. Latency counts from these times,
/// however late the request was posted.
class Arrivals {
 public:
  Arrivals(Rng rng, Time mean_interval, Time start)
      : rng_(rng), mean_(static_cast<double>(mean_interval)), at_(static_cast<double>(start)) {
    advance();
  }
  Time next() const { return static_cast<Time>(at_); }
  void advance() { at_ -= std::log1p(-rng_.uniform()) * mean_; }

 private:
  Rng rng_;
  double mean_, at_;
};

}  // namespace pyrdma::measure
