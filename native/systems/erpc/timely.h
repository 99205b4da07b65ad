// Timely: a session's rate from its round-trip times. Source: R. Mittal et al., "TIMELY: RTT-based
// congestion control for the datacenter", SIGCOMM 2015, algorithm 1, as eRPC uses it (paper,
// section 5.2.1). The patched variant is algorithm 2 of Y. Zhu et al., "ECN or delay", CoNEXT 2016.
//
// One object per client session; one thread uses it. An update is some tens of floating-point
// operations, without memory of its own.
#pragma once
#include "base/units.h"
#include "systems/erpc/rate_bounds.h"

namespace pyrdma::erpc {

/// The constants of the algorithm. The defaults are those of eRPC's public code; the paper gives
/// t_low only.
struct TimelyOptions {
  Time min_rtt = 2 * kMicrosecond;  // of an idle network; shorter samples are ignored
  Time t_low = 50 * kMicrosecond;   // below: additive increase
  Time t_high = kMillisecond;       // above: multiplicative decrease
  double add_rate = 0.005;          // bytes per ns of each increase: 40 Mbit/s
  double ewma = 0.46;               // weight of the newest difference of two times, in (0, 1]
  double beta = 0.26;               // strength of a decrease, in (0, 1]
  unsigned hyper_after = 5;         // falling times in sequence until increases are five times
  bool patched = false;             // weighs both directions, which makes the fixed point unique

  /// Throws Error(kInvalidArgument) for options with which the algorithm makes no sense.
  void check() const;
};

class Timely {
 public:
  /// The rate begins at the most. `now` is the time of the last update so far. Throws Error for
  /// invalid options or bounds.
  Timely(const TimelyOptions& options, const RateBounds& bounds, Time now);

  /// Takes the round-trip time of a packet that came at `now`; returns the new rate in bytes per
  /// ns. A time below min_rtt changes nothing. A clock that goes back counts as one that stands.
  double update(Time rtt, Time now);

  /// Returns true when the caller may leave the update out: the session sends at the most and the
  /// time asks for an increase (paper, section 5.2.2, "Timely bypass").
  bool bypasses(Time rtt) const { return rate_ == bounds_.most && rtt <= options_.t_low; }
  /// Returns true when the session needs no pacing (section 5.2.2, "rate limiter bypass"; the
  /// session's packets in the timing wheel must have left).
  bool uncongested() const { return rate_ == bounds_.most; }
  double rate() const { return rate_; }
  Time t_low() const { return options_.t_low; }
  Time min_rtt() const { return options_.min_rtt; }
  const RateBounds& bounds() const { return bounds_; }

 private:
  double by_gradient(double rtt, double share, double increase) const;

  TimelyOptions options_;
  RateBounds bounds_;
  double rate_;
  double last_rtt_;
  double average_difference_ = 0;  // ns
  Time last_update_;
  unsigned falling_ = 0;  // times that were shorter than the one before, in sequence
};

}  // namespace pyrdma::erpc
