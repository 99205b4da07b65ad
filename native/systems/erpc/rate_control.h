// The rate of a client session (eRPC, section 5.2), and the time at which its next packet may go.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "base/units.h"
#include "systems/erpc/dcqcn.h"
#include "systems/erpc/options.h"
#include "systems/erpc/timely.h"

namespace pyrdma::erpc {

class RateControl {
 public:
  RateControl() = default;
  RateControl(const Options& options, Time now)
      : kind_(options.congestion_control),
        bypasses_(options.timely_bypass),
        limiter_bypass_(options.rate_limiter_bypass) {
    const RateBounds bounds = bounds_of(options);
    link_ = rate_ = bounds.most;
    if (kind_ == CongestionControl::kTimely) timely_.emplace(TimelyOptions{}, bounds, now);
    if (kind_ == CongestionControl::kDcqcn)
      dcqcn_ = std::make_unique<Dcqcn>(DcqcnOptions{}, bounds, now);
    note_rate();
  }
  /// Rates in bytes per ns. The least is that of the public program's Timely: 15 MB/s.
  static RateBounds bounds_of(const Options& options) {
    return RateBounds::of_link(options.link_gbps);
  }

  bool is_on() const { return kind_ != CongestionControl::kNone; }
  /// Whether the session sends at the rate of the link.
  bool is_uncongested() const { return rate_ >= link_; }
  double rate() const { return rate_; }

  /// Returns true when a packet needs no pacing, if no earlier one waits (section 5.2.2).
  bool is_direct() const { return is_direct_; }
  /// Returns true when answered() would do nothing for such a round-trip time: most often. The
  /// clock may be read between the batches, so a time may be negative; that one says nothing.
  bool skips(Time rtt) const { return rtt <= skips_to_; }

  /// A packet's answer has come after `rtt`. Returns whether the rate was computed.
  bool answered(Time rtt, Time now, bool is_congested) {
    if (skips(rtt) || kind_ == CongestionControl::kNone) return false;
    if (kind_ == CongestionControl::kTimely) {
      // Timely ignores times below its least one. On a fabric whose times are all below it a rate
      // that has fallen once would never rise again.
      rate_ = timely_->update(std::max(rtt, timely_->min_rtt()), now);
    } else {
      if (is_congested)
        dcqcn_->on_notification(now);
      else if (bypasses_ && is_uncongested())
        return false;
      dcqcn_->advance(now);
      rate_ = dcqcn_->rate();
    }
    note_rate();
    return true;
  }
  /// Returns when a packet of `bytes` may go, and reserves that time.
  Time reserve(std::uint32_t bytes, Time now) {
    const double at = std::max(static_cast<double>(now), next_);
    next_ = at + bytes / rate_;
    if (dcqcn_ != nullptr) dcqcn_->on_sent(bytes, now);
    return static_cast<Time>(at);
  }

 private:
  // What every packet asks is computed when the rate changes.
  void note_rate() {
    is_direct_ = !is_on() || (limiter_bypass_ && is_uncongested());
    skips_to_ = -1;
    if (!is_on()) skips_to_ = std::numeric_limits<Time>::max();
    if (timely_ && bypasses_ && is_uncongested() && timely_->uncongested())
      skips_to_ = timely_->t_low();
  }

  CongestionControl kind_ = CongestionControl::kNone;
  bool bypasses_ = true, limiter_bypass_ = true;
  bool is_direct_ = true;
  Time skips_to_ = std::numeric_limits<Time>::max();
  double link_ = 0, rate_ = 0;
  double next_ = 0;  // ns; a fraction counts at the rate of a fast link
  std::optional<Timely> timely_;
  std::unique_ptr<Dcqcn> dcqcn_;
};

}  // namespace pyrdma::erpc
