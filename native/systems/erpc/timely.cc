#include "systems/erpc/timely.h"

#include <algorithm>

namespace pyrdma::erpc {
namespace {

constexpr double kTimelyHyperFactor = 5;
constexpr double kTimelyLeastShare = 0.5;  // one update keeps at least this share of the rate

// The weight of the decrease for a normalised gradient ("ECN or delay", section 4.3).
double weight_of_decrease(double gradient) { return std::clamp(2 * gradient + 0.5, 0.0, 1.0); }

}  // namespace

void TimelyOptions::check() const {
  const bool times = min_rtt > 0 && min_rtt <= t_low && t_low <= t_high;
  const bool shares = ewma > 0 && ewma <= 1 && beta > 0 && beta <= 1;
  if (times && shares && add_rate > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "Timely has min_rtt " + std::to_string(min_rtt) + ", t_low " + std::to_string(t_low) +
                  " and t_high " + std::to_string(t_high) + " ns, add_rate " +
                  std::to_string(add_rate) + ", ewma " + std::to_string(ewma) + " and beta " +
                  std::to_string(beta) +
                  "; give 0 < min_rtt <= t_low <= t_high, add_rate above 0, ewma and beta above 0 "
                  "and at most 1");
}

Timely::Timely(const TimelyOptions& options, const RateBounds& bounds, Time now)
    : options_(options),
      bounds_(bounds),
      rate_(bounds.most),
      last_rtt_(static_cast<double>(options.min_rtt)),
      last_update_(now) {
  options_.check();
  bounds_.check();
}

double Timely::update(Time rtt, Time now) {
  if (rtt < options_.min_rtt) return rate_;
  const auto time = static_cast<double>(rtt);
  const double difference = time - last_rtt_;
  falling_ = difference < 0 ? falling_ + 1 : 0;
  average_difference_ += options_.ewma * (difference - average_difference_);

  // Many packets come within one idle round trip. Each has its share of one full update.
  const auto passed = static_cast<double>(std::max<Time>(0, now - last_update_));
  const double share = std::min(1.0, passed / static_cast<double>(options_.min_rtt));
  const double increase = options_.add_rate * share;
  double next = 0;
  if (rtt < options_.t_low)
    next = rate_ + increase;
  else if (rtt <= options_.t_high)
    next = by_gradient(time, share, increase);
  else
    next = rate_ * (1 - share * options_.beta * (1 - static_cast<double>(options_.t_high) / time));
  rate_ = bounds_.clamp(std::max(next, rate_ * kTimelyLeastShare));
  last_rtt_ = time;
  last_update_ = std::max(now, last_update_);
  return rate_;
}

double Timely::by_gradient(double rtt, double share, double increase) const {
  const double gradient = average_difference_ / static_cast<double>(options_.min_rtt);
  const double decrease = share * options_.beta;
  if (options_.patched) {
    const double weight = weight_of_decrease(gradient);
    const auto reference = static_cast<double>(options_.t_low);
    return rate_ * (1 - decrease * weight * (rtt - reference) / reference) +
           increase * (1 - weight);
  }
  if (gradient > 0) return rate_ * (1 - decrease * gradient);
  return rate_ + (falling_ >= options_.hyper_after ? kTimelyHyperFactor : 1) * increase;
}

}  // namespace pyrdma::erpc
