#include "systems/loco/power_controller.h"

#include <cmath>

#include "systems/loco/barrier.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

TEST(Converter, SettlesAtItsDutyCycleTimesItsInput) {
  Converter converter(10 * kMicrosecond);
  double voltage = 0;
  for (int i = 0; i < 20; ++i) voltage = converter.step(0.25);
  EXPECT_NEAR(voltage, 12, 1e-3);
}

TEST(Converter, OneLongStepIsManyShortOnes) {
  Converter once(10 * kMicrosecond), often(kMicrosecond);
  double voltage = 0;
  for (int i = 0; i < 10; ++i) voltage = often.step(0.5);
  EXPECT_NEAR(once.step(0.5), voltage, 1e-6);
}

// Returns the ripple of the second half of a run, relative to the mean.
double ripple(Time period, std::uint32_t nodes) {
  double least = 1e9, most = -1e9;
  fabric::sim::SimCluster cluster(sim_options(nodes, true));
  cluster.run([&](Env& env) {
    Manager manager(env, {});
    PowerController power(manager, "power");
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    constexpr Time kDuration = 10 * kMillisecond;
    if (env.node() == PowerController::kController) {
      power.control(me, period, kDuration, [&](Time since, double voltage) {
        if (since < kDuration / 2) return;
        least = std::min(least, voltage);
        most = std::max(most, voltage);
      });
    } else {
      power.convert(me, 10 * kMicrosecond, kDuration);
    }
    barrier.wait(me);
    manager.leave();
  });
  return (most - least) / (Converter::kOutput * (nodes - 1));
}

TEST(PowerControllerSim, IsStableUpTo40MicrosecondsAndWorseAndWorseBeyond) {
  for (const Time period : {10, 20, 30, 40}) {
    EXPECT_LT(ripple(period * kMicrosecond, 4), 1e-3) << period << " us";
  }
  double last = 0.1;
  for (const Time period : {45, 50, 60, 80}) {
    const double now = ripple(period * kMicrosecond, 4);
    EXPECT_GT(now, last) << period << " us";
    last = now;
  }
}

// The last push fails after the last turn of the loop.
TEST(PowerControllerSim, AConverterThatDiesAtTheEndIsNamed) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  cluster.run([&](Env& env) {
    Manager manager(env, {});
    PowerController power(manager, "power");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    constexpr Time kDuration = kMillisecond;
    const Time begin = env.now();
    if (env.node() == 2) {
      env.sleep_until(begin + kDuration - 60 * kMicrosecond);
      cluster.kill(2);
    } else if (env.node() == 1) {
      env.sleep_until(begin + kSecond);
    } else {
      try {
        power.control(me, 40 * kMicrosecond, kDuration, [](Time, double) {});
        ADD_FAILURE() << "the dead converter is not reported";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        EXPECT_EQ(error.nodes(), std::vector<NodeId>{2});
      }
    }
  });
}

}  // namespace
}  // namespace pyrdma::loco
