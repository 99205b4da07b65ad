// Tests of the switches' marks by RED, and of the way of a mark to a program.
#include <gtest/gtest.h>

#include <vector>

#include "base/error_test.h"
#include "fabric/sim/endpoint_test.h"
#include "fabric/sim/network.h"

namespace pyrdma::fabric::sim {
namespace {

using MarkChanges = std::map<std::string, double>;
constexpr double kKmin = 100'000, kKmax = 300'000, kPmax = 0.2;

MarkChanges red(double kmax = kKmax) {
  return {{"switch.ecn_threshold_bytes", kKmin},
          {"switch.ecn_kmax_bytes", kmax},
          {"switch.ecn_pmax", kPmax},
          {"switch.pfc_xoff_bytes", 1e9},
          {"switch.buffer_bytes", 1e9}};
}

// Passes 20,000 messages through a port whose backlog stays at `backlog` bytes. Returns which ones
// it marks.
std::vector<bool> marks_at(double backlog, const MarkChanges& changes, std::uint64_t seed = 1) {
  constexpr double kBytes = 1000;
  const SimOptions world = sim_options(2, changes);
  Network network(world.profile, 2, 1, seed);
  Picos now = 1'000'000'000;
  network.enter_port(0, now, backlog);  // passes the idle port
  network.enter_port(0, now, backlog);  // waits until the port has sent as much
  now += network.wire_time(kBytes);
  std::vector<bool> marks;
  for (int i = 0; i < 20'000; ++i, now += network.wire_time(kBytes)) {
    const Network::PortResult port = network.enter_port(0, now, kBytes);
    EXPECT_NEAR(static_cast<double>(port.delay), static_cast<double>(network.wire_time(backlog)), 1)
        << "the backlog must stay";
    marks.push_back(port.ecn_marked);
  }
  return marks;
}

double share_at(double backlog, const MarkChanges& changes) {
  double marked = 0;
  for (const bool mark : marks_at(backlog, changes)) marked += mark;
  return marked / 20'000;
}

TEST(SwitchMarks, ByRedGrowWithTheBacklog) {
  EXPECT_EQ(share_at(kKmin - 1000, red()), 0);
  EXPECT_NEAR(share_at(150'000, red()), kPmax / 4, 0.008) << "five standard deviations";
  EXPECT_NEAR(share_at(200'000, red()), kPmax / 2, 0.011);
  EXPECT_NEAR(share_at(kKmax - 1000, red()), kPmax, 0.015);
  EXPECT_EQ(share_at(kKmax + 1000, red()), 1);
}

TEST(SwitchMarks, WithoutRedBeginAtTheThreshold) {
  for (const double kmax : {0.0, kKmin}) {
    EXPECT_EQ(share_at(kKmin - 1000, red(kmax)), 0);
    EXPECT_EQ(share_at(kKmin + 1000, red(kmax)), 1);
  }
}

TEST(SwitchMarks, ByRedComeFromTheSeed) {
  EXPECT_EQ(marks_at(200'000, red(), 1), marks_at(200'000, red(), 1));
  EXPECT_NE(marks_at(200'000, red(), 1), marks_at(200'000, red(), 2));
}

TEST(SwitchMarks, ByRedEndAboveTheirBegin) {
  auto values = test_profile_values();
  values["switch.ecn_threshold_bytes"] = 5000;
  values["switch.ecn_kmax_bytes"] = 4999;
  EXPECT_TRUE(refuses([&] { SimProfile::from_values(values); }, ErrorCode::kInvalidArgument,
                      {"switch.ecn_kmax_bytes", "4999", "switch.ecn_threshold_bytes", "5000"}));
}

struct Seen {
  std::uint64_t datagrams = 0, congested = 0, counted = 0;
};

// Four nodes each send 200 datagrams to node 0 at once.
Seen incast(MarkChanges changes) {
  changes.insert({{"link.lossless", 0}});
  SimCluster cluster(sim_options(5, changes));
  Seen seen;
  cluster.run([&](Env& env) {
    constexpr std::uint32_t kBytes = 1024, kEach = 200;
    Device& device = env.device();
    const auto pd = device.create_protection_domain();
    const auto completions = device.create_completion_queue(1024);
    const auto memory = device.allocate(*pd, kBytes + kGrhBytes, kAllAccess);
    QpOptions options;
    options.transport = Transport::kUd;
    options.send_entries = kEach;
    options.receive_entries = 4 * kEach;
    const auto pair = device.create_queue_pair(*pd, *completions, *completions, options);
    pair->connect({});
    const auto next = [&] {
      Completion completion;
      env.poll_until(
          [&] {
            return completions->poll({&completion, 1}) == 1;
          },
          kForever, &completions->watch());
      EXPECT_EQ(completion.status, Status::kSuccess);
      return completion;
    };
    if (env.node() == 0) {
      for (std::uint32_t i = 0; i < 4 * kEach; ++i)
        ASSERT_TRUE(pair->receive(memory->sge(0, kBytes + kGrhBytes)));
      device.rendezvous().publish_value("address", pair->address());
      for (std::uint32_t i = 0; i < 4 * kEach; ++i) {
        const Completion completion = next();
        ++seen.datagrams;
        seen.congested += (completion.flags & kCongested) != 0;
        EXPECT_NE(completion.flags & kHasGrh, 0);
      }
      return;
    }
    const auto address = device.rendezvous().await_value<QpAddress>("address", kForever);
    const auto handle = device.create_address_handle(*pd, address);
    const Sge sge = memory->sge(0, kBytes);
    WorkRequest request;
    request.sges = &sge;
    request.sge_count = 1;
    request.opcode = Opcode::kSend;
    request.address_handle = handle.get();
    request.remote_qpn = address.qp_num;
    request.remote_qkey = options.qkey;
    for (std::uint32_t i = 0; i < kEach; ++i) ASSERT_EQ(pair->post({&request, 1}).accepted, 1u);
    for (std::uint32_t i = 0; i < kEach; ++i)
      EXPECT_EQ(next().flags & kCongested, 0) << "a send has no mark";
  });
  seen.counted = cluster.counters(0).ecn_marked;
  return seen;
}

TEST(SwitchMarks, ReachTheProgramWithTheDatagram) {
  const Seen seen = incast(red());
  EXPECT_EQ(seen.datagrams, 800u);
  EXPECT_GT(seen.congested, 100u);
  EXPECT_LT(seen.congested, 700u);
  EXPECT_EQ(seen.congested, seen.counted) << "NIC and program see the same marks";
}

TEST(SwitchMarks, AreOnlyCountedWithoutRed) {
  const Seen seen = incast(red(0));
  EXPECT_GT(seen.counted, 100u);
  EXPECT_EQ(seen.congested, 0u);
}

TEST(SwitchMarks, OfASpineReachTheProgramToo) {
  // All marks come from the link of the spine: node 0's rack has no other node, and its own port is
  // as fast as that link.
  MarkChanges changes = red();
  changes.insert({{"topology.two_tier", 1},
                  {"topology.nodes_per_tor", 1},
                  {"topology.uplinks_per_tor", 1},
                  {"topology.uplink_gbps", 100}});
  const Seen seen = incast(changes);
  EXPECT_GT(seen.congested, 100u);
  EXPECT_EQ(seen.congested, seen.counted);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
