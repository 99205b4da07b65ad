// Nodes with several NICs: equal queue pair numbers, and a NIC that fails alone.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error_test.h"
#include "env/storage.h"
#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {

SimOptions with_two_devices(std::uint32_t nodes = 2, std::uint64_t seed = 1) {
  SimOptions options;
  options.nodes = nodes;
  options.devices_per_node = 2;
  options.profile = test_profile();
  options.seed = seed;
  return options;
}

/// One queue pair on one device of a node, with all that it uses.
struct Port {
  Port(SimCluster& cluster, NodeId node, std::uint32_t number)
      : env(cluster.env(node)),
        device(env.device_at(number)),
        pd(device.create_protection_domain()),
        memory(device.allocate(*pd, 4096, kAllAccess)),
        completions(device.create_completion_queue(256)),
        qp(device.create_queue_pair(*pd, *completions, *completions, options())) {}
  static QpOptions options() {
    QpOptions options;
    options.timeout_us = 10;
    options.retry_count = 2;
    return options;
  }
  std::uint64_t* word(std::size_t at) const {
    return reinterpret_cast<std::uint64_t*>(memory->data()) + at;
  }
  bool write(std::uint64_t value, const Port& to, std::uint64_t wr_id) const {
    *word(0) = value;
    return qp->write(memory->sge(0, 8), to.memory->remote(), 8, wr_id);
  }
  Completion await() const {
    Completion completion;
    completion.status = Status::kGeneral;
    env.poll_until(
        [&] {
          return completions->poll({&completion, 1}) == 1;
        },
        env.now() + kSecond, &completions->watch());
    return completion;
  }
  void reset() const {
    qp->fail();
    qp->modify(QpState::kReset);
  }

  Env& env;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> memory;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> qp;
};

void connect(const Port& a, const Port& b) {
  a.qp->connect(b.qp->address());
  b.qp->connect(a.qp->address());
}

TEST(TwoDevices, EqualNumbersNameDifferentQueuePairsAndRegions) {
  SimCluster cluster(with_two_devices());
  const Port a0(cluster, 0, 0), a1(cluster, 0, 1), b0(cluster, 1, 0), b1(cluster, 1, 1);
  EXPECT_EQ(cluster.env(0).devices(), 2U);
  EXPECT_EQ(a0.device.name(), "sim0");
  EXPECT_EQ(a1.device.name(), "sim0.1");
  EXPECT_EQ(a0.qp->qp_num(), a1.qp->qp_num());
  EXPECT_EQ(b0.qp->qp_num(), b1.qp->qp_num());
  EXPECT_EQ(b0.memory->rkey(), b1.memory->rkey());
  connect(a0, b0);
  connect(a1, b1);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    ASSERT_TRUE(a0.write(i, b0, i));
    ASSERT_TRUE(a1.write(100 + i, b1, 100 + i));
    const Completion first = a0.await(), second = a1.await();
    EXPECT_EQ(first.wr_id, i);
    EXPECT_EQ(second.wr_id, 100 + i);
    EXPECT_EQ(first.qp_num, second.qp_num) << "only the device tells them apart";
    EXPECT_EQ(*b0.word(1), i);
    EXPECT_EQ(*b1.word(1), 100 + i);
  }
  EXPECT_GE(cluster.counters(0, 0).requests, 20U);
  EXPECT_GE(cluster.counters(0, 1).requests, 20U);
}

TEST(TwoDevices, ARegionIsReachedOnlyThroughItsDevice) {
  SimCluster cluster(with_two_devices());
  const Port a(cluster, 0, 0), b0(cluster, 1, 0), b1(cluster, 1, 1);
  connect(a, b1);  // devices of different numbers connect, too
  ASSERT_TRUE(a.write(5, b1, 1));
  EXPECT_EQ(a.await().status, Status::kSuccess);
  ASSERT_TRUE(a.write(6, b0, 2)) << "b0's region has this key, at another address";
  EXPECT_EQ(a.await().status, Status::kRemoteAccess);
  EXPECT_EQ(*b0.word(1), 0U);
}

TEST(TwoDevices, ObjectsOfTwoDevicesDoNotMix) {
  SimCluster cluster(with_two_devices());
  const Port first(cluster, 0, 0), second(cluster, 0, 1);
  const auto shared = first.device.create_shared_receive_queue(*first.pd, 16);
  const auto refused = [](auto&& make) {
    return refuses(make, ErrorCode::kInvalidArgument, {"sim0", "sim0.1"});
  };
  EXPECT_TRUE(refused([&] { second.device.allocate(*first.pd, 64); }));
  EXPECT_TRUE(refused([&] {
    second.device.create_queue_pair(*first.pd, *second.completions, *second.completions);
  }));
  EXPECT_TRUE(refused([&] {
    second.device.create_queue_pair(*second.pd, *first.completions, *second.completions);
  }));
  EXPECT_TRUE(refused([&] {
    second.device.create_queue_pair(*second.pd, *second.completions, *first.completions);
  }));
  EXPECT_TRUE(refused([&] {
    second.device.create_queue_pair(*second.pd, *second.completions, *second.completions, {},
                                    shared.get());
  }));
}

TEST(TwoDevices, OneFailsAloneAndComesBack) {
  SimCluster cluster(with_two_devices());
  const Port a0(cluster, 0, 0), a1(cluster, 0, 1), b0(cluster, 1, 0), b1(cluster, 1, 1);
  connect(a0, b0);
  connect(a1, b1);
  cluster.fail_device(1, 1, kMillisecond);
  EXPECT_EQ(b1.qp->state(), QpState::kError);
  ASSERT_TRUE(b1.write(1, a1, 1));
  EXPECT_EQ(b1.await().status, Status::kFlushed);
  ASSERT_TRUE(a1.write(2, b1, 2));
  ASSERT_TRUE(a1.write(3, b1, 3));
  ASSERT_TRUE(a0.write(4, b0, 4));
  const Completion other = a0.await(), lost = a1.await(), flushed = a1.await();
  EXPECT_EQ(other.wr_id, 4U);
  EXPECT_EQ(other.status, Status::kSuccess) << "its number equals that of the failed queue pair";
  EXPECT_EQ(lost.wr_id, 2U);
  EXPECT_EQ(lost.status, Status::kRetryExceeded);
  EXPECT_EQ(flushed.wr_id, 3U);
  EXPECT_EQ(flushed.status, Status::kFlushed);
  EXPECT_EQ(b0.qp->state(), QpState::kReadyToSend);
  const auto failure = static_cast<std::size_t>(Fault::nic_failure);
  EXPECT_EQ(cluster.fault_counters().fired[failure], 1U);
  EXPECT_GE(cluster.fault_counters().reached[failure], 1U);

  a0.env.sleep_until(a0.env.now() + kMillisecond);
  a1.reset();
  b1.reset();
  connect(a1, b1);
  ASSERT_TRUE(a1.write(7, b1, 7));
  EXPECT_EQ(a1.await().status, Status::kSuccess) << "the memory stays registered";
  EXPECT_EQ(*b1.word(1), 7U);
}

TEST(TwoDevices, HealEndsAFailure) {
  SimCluster cluster(with_two_devices());
  const Port a(cluster, 0, 1), b(cluster, 1, 1);
  cluster.fail_device(1, 1, kSecond);
  cluster.heal();
  b.reset();
  connect(a, b);
  ASSERT_TRUE(a.write(1, b, 1));
  EXPECT_EQ(a.await().status, Status::kSuccess);
}

// Random failures of NICs, under traffic on all pairs of devices. Each completion must be of a
// request that its own queue pair, named by device and number, has in flight; a pair of devices
// without a failure loses nothing.
TEST(TwoDevices, RandomFailuresHitOneDeviceAtATime) {
  constexpr std::size_t kPairs = 4;
  std::set<std::size_t> hit;  // ports with a failure
  std::uint64_t lost = 0, done = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SimOptions options = with_two_devices(2, seed);
    // One window on average, which stays open.
    options.faults = FaultOptions::from_values(
        {{"nic_failure", 1}, {"nic_failure.min_ns", 1e9}, {"nic_failure.max_ns", 1e9}});
    SimCluster cluster(options);
    std::vector<Port> from, to;
    for (std::size_t i = 0; i < kPairs; ++i) {
      from.emplace_back(cluster, 0, i % 2);
      to.emplace_back(cluster, 1, i / 2);
      connect(from[i], to[i]);
    }
    std::map<std::pair<std::string, std::uint32_t>, std::size_t> sender;
    for (std::size_t i = 0; i < kPairs; ++i)
      sender[{from[i].device.name(), from[i].qp->qp_num()}] = i;
    ASSERT_EQ(sender.size(), kPairs);
    std::array<bool, kPairs> failed{};
    std::uint64_t failures = 0;  // before the last round: both pairs of the device have met them
    for (std::uint64_t round = 1; round <= 30; ++round) {
      failures = cluster.fault_counters().fired[static_cast<std::size_t>(Fault::nic_failure)];
      for (std::size_t i = 0; i < kPairs; ++i)
        ASSERT_TRUE(from[i].write(round, to[i], round << 8 | i));
      for (std::size_t i = 0; i < kPairs; ++i) {
        const Completion completion = from[i].await();
        EXPECT_EQ((sender[{from[i].device.name(), completion.qp_num}]), i);
        EXPECT_EQ(completion.wr_id, round << 8 | i);
        EXPECT_EQ(from[i].completions->poll(std::span<Completion>()), 0U);
        if (completion.status == Status::kSuccess) {
          EXPECT_FALSE(failed[i]);
        }
        failed[i] = failed[i] || completion.status != Status::kSuccess;
        ++(failed[i] ? lost : done);
      }
      from[0].env.sleep_until(from[0].env.now() + 30 * kMicrosecond);
    }
    if (failures != 1) continue;
    // Pair i uses device i % 2 of node 0 and device i / 2 of node 1.
    const std::array<std::array<bool, kPairs>, 4> by_port = {{{true, false, true, false},
                                                              {true, true, false, false},
                                                              {false, true, false, true},
                                                              {false, false, true, true}}};
    const auto found = std::find(by_port.begin(), by_port.end(), failed);
    ASSERT_NE(found, by_port.end()) << "seed " << seed << ": not the pairs of one device";
    hit.insert(static_cast<std::size_t>(found - by_port.begin()));
  }
  EXPECT_EQ(hit.size(), 4U) << "each NIC fails in some run";
  EXPECT_GT(lost, 100U);
  EXPECT_GT(done, 1000U);
}

TEST(TwoDevices, ACrashOfTheNodeEndsBothAndABatterySavesTheMemoryOfBoth) {
  SimCluster cluster(with_two_devices());
  const Port a0(cluster, 0, 0), a1(cluster, 0, 1);
  {
    const Port b0(cluster, 1, 0), b1(cluster, 1, 1);
    connect(a0, b0);
    connect(a1, b1);
    *b0.word(0) = 10;
    *b1.word(0) = 11;
    cluster.kill(1, Crash::kHostBattery);
    for (const Port* port : {&a0, &a1}) {
      ASSERT_TRUE(port->write(1, port == &a0 ? b0 : b1, 1));
      EXPECT_EQ(port->await().status, Status::kRetryExceeded);
    }
  }
  cluster.restart(1);
  for (std::uint64_t i = 0; i < 2; ++i) {
    std::uint64_t saved = 0;
    const auto file = cluster.env(1).storage().open("memory-" + std::to_string(i));
    file->read(0, std::as_writable_bytes(std::span(&saved, 1)));
    EXPECT_EQ(saved, 10 + i);
  }
}

TEST(TwoDevices, NumbersOutOfRangeAreNamed) {
  SimOptions options = with_two_devices();
  for (const std::uint32_t devices : {0U, 17U}) {
    options.devices_per_node = devices;
    EXPECT_TRUE(refuses([&] { SimCluster cluster(options); }, ErrorCode::kInvalidArgument,
                        {devices == 0 ? "0" : "17", "16"}));
  }
  SimCluster cluster(with_two_devices());
  EXPECT_TRUE(
      refuses([&] { cluster.fail_device(1, 2, kSecond); }, ErrorCode::kInvalidArgument, {"2"}));
  EXPECT_TRUE(
      refuses([&] { cluster.fail_device(2, 0, kSecond); }, ErrorCode::kInvalidArgument, {"2"}));
  const Port a(cluster, 0, 0);
  QpAddress nowhere = a.qp->address();
  nowhere.lid = 2;
  EXPECT_TRUE(refuses([&] { a.qp->connect(nowhere); }, ErrorCode::kInvalidArgument, {"2"}));
}

}  // namespace
}  // namespace pyrdma::fabric::sim
