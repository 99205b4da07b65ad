// One object through all moments at which somebody may die: its segments are opened, written,
// closed and replaced meanwhile, and its server is recovered.
#include <algorithm>
#include <string>

#include "fuzz/small_test.h"
#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::Crash;
using fabric::sim::SimCluster;

constexpr int kUpdates = 8;
constexpr NodeId kPrimary = 0;

std::string value_of(int update) {
  return std::string(15'000, 'v') + std::to_string(update);  // four fill a segment
}

struct Life {
  Time took = 0;            // of the updates
  std::uint64_t rolls = 0;  // of the owner's log, the most of its lives
};

/// The victim dies so long after the first update began; never if that is kForever.
Life live(Replication replication, NodeId victim, Crash crash, Time after) {
  Options options = small_options("sim", replication);
  options.segment_bytes = 64U << 10;
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  bool is_over = false;
  Life life;
  const auto kill = [&](NodeId node, Crash how, Time when) {
    cluster.kill_later(node, when, how);
    cluster.restart_later(node, when + 300 * kMicrosecond);
  };
  cluster.run([&](Env& env) {
    if (env.node() < options.servers) {
      for (std::uint32_t number = 0; !is_over; ++number) {
        Server server(env, options, number);
        server.run([&] {
          if (env.node() == kPrimary)
            life.rolls = std::max(life.rolls, server.log().counters().rolls);
          return is_over;
        });
      }
    } else if (env.node() == options.coordinator) {
      Coordinator coordinator(env, options);
      coordinator.run([&] { return is_over; });
      if (testing::Test::HasFailure()) {
        for (const RecoveryReport& report : coordinator.recoveries())
          ADD_FAILURE() << text_of(report);
      }
    } else {
      Client client(env, options, 0, kSecond);
      client.await_servers(options.servers);
      const std::uint64_t table = client.create_table("first", {kPrimary});
      const std::string name = "key";
      const ByteView key = bytes_of(name);
      std::uint64_t version = client.write(table, key, bytes_of(value_of(0))).version;
      const Time began = env.now();
      if (after != kForever) kill(victim, crash, after);
      for (int update = 1; update <= kUpdates; ++update) {
        const Result result = client.write(table, key, bytes_of(value_of(update)));
        EXPECT_EQ(result.status, StoreStatus::kOk) << "update " << update;
        EXPECT_GT(result.version, version) << "update " << update << ": the one before it is lost";
        version = result.version;
      }
      life.took = env.now() - began;
      // What backups have now is what counts.
      for (int death = 0; death < 2; ++death) {
        const Result found = client.read(table, key);
        EXPECT_EQ(found.status, StoreStatus::kOk) << "after " << death << " more deaths";
        EXPECT_EQ(found.version, version) << "after " << death << " more deaths";
        EXPECT_EQ(text_of(found.value), value_of(kUpdates)) << "after " << death << " more deaths";
        env.sleep_until(env.now() + 5 * kMillisecond);  // lost replicas are replaced
        if (death == 0) kill(client.view().tablets.front().owner.node, Crash::kProcess, 1);
        env.sleep_until(env.now() + kMicrosecond);
      }
      is_over = true;
    }
  });
  return life;
}

class TailwindCrashPointsSim : public testing::TestWithParam<Replication> {};

TEST_P(TailwindCrashPointsSim, AnObjectSurvivesADeathAtAnyMoment) {
  const Life calm = live(GetParam(), 0, Crash::kProcess, kForever);
  EXPECT_GE(calm.rolls, 3U) << "segments are opened and closed";
  const Time step = fuzz::kSlowed ? 25 * kMicrosecond : 2 * kMicrosecond;
  const NodeId coordinator = small_options("sim", GetParam()).coordinator;
  for (Time after = 1; after < calm.took && !HasFailure(); after += step) {
    for (const NodeId victim : {kPrimary, NodeId{1}, coordinator}) {
      const Crash crash = after / step % 2 == 0 ? Crash::kProcess : Crash::kHostBattery;
      SCOPED_TRACE("node " + std::to_string(victim) + " dies after " + std::to_string(after) +
                   " ns by crash " + std::to_string(static_cast<int>(crash)));
      live(GetParam(), victim, crash, after);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TailwindCrashPointsSim,
                         testing::Values(Replication::kRamcloud, Replication::kTailwind),
                         [](const auto& each) {
                           return std::string(
                               kReplicationNames[static_cast<std::size_t>(each.param)]);
                         });

}  // namespace
}  // namespace pyrdma::tailwind
