// loco_power: the control loop of DC/DC converters (LOCO, appendix B and figure 7).
#include <algorithm>
#include <cmath>

#include "measure/workload.h"
#include "systems/loco/barrier.h"
#include "systems/loco/power_controller.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

namespace {

using Int = std::int64_t;

constexpr Time kStart = kMillisecond;  // start of a run, with its transient

struct Seen {
  double least = 1e300, most = -1e300, squares = 0;
  std::uint64_t count = 0;
  void add(double relative) {
    least = std::min(least, relative);
    most = std::max(most, relative);
    squares += (relative - 1) * (relative - 1);
    ++count;
  }
};

class Power final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = {
        {"period_us", Int{40}, "us", "period of the controller's loop", 1, 10'000},
        {"converter_us", Int{10}, "us", "period of the converters' loops", 1, 10'000},
        {"trace_ns", Int{2'000'000}, "ns", "time during which the run records the voltage", 0,
         1e12},
        {"duration_ns", Int{20'000'000}, "ns", "length of the run", 2e6, 1e12},
    };
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    if (env.nodes() < 2) throw_parameter(params, "nodes", "a controller and a converter need two");
    ManagerOptions options;
    options.name = params.key("loco");
    Manager manager(env, options);
    PowerController power(manager, "power");
    Barrier barrier(manager, "meet");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    const Time duration = params.integer("duration_ns");
    std::uint64_t late = 0;
    if (env.node() == PowerController::kController) {
      const double target = Converter::kOutput * power.converters();
      const Time traced = params.integer("trace_ns");
      Seen start, end;
      late = power.control(me, params.integer("period_us") * kMicrosecond, duration,
                           [&](Time since, double voltage) {
                             if (since < kStart) start.add(voltage / target);
                             if (since >= duration / 2) end.add(voltage / target);
                             if (since < traced) {
                               recorder.add("voltage/" + std::to_string(since), "V", voltage);
                             }
                           });
      recorder.add("start_peak", "ratio", start.most);
      recorder.add("ripple", "ratio", end.most - end.least);
      recorder.add("deviation", "ratio", std::sqrt(end.squares / static_cast<double>(end.count)));
    } else {
      late = power.convert(me, params.integer("converter_us") * kMicrosecond, duration);
    }
    recorder.add("late_turns", "count", static_cast<double>(late));
    barrier.wait(me);
    manager.leave();
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_power() { return std::make_unique<Power>(); }

}  // namespace pyrdma::loco
