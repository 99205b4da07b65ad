#include "systems/erpc/dcqcn.h"

#include <algorithm>

namespace pyrdma::erpc {
namespace {

// A rate so near to the most is the most. The halves of the distance would never end it, and a
// session at the most needs no pacing.
constexpr double kDcqcnNearlyMost = 0.999;

// By products, as a library's pow() may differ in the last bit from machine to machine.
double dcqcn_power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent != 0 && result != 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) result *= base;
  return result;
}

}  // namespace

void DcqcnOptions::check() const {
  const bool times = alpha_time > 0 && increase_time > 0 && least_between_cuts >= 0;
  if (times && gain > 0 && gain <= 1 && increase_bytes >= 1 && add_rate > 0 && hyper_rate > 0)
    return;
  throw Error(ErrorCode::kInvalidArgument,
              "DCQCN has gain " + std::to_string(gain) + ", alpha_time " +
                  std::to_string(alpha_time) + ", increase_time " + std::to_string(increase_time) +
                  " and least_between_cuts " + std::to_string(least_between_cuts) +
                  " ns, increase_bytes " + std::to_string(increase_bytes) + ", add_rate " +
                  std::to_string(add_rate) + " and hyper_rate " + std::to_string(hyper_rate) +
                  "; give a gain above 0 and at most 1, at least one byte, and the others above 0");
}

Dcqcn::Dcqcn(const DcqcnOptions& options, const RateBounds& bounds, Time now)
    : options_(options),
      bounds_(bounds),
      rate_(bounds.most),
      target_(bounds.most),
      alpha_from_(now),
      timer_due_(now + options.increase_time) {
  options_.check();
  bounds_.check();
}

void Dcqcn::on_notification(Time now) {
  advance(now);
  if (has_cut_ && now - alpha_from_ < options_.least_between_cuts) return;
  // Equation 2: alpha falls once in alpha_time without a notification. Before the first one there
  // is nothing to fall: the paper starts the estimate with it.
  if (has_cut_ && now > alpha_from_)
    alpha_ *= dcqcn_power(1 - options_.gain,
                          static_cast<std::uint64_t>((now - alpha_from_) / options_.alpha_time));
  target_ = rate_;
  rate_ = bounds_.clamp(rate_ * (1 - alpha_ / 2));
  alpha_ = (1 - options_.gain) * alpha_ + options_.gain;
  alpha_from_ = now;
  timer_due_ = now + options_.increase_time;
  timer_steps_ = byte_steps_ = 0;
  bytes_ = 0;
  has_cut_ = true;
}

void Dcqcn::on_sent(std::uint64_t bytes, Time now) {
  advance(now);
  if (uncongested()) return;
  for (bytes_ += static_cast<double>(bytes); bytes_ >= options_.increase_bytes && !uncongested();
       bytes_ -= options_.increase_bytes) {
    ++byte_steps_;
    increase();
  }
}

void Dcqcn::run_timer(Time now) {
  for (; now >= timer_due_ && !uncongested(); timer_due_ += options_.increase_time) {
    ++timer_steps_;
    increase();
  }
}

// Figure 7: fast recovery until one of the two counters has reached F, hyper increase when both are
// above F, additive increase in between. As in QCN, the hyper increase grows with each step.
void Dcqcn::increase() {
  const std::uint32_t more = std::max(timer_steps_, byte_steps_);
  const std::uint32_t fewer = std::min(timer_steps_, byte_steps_);
  if (fewer > options_.fast_steps)
    target_ += options_.hyper_rate * (fewer - options_.fast_steps);
  else if (more >= options_.fast_steps)
    target_ += options_.add_rate;
  target_ = std::min(target_, bounds_.most);
  rate_ = (target_ + rate_) / 2;
  if (rate_ >= kDcqcnNearlyMost * bounds_.most) rate_ = target_ = bounds_.most;
}

}  // namespace pyrdma::erpc
