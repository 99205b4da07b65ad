#include "systems/loco/power_controller.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {
namespace {

using Matrix = std::array<std::array<double, 3>, 3>;

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 3; ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

// exp(a) by a series over a / 2^10, squared ten times.
Matrix exponential(Matrix a) {
  for (auto& row : a) {
    for (double& cell : row) cell /= 1024;
  }
  Matrix sum{}, power{};
  for (std::size_t i = 0; i < 3; ++i) sum[i][i] = power[i][i] = 1;
  for (int n = 1; n <= 6; ++n) {
    power = times(power, a);
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        power[i][j] /= n;
        sum[i][j] += power[i][j];
      }
    }
  }
  for (int i = 0; i < 10; ++i) sum = times(sum, sum);
  return sum;
}

}  // namespace

Converter::Converter(Time period) {
  const double h = static_cast<double>(period) * 1e-9;
  // Current, voltage, and the duty cycle, which stays constant.
  const Matrix step = exponential({{{0, -h / kInductance, h * kInput / kInductance},
                                    {h / kCapacity, -h / (kLoad * kCapacity), 0},
                                    {0, 0, 0}}});
  for (std::size_t i = 0; i < 2; ++i) {
    from_current_[i] = step[i][0];
    from_voltage_[i] = step[i][1];
    from_duty_[i] = step[i][2];
  }
}

double Converter::step(double duty) {
  const double current = current_, voltage = voltage_;
  current_ = from_current_[0] * current + from_voltage_[0] * voltage + from_duty_[0] * duty;
  voltage_ = from_current_[1] * current + from_voltage_[1] * voltage + from_duty_[1] * duty;
  return voltage_;
}

double next_duty(double duty, double voltage, Time period) {
  const double error = Converter::kOutput - voltage;
  return std::clamp(duty + kIntegralGain * static_cast<double>(period) * 1e-9 * error, 0.0, 1.0);
}

PowerController::PowerController(Manager& manager, std::string name)
    : Channel(manager, std::move(name)),
      duty_(manager.nodes()),
      voltage_(manager.nodes()),
      last_duty_(manager.nodes()),
      last_push_(manager.nodes()) {
  for (NodeId node = 0; node < manager.nodes(); ++node) {
    if (node == kController || (self() != kController && self() != node)) continue;
    const std::vector<NodeId> both{kController, node};
    const std::string number = std::to_string(node);
    duty_[node] = std::make_unique<OwnedVar<double>>(manager, Channel::name() + "/d" + number,
                                                     kController, Updates::kPushed, both);
    voltage_[node] = std::make_unique<OwnedVar<double>>(manager, Channel::name() + "/v" + number,
                                                        node, Updates::kPushed, both);
  }
  join();
}

double PowerController::turn(Caller& me, Time period) {
  double sum = 0;
  for (NodeId node = 1; node < manager().nodes(); ++node) {
    const Scope step(manager().env(), scope::power_control);
    const double voltage = *voltage_[node]->try_load();
    sum += voltage;
    last_duty_[node] = next_duty(last_duty_[node], voltage, period);
    duty_[node]->store(last_duty_[node]);
    check(node);
    last_push_[node] = duty_[node]->push_to(me, node);
  }
  return sum;
}

std::uint64_t PowerController::convert(Caller& me, Time period, Time duration) {
  Converter converter(period);
  OwnedVar<double>&duty = *duty_[self()], &voltage = *voltage_[self()];
  return loop(me, period, duration, [&](Time) {
    const Scope step(manager().env(), scope::power_convert);
    voltage.store(converter.step(*duty.try_load()));
    check(kController);
    last_push_[kController] = voltage.push_to(me, kController);
  });
}

std::uint64_t PowerController::loop(Caller& me, Time period, Time duration,
                                    FunctionRef<void(Time)> body) {
  Env& env = manager().env();
  // The turns of the controller fall between the turns of the converters.
  const Time start = env.now() + (self() == kController ? period / 2 : 0);
  std::uint64_t late = 0;
  Watch never_woken;  // the clock alone ends the wait
  for (Time next = start; next < start + duration; next += period) {
    env.poll_until([] { return false; }, next, &never_woken);
    manager().turn();
    if (env.now() >= next + period) ++late;
    body(next - start);
  }
  const fabric::Status status = me.fence_thread();
  for (NodeId node = 0; node < manager().nodes(); ++node) check(node);  // the last pushes
  if (status != fabric::Status::kSuccess) {
    throw Error(ErrorCode::kUnavailable,
                "'" + name() + "': operations of this caller failed (" + to_string(status) + ")",
                false);
  }
  return late;
}

// A failed push names its node. The next push overtakes a push that has not completed.
void PowerController::check(NodeId peer) const {
  const fabric::Status status = last_push_[peer].status();
  if (status == fabric::Status::kSuccess) [[likely]]
    return;
  throw Error(ErrorCode::kUnavailable,
              "'" + name() + "': node " + std::to_string(peer) + " does not answer (" +
                  to_string(status) + "): it was killed or cut off",
              false)
      .blaming({peer});
}

}  // namespace pyrdma::loco
