// The rate of a client session (eRPC, section 5.2), and the time at which its next packet may go.
#pragma once
#include <algorithm>
#include <cstdint>
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
  RateControl(const Options& options, Time now) : kind_(options.congestion_control) {
    const RateBounds bounds = bounds_of(options);
    link_ = rate_ = bounds.most;
    if (kind_ == CongestionControl::kTimely) timely_.emplace(TimelyOptions{}, bounds, now);
    if (kind_ == CongestionControl::kDcqcn)
      dcqcn_ = std::make_unique<Dcqcn>(DcqcnOptions{}, bounds, now);
  }
  /// Rates in bytes per ns. The least is that of the public program's Timely: 15 MB/s.
  static RateBounds bounds_of(const Options& options) {
    return RateBounds::of_link(options.link_gbps);
  }

  bool is_on() const { return kind_ != CongestionControl::kNone; }
  /// Whether the session sends at the rate of the link.
  bool is_uncongested() const { return rate_ >= link_; }
  double rate() const { return rate_; }

  /// A packet's answer has come after `rtt`. Returns whether the rate was computed.
  bool answered(Time rtt, Time now, bool is_congested, bool may_bypass) {
    if (kind_ == CongestionControl::kTimely) {
      if (may_bypass && is_uncongested() && timely_->bypasses(rtt)) [[likely]]
        return false;
      rate_ = timely_->update(rtt, now);
      return true;
    }
    if (kind_ == CongestionControl::kDcqcn) {
      if (is_congested)
        dcqcn_->on_notification(now);
      else if (may_bypass && is_uncongested())
        return false;
      dcqcn_->advance(now);
      rate_ = dcqcn_->rate();
      return true;
    }
    return false;
  }
  /// Returns when a packet of `bytes` may go, and reserves that time.
  Time reserve(std::uint32_t bytes, Time now) {
    const double at = std::max(static_cast<double>(now), next_);
    next_ = at + bytes / rate_;
    if (dcqcn_ != nullptr) dcqcn_->on_sent(bytes, now);
    return static_cast<Time>(at);
  }

 private:
  CongestionControl kind_ = CongestionControl::kNone;
  double link_ = 0, rate_ = 0;
  double next_ = 0;  // ns; a fraction counts at the rate of a fast link
  std::optional<Timely> timely_;
  std::unique_ptr<Dcqcn> dcqcn_;
};

}  // namespace pyrdma::erpc
