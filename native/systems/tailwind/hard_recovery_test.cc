// Recoveries that cannot be as they should: data are lost for good, a part of a log is gone between
// two attempts, or the logs of the others have little room.
#include <algorithm>
#include <string>

#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::Crash;
using fabric::sim::SimCluster;

std::string name_of_object(int number) { return "object " + std::to_string(number); }

// ---- more is lost than the store survives ----

struct Salvaged {
  int readable = 0, wrong = 0;
  std::string lost;
};

/// All servers die at once, and come back: of 400 objects in several segments what can be read.
Salvaged after_all_have_died(Crash crash) {
  Options options = small_options("sim", Replication::kTailwind);
  options.replicas = 3;
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  Salvaged result;
  run_store(cluster, options, 200 * kMillisecond, [&](Env& env, Client& client, OpenStore& store) {
    const std::uint64_t table = client.create_table("first");
    const std::string value(3000, 'v');
    for (int number = 0; number < 400; ++number)
      client.write(table, bytes_of(name_of_object(number)), bytes_of(value));
    env.sleep_until(env.now() + 5 * kMillisecond);  // closed replicas come to the disks
    for (NodeId node = 0; node < options.servers; ++node) {
      cluster.kill(node, crash);
      cluster.restart_later(node, kMillisecond);
    }
    for (int number = 0; number < 400; ++number) {
      const Result found = client.read(table, bytes_of(name_of_object(number)));
      result.readable += found.status == StoreStatus::kOk;
      result.wrong += found.status == StoreStatus::kOk && text_of(found.value) != value;
      result.wrong += found.status != StoreStatus::kOk && found.status != StoreStatus::kNoObject;
    }
    for (const RecoveryReport& report : store.coordinator->recoveries()) {
      EXPECT_TRUE(report.declared == 0 || report.ended != 0) << text_of(report);
      result.lost += report.lost;
    }
    EXPECT_EQ(client.write(table, bytes_of("new"), bytes_of(value)).status, StoreStatus::kOk);
  });
  return result;
}

TEST(TailwindHardRecoverySim, WhatIsOnDisksIsReadableAfterAllServersWereKilled) {
  for (const Crash crash : {Crash::kProcess, Crash::kHost}) {
    const Salvaged salvaged = after_all_have_died(crash);
    EXPECT_GT(salvaged.readable, 200);
    EXPECT_LT(salvaged.readable, 400) << "the heads were in memory";
    EXPECT_EQ(salvaged.wrong, 0);
    EXPECT_NE(salvaged.lost.find("what came behind segment"), std::string::npos) << salvaged.lost;
  }
  const Salvaged saved = after_all_have_died(Crash::kHostBattery);
  EXPECT_EQ(saved.readable, 400);
  EXPECT_EQ(saved.lost, "");
}

// One that is down may have what is missing.
TEST(TailwindHardRecoverySim, NothingIsGivenUpBeforeAllServersAreThere) {
  Options options = small_options("sim", Replication::kTailwind);
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  run_store(cluster, options, 50 * kMillisecond, [&](Env& env, Client& client, OpenStore& store) {
    const std::uint64_t table = client.create_table("first", {0});
    for (int number = 0; number < 200; ++number)
      client.write(table, bytes_of(name_of_object(number)), bytes_of(std::string(3000, 'v')));
    env.sleep_until(env.now() + 5 * kMillisecond);
    for (const NodeId node : {0U, 1U, 2U}) cluster.kill(node);
    for (const NodeId node : {1U, 2U}) cluster.restart_later(node, kMillisecond);
    EXPECT_THROW(client.read(table, bytes_of(name_of_object(0))), Error);
    const auto is_open = [](const RecoveryReport& report) {
      return report.dead.node == 0 && report.declared != 0 && report.ended == 0;
    };
    const auto reports = store.coordinator->recoveries();
    const auto open = std::ranges::find_if(reports, is_open);
    ASSERT_NE(open, reports.end());
    EXPECT_NE(open->problem, "");
    EXPECT_EQ(open->lost, "");
    cluster.restart_later(0, kMillisecond);
    EXPECT_EQ(client.read(table, bytes_of(name_of_object(0))).status, StoreStatus::kOk);
  });
}

// ---- a part of the log is gone between two attempts ----

// Node 0 has a head at node 1 alone, as it cannot reach node 2. A recovery that finds this head
// cannot end, since no heir has the room; then node 1 dies, too. What that head had was not
// committed, and the log is whole without it.
TEST(TailwindHardRecoverySim, AHeadThatIsGoneSinceTheFirstAttemptHoldsNothingUp) {
  Options options = small_options("sim", Replication::kTailwind);
  options.servers = options.coordinator = 6;
  options.placement = Placement::kGroups;
  options.workers = 60;  // each waits with a PUT
  options.buffers = 64;
  options.call_timeout = 50 * kMillisecond;
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  run_store(cluster, options, kSecond, [&](Env& env, Client& client, OpenStore& store) {
    const std::uint64_t table = client.create_table("first", {0});
    const std::string value(2500, 'v'), other(2500, 'w');
    for (int number = 0; number < 100; ++number)
      client.write(table, bytes_of(name_of_object(number)), bytes_of(value));
    cluster.block(0, 2, kSecond);
    cluster.block(2, 0, kSecond);
    for (int number = 0; number < 60; ++number)  // more than the head takes
      client.start(Opcode::kWrite, table, bytes_of(name_of_object(number)), bytes_of(other),
                   [](const Result&) {});
    client.run_until([] { return false; }, env.now() + 5 * kMillisecond);
    // The heirs hear of the recovery, and are killed before they have answered.
    for (NodeId heir = 3; heir < 6; ++heir) cluster.pause(heir, 20 * kMillisecond);
    cluster.kill(0);
    client.run_until(
        [&] {
          const auto reports = store.coordinator->recoveries();
          return std::ranges::any_of(reports, [](const RecoveryReport& report) {
            return report.dead.node == 0 && report.assigned != 0;
          });
        },
        env.now() + 100 * kMillisecond);
    cluster.kill(1);
    Client reader(env, options, 1, kSecond);
    for (int number = 0; number < 100; ++number) {
      const Result found = reader.read(table, bytes_of(name_of_object(number)));
      EXPECT_EQ(found.status, StoreStatus::kOk) << number;
      EXPECT_TRUE(text_of(found.value) == value || (number < 60 && text_of(found.value) == other));
    }
  });
}

// ---- little room ----

struct Crowded {
  bool is_recovered = false;
  int puts = 0, refused = 0;  // of the tablets of servers that live, during the recovery
  std::string problem;
};

/// Each of four servers has so many percent of its log in use by objects. One dies.
Crowded with_logs_used_to(int percent) {
  Options options = small_options("sim", Replication::kTailwind);
  options.log_bytes = 4U << 20;
  options.buffers = 160;
  options.keys = 20'000;
  options.lease = 3 * kMillisecond;
  options.call_timeout = 5 * kMillisecond;
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  Crowded result;
  run_store(cluster, options, kSecond, [&](Env& env, Client& client, OpenStore& store) {
    std::vector<std::uint64_t> tables;
    for (NodeId node = 0; node < options.servers; ++node)
      tables.push_back(client.create_table("table " + std::to_string(node), {node}));
    const std::string value(2000, 'v');
    const int objects = static_cast<int>(options.log_bytes) / 100 * percent / 2100;
    const auto put = [&](std::uint64_t table, int number) {
      client.start(Opcode::kWrite, table, bytes_of(name_of_object(number)), bytes_of(value),
                   [&](const Result& put) {
                     ++(put.status == StoreStatus::kOk ? result.puts : result.refused);
                   });
      client.run_until([&] { return client.under_way() < 8; }, kForever);
    };
    for (const std::uint64_t table : tables)
      for (int number = 0; number < objects; ++number) put(table, number);
    client.run_until([&] { return client.under_way() == 0; }, kForever);
    EXPECT_EQ(result.refused, 0);
    result = {};
    cluster.kill(1);
    const Time end = env.now() + 150 * kMillisecond;
    for (int number = 0; env.now() < end; ++number)
      put(tables[number % 2 == 0 ? 2 : 3], number % objects);
    for (const RecoveryReport& report : store.coordinator->recoveries()) {
      if (report.dead.node != 1) continue;
      result.is_recovered = report.ended != 0;
      result.problem = report.problem;
    }
    if (!result.is_recovered) return;
    for (int number = 0; number < objects; ++number) {
      const Result found = client.read(tables[1], bytes_of(name_of_object(number)));
      EXPECT_EQ(text_of(found.value), value) << number;
    }
  });
  return result;
}

TEST(TailwindHardRecoverySim, AFullLogIsSharedByHeirsThatHaveTheRoomTogether) {
  for (const int percent : {40, 55}) {
    const Crowded crowded = with_logs_used_to(percent);
    EXPECT_TRUE(crowded.is_recovered) << percent << " %: " << crowded.problem;
    EXPECT_EQ(crowded.refused, 0) << percent << " %";
    EXPECT_GT(crowded.puts, 1000) << percent << " %";
  }
}

// A log has more old versions than an heir has memory for, or its backups' disks time.
TEST(TailwindHardRecoverySim, HeirsStoreFewVersionsThatLaterOnesReplace) {
  constexpr int kKeys = 10, kWrites = 600, kBytes = 3000;
  const Options options = small_options("sim", Replication::kTailwind);
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  std::uint64_t stored = 0;
  run_store(cluster, options, 100 * kMillisecond, [&](Env&, Client& client, OpenStore& store) {
    const std::uint64_t table = client.create_table("first", {0});
    for (int number = 0; number < kWrites; ++number)
      client.write(table, bytes_of(name_of_object(number % kKeys)),
                   bytes_of(std::to_string(number) + std::string(kBytes, 'v')));
    cluster.kill(0);
    for (int key = 0; key < kKeys; ++key) {
      const Result found = client.read(table, bytes_of(name_of_object(key)));
      EXPECT_EQ(text_of(found.value).substr(0, 3), std::to_string(kWrites - kKeys + key));
    }
    for (NodeId node = 1; node < options.servers; ++node)
      stored += store.servers[node]->log().used_bytes();
  });
  EXPECT_LT(stored, kWrites * kBytes / 4);
}

TEST(TailwindHardRecoverySim, ALogThatFitsNowhereDoesNotStopTheOthers) {
  const Crowded crowded = with_logs_used_to(75);
  EXPECT_FALSE(crowded.is_recovered);
  EXPECT_NE(crowded.problem.find("the logs have room for"), std::string::npos) << crowded.problem;
  EXPECT_EQ(crowded.refused, 0);
  EXPECT_GT(crowded.puts, 1000);
}

}  // namespace
}  // namespace pyrdma::tailwind
