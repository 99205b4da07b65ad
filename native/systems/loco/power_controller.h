// The control loop of DC/DC converters in series (paper, appendix B). A controller sets the duty
// cycle of each converter, and every converter publishes its output voltage. Both use owned_vars,
// in loops with a fixed period.
//
// The paper gives no parameters but "selected to maintain a stable output voltage with a controller
// loop period of 40 us or lower" (B.2). They are derived here:
//  - A converter is a buck converter, averaged over its switching: L di/dt = d Vin - v,
//    C dv/dt = i - v/R. Transients of the filter decay as exp(-t / 2RC); with R = 0.5 Ohm and
//    C = 4.7 uF that is 2e-4 after 40 us, so that at each control step v = d Vin of the step
//    before.
//  - The controller integrates the error e = Vref - v: d += Ki T e at each period T. So
//    e(k+1) = (1 - Ki T Vin) e(k): one eigenvalue, which leaves the unit circle at -1 when
//    T = 2 / (Ki Vin). Ki = 2 / (42 us Vin) puts that just above 40 us. (With the whole plant and a
//    delay of 0, 5 or 10 us the greatest eigenvalue is 1 at 42 to 43 us, and below 1 for shorter
//    periods; computed numerically.)
//  - Duty cycles stay within 0 and 1, so above that period the output oscillates with a bounded
//    amplitude. The amplitude is about Ki T Vin Vref at first and grows with the period. From a
//    standstill the first step alone reaches that amplitude.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "systems/loco/owned_var.h"

namespace pyrdma::loco {

struct Converter {
  static constexpr double kInput = 48, kOutput = 12;                              // V
  static constexpr double kInductance = 2.2e-6, kCapacity = 4.7e-6, kLoad = 0.5;  // H, F, Ohm
  /// The model advanced by steps of `period`; exact for a constant duty cycle.
  explicit Converter(Time period);
  /// Returns the output voltage after another period with this duty cycle.
  double step(double duty);

 private:
  double from_current_[2], from_voltage_[2], from_duty_[2];
  double current_ = 0, voltage_ = 0;
};

/// Unit: 1/(V s).
inline constexpr double kIntegralGain = 2 / (42e-6 * Converter::kInput);

/// Returns the next duty cycle of a converter, from its last duty cycle and its voltage.
double next_duty(double duty, double voltage, Time period);

/// Participants: node 0 is the controller; each other node is a converter.
class PowerController : public Channel {
 public:
  static constexpr NodeId kController = 0;
  PowerController(Manager& manager, std::string name);

  std::uint32_t converters() const { return manager().nodes() - 1; }

  /// Runs this node's loop. Calls `on_voltage(time since start, sum of the converters' voltages)`
  /// in each iteration of the controller. Returns the number of iterations that began late by a
  /// period or more. One caller. Throws Error(kUnavailable) naming the node that does not answer.
  template <class OnVoltage>
  std::uint64_t control(Caller& me, Time period, Time duration, OnVoltage&& on_voltage) {
    return loop(me, period, duration, [&](Time since) { on_voltage(since, turn(me, period)); });
  }
  std::uint64_t convert(Caller& me, Time period, Time duration);

 private:
  double turn(Caller& me, Time period);
  std::uint64_t loop(Caller& me, Time period, Time duration, FunctionRef<void(Time)> body);
  void check(NodeId peer) const;

  // The variables of this node: all at the controller, its own at a converter; by node, 0 unused.
  std::vector<std::unique_ptr<OwnedVar<double>>> duty_, voltage_;
  std::vector<double> last_duty_;
  std::vector<AckKey> last_push_;
};

}  // namespace pyrdma::loco
