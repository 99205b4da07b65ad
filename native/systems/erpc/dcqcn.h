// DCQCN's reaction point: a session's rate from the marks of switches. Source: Y. Zhu et al.,
// "Congestion control for large-scale RDMA deployments", SIGCOMM 2015, section 3.1 (equations 1 to
// 4, figure 7) and section 5.2 for the parameters. eRPC names DCQCN as its other algorithm (paper,
// section 5.2.1).
//
// One object per client session; one thread uses it. Each call costs a few nanoseconds; after a
// pause of the session, advance() makes up for the timer's events, at most some thousands once.
#pragma once
#include <cstdint>

#include "base/units.h"
#include "systems/erpc/rate_bounds.h"

namespace pyrdma::erpc {

/// The defaults are those of the paper. It gives no rate of the hyper increase: that is ten times
/// the additive one.
struct DcqcnOptions {
  double gain = 1.0 / 256;                 // g: weight of a notification in alpha
  Time alpha_time = 55 * kMicrosecond;     // K: alpha falls once in this time
  Time increase_time = 55 * kMicrosecond;  // T: the timer of the increases
  double increase_bytes = 10e6;            // B: the byte counter of the increases
  unsigned fast_steps = 5;   // F: the fast recovery ends with this step of either counter
  double add_rate = 0.005;   // R_AI in bytes per ns: 40 Mbit/s
  double hyper_rate = 0.05;  // R_HAI in bytes per ns
  Time least_between_cuts = 50 * kMicrosecond;  // N: notifications in between are ignored

  /// Throws Error(kInvalidArgument) for options with which the algorithm makes no sense.
  void check() const;
};

class Dcqcn {
 public:
  /// The rate begins at the most. Throws Error for invalid options or bounds.
  Dcqcn(const DcqcnOptions& options, const RateBounds& bounds, Time now);

  /// A packet of the session was marked. The notification point of the paper sends one
  /// notification in `least_between_cuts`; here the caller may tell every mark.
  void on_notification(Time now);
  /// The session has sent `bytes`.
  void on_sent(std::uint64_t bytes, Time now);
  /// Lets the timer's events until `now` happen. The rate is up to date after any of the three
  /// calls. A clock that goes back has no effect.
  void advance(Time now) {
    if (now >= timer_due_ && !uncongested()) run_timer(now);
  }

  bool uncongested() const { return rate_ == bounds_.most; }
  double rate() const { return rate_; }
  double target() const { return target_; }
  /// Returns the estimate of congestion, 0 to 1, as of the last cut.
  double alpha() const { return alpha_; }
  const RateBounds& bounds() const { return bounds_; }

 private:
  void run_timer(Time now);
  void increase();

  DcqcnOptions options_;
  RateBounds bounds_;
  double rate_, target_;
  double alpha_ = 1;
  Time alpha_from_;  // of the last cut: since then alpha falls
  Time timer_due_;
  double bytes_ = 0;                                // since the last event of the byte counter
  std::uint32_t timer_steps_ = 0, byte_steps_ = 0;  // since the last cut
  bool has_cut_ = false;
};

}  // namespace pyrdma::erpc
