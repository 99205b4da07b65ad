// Which parts of the control path run one after another, and which in parallel.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/storage.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric::sim {
namespace {

constexpr double kCommand = 90, kCpu = 10;  // us
constexpr std::size_t kPage = 1 << 20;

SimOptions control_options(const std::map<std::string, double>& changes = {}) {
  auto values = test_profile_values();
  for (const auto& [name, value] : {std::pair("control.create_us", kCpu),
                                    {"control.register_us", kCpu},
                                    {"control.command_us", kCommand},
                                    {"control.create_qp_command_us", kCommand},
                                    {"nic.page_bytes", static_cast<double>(kPage)}})
    values.at(name) = value;
  for (const auto& [name, value] : changes) values.at(name) = value;
  SimOptions result;
  result.nodes = 1;
  result.profile = SimProfile::from_values(values);
  return result;
}

/// Measures calls on a cluster that outlives the objects that the calls made.
class ControlPath : public testing::Test {
 protected:
  using Call = std::function<void(Env&, std::uint32_t)>;
  void start(const std::map<std::string, double>& changes = {}, std::uint32_t nodes = 1,
             std::uint32_t devices = 1) {
    SimOptions options = control_options(changes);
    options.nodes = nodes;
    options.devices_per_node = devices;
    cluster.emplace(options);
  }
  /// Returns the microseconds until `threads` threads of each node have made the call.
  double time(std::uint32_t threads, const Call& call) {
    Time taken = 0;
    cluster->run([&](Env& env) {
      const Time begin = env.now();
      std::vector<std::unique_ptr<Thread>> running;
      for (std::uint32_t t = 0; t < threads; ++t)
        running.push_back(env.spawn("caller", [&env, &call, t] { call(env, t); }));
      for (auto& thread : running) thread->join();
      taken = std::max(taken, env.now() - begin);
    });
    return static_cast<double>(taken) / 1000;
  }
  double time_of_queues(std::uint32_t threads) {
    return time(threads, [this](Env& env, std::uint32_t t) {
      queues.push_back(env.device_at(t % env.devices()).create_completion_queue(4));
    });
  }
  double time_of_regions(std::uint32_t threads) {
    return time(threads, [this](Env& env, std::uint32_t t) {
      Device& device = env.device_at(t % env.devices());
      domains.push_back(device.create_protection_domain());
      regions.push_back(device.allocate(*domains.back(), 8 * kPage, 0));
    });
  }
  std::optional<SimCluster> cluster;
  std::vector<std::unique_ptr<ProtectionDomain>> domains;
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  std::vector<std::unique_ptr<CompletionQueue>> queues;
};

TEST_F(ControlPath, CpuTimePassesInParallelAndCommandsPassOneByOne) {
  start();
  EXPECT_NEAR(time_of_queues(1), kCpu + kCommand, 1);
  EXPECT_NEAR(time_of_queues(10), kCpu + 10 * kCommand, 1);
}

TEST_F(ControlPath, EveryNicRunsCommandsOfItsOwn) {
  start({}, 1, 2);
  EXPECT_NEAR(time_of_queues(10), kCpu + 5 * kCommand, 1);
}

TEST_F(ControlPath, ACallerWithManyCommandsDoesNotHoldUpTheOthers) {
  start({{"control.open_commands", 9}});
  double first = 0;
  const double all = time(2, [&](Env& env, std::uint32_t t) {
    if (t == 0) return env.device().open();
    const Time begin = env.now();
    env.device().open();
    queues.push_back(env.device().create_completion_queue(4));
    first = static_cast<double>(env.now() - begin) / 1000;
  });
  EXPECT_NEAR(all, 19 * kCommand + kCpu, 1);
  EXPECT_NEAR(first, all, 1) << "the commands of two callers alternate";
}

TEST_F(ControlPath, ANodePinsTheMemoryOfOneCallAtATime) {
  start({{"control.register_page_us", 50}}, 1, 2);
  EXPECT_NEAR(time_of_regions(1), kCpu + 8 * 50, 1);
  EXPECT_NEAR(time_of_regions(4), kCpu + 4 * 8 * 50, 2) << "on two devices: one memory map";
}

TEST_F(ControlPath, NodesPinMemoryInParallel) {
  start({{"control.register_page_us", 50}}, 4);
  EXPECT_NEAR(time_of_regions(1), kCpu + 8 * 50, 1);
}

TEST_F(ControlPath, EveryCallEntersTheKernel) {
  start({{"cpu.system_call_ns", 2000}});
  EXPECT_NEAR(time_of_queues(1), 2 + kCpu + kCommand, 0.5);
  EXPECT_NEAR(time(1, [](Env& env, std::uint32_t) { env.device().open(); }), 2, 0.1);
  EXPECT_NEAR(time(1, [](Env& env, std::uint32_t) { env.storage().open("file")->sync(); }), 2, 0.1);
}

TEST_F(ControlPath, DestroyingTakesTheCommandsOfTheDriver) {
  start({{"control.pd_commands", 1}, {"control.register_commands", 1}});
  const double taken = time(1, [&](Env& env, std::uint32_t) {
    Device& device = env.device();
    auto pd = device.create_protection_domain();
    auto queue = device.create_completion_queue(4);
    auto region = device.allocate(*pd, kPage, 0);
    auto fresh = device.create_queue_pair(*pd, *queue, *queue);
    auto used = device.create_queue_pair(*pd, *queue, *queue);
    used->modify(QpState::kInit);
    const auto cost = [&env](auto& object) {
      const Time begin = env.now();
      object.reset();
      return static_cast<double>(env.now() - begin) / 1000;
    };
    EXPECT_NEAR(cost(fresh), kCommand, 0.1);
    EXPECT_NEAR(cost(used), 2 * kCommand, 0.1) << "the driver resets it before";
    EXPECT_NEAR(cost(queue), kCommand, 0.1);
    EXPECT_NEAR(cost(region), kCpu + kCommand, 0.1);
    EXPECT_NEAR(cost(pd), kCommand, 0.1);
  });
  EXPECT_GT(taken, 0);
}

TEST_F(ControlPath, CallsWaitBehindTheCommandsThatDestroyObjects) {
  start();
  time_of_queues(1);
  const double taken = time(2, [&](Env& env, std::uint32_t t) {
    if (t == 0) return queues.clear();
    env.sleep_until(env.now() + kMicrosecond);
    queues.push_back(env.device().create_completion_queue(4));
  });
  EXPECT_NEAR(taken, 2 * kCommand, 1);
}

TEST_F(ControlPath, TheEndOfANodeTakesNoTime) {
  start({}, 2);
  time_of_queues(1);
  cluster->run([&](Env& env) {
    if (env.node() == 1) return env.sleep_until(env.now() + kMillisecond);
    const auto held = env.device().create_completion_queue(4);
    cluster->kill(0);
  });
  cluster->restart(0);
  EXPECT_NEAR(time_of_queues(1), kCpu + kCommand, 1) << "no command of the dead node is left";
}

}  // namespace
}  // namespace pyrdma::fabric::sim
