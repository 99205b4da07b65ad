// Tests of the switches: shares of the buffer, paths, drops, marks and pauses on every hop.
#include "fabric/sim/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/sim/endpoint_test.h"

namespace pyrdma::fabric::sim {
namespace {

using Changes = std::map<std::string, double>;

// ---- one switch ----

// Offers messages to `ports` ports at one instant until every port drops. Returns the bytes that
// each port holds.
std::vector<double> fill(double alpha, std::uint32_t ports) {
  const SimOptions world =
      sim_options(4, {{"link.lossless", 0}, {"switch.alpha", alpha}, {"switch.buffer_bytes", 1e6}});
  Network network(world.profile, 4, 1);
  constexpr double kBytes = 1000;
  constexpr Picos kThen = 1'000'000'000;
  std::vector<double> held(ports);
  std::uint32_t full = 0;
  for (std::uint32_t port = 0; port < ports; ++port)
    EXPECT_EQ(network.enter_port(port, kThen, kBytes).delay, 0) << "an idle port holds nothing";
  for (int turn = 0; turn < 2000 && full < ports; ++turn) {
    full = 0;
    for (std::uint32_t port = 0; port < ports; ++port) {
      const bool dropped = network.enter_port(port, kThen, kBytes).dropped;
      held[port] += dropped ? 0 : kBytes;
      full += dropped;
    }
  }
  EXPECT_EQ(full, ports) << "every port must have dropped";
  EXPECT_GE(network.counters().node.dropped, ports);
  EXPECT_EQ(network.counters().uplink.dropped, 0u);
  return held;
}

TEST(Switch, APortHoldsAtMostItsShareOfTheBuffer) {
  for (const double alpha : {0.5, 1.0, 8.0}) {
    for (const std::uint32_t ports : {1u, 2u, 4u}) {
      for (const double held : fill(alpha, ports))
        EXPECT_NEAR(held, 1e6 * alpha / (1 + ports * alpha), 2000)
            << ports << " ports share, alpha is " << alpha;
    }
  }
}

TEST(Switch, AFullBufferHasRoomAgainWhenAPortHasSent) {
  const SimOptions world = sim_options(2, {{"link.lossless", 0}, {"switch.buffer_bytes", 1e6}});
  Network network(world.profile, 2, 1);
  Picos now = 1'000'000'000;
  while (!network.enter_port(0, now, 1000).dropped) continue;
  EXPECT_TRUE(network.enter_port(0, now, 1000).dropped);
  now += network.wire_time(5000);
  int accepted = 0;
  while (!network.enter_port(0, now, 1000).dropped) ++accepted;
  EXPECT_NEAR(accepted, 5, 1) << "the port sent 5000 bytes meanwhile";
}

// ---- paths ----

TEST(Switch, FlowsSpreadOverUplinksAndSpinesByHash) {
  for (const std::uint32_t spines : {1u, 2u}) {
    const SimOptions world = sim_options(64, {{"topology.two_tier", 1},
                                              {"topology.uplinks_per_tor", 4},
                                              {"topology.spines", static_cast<double>(spines)}});
    const Network network(world.profile, 64, 1);
    std::map<std::uint32_t, double> up;
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> pairs;
    constexpr double kFlows = 16000;
    for (std::uint64_t flow = 0; flow < 16000; ++flow) {
      const Network::Path path = network.path(0, 63, flow);
      ++up[path.up];
      ++pairs[{path.up, path.down}];
      EXPECT_EQ(path.up % 4 % spines, path.down % 4 % spines) << "both links end at one spine";
    }
    // Five standard deviations of a binomial distribution.
    const auto check = [&](double count, double cells) {
      EXPECT_NEAR(count, kFlows / cells, 5 * std::sqrt(kFlows / cells));
    };
    EXPECT_EQ(up.size(), 4u);
    EXPECT_EQ(pairs.size(), 16u / spines) << "a spine's hash must differ from a rack's";
    for (const auto& [link, count] : up) check(count, 4);
    for (const auto& [link, count] : pairs) check(count, 16.0 / spines);
  }
}

TEST(Switch, ForwardingTablesSpreadTargetsEvenly) {
  const SimOptions world = sim_options(64, {{"topology.two_tier", 1}, {"topology.ecmp", 0}});
  const Network network(world.profile, 64, 1);
  std::map<std::uint32_t, int> up;
  for (std::uint32_t to = 16; to < 32; ++to) {
    const Network::Path path = network.path(0, to, 1);
    ++up[path.up];
    EXPECT_EQ(path.up, network.path(0, to, 99).up) << "the path is independent of the flow";
    EXPECT_EQ(path.down, network.path(50, to, 5).down) << "and of the source";
  }
  ASSERT_EQ(up.size(), 4u);
  for (const auto& [link, targets] : up) EXPECT_EQ(targets, 4);
}

// ---- flow control of one switch ----

TEST(Switch, APortIsPausedByItsOwnBytes) {
  const SimOptions world = sim_options(64, {{"topology.two_tier", 1}});
  Network network(world.profile, 64, 1);
  constexpr std::uint32_t kNone = Network::kNoLink;
  constexpr Picos kFirst = 1000, kTime = 100;  // message i leaves at kFirst + i * kTime
  const auto count = [&](std::uint32_t nic, std::uint32_t in, std::uint32_t out, Picos now, int i) {
    return network.count_ingress(nic, in, out, now, kFirst + i * kTime, 1000, 5000);
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(count(0, kNone, kNone, 0, i), 0);
  EXPECT_EQ(count(1, kNone, kNone, 0, 5), 0) << "another NIC is not to blame";
  EXPECT_EQ(count(0, 0, kNone, 0, 6), 0) << "nor a link that brings a message of the same NIC";
  EXPECT_EQ(network.counters().node.paused, 0u);
  EXPECT_EQ(count(0, kNone, kNone, 0, 7), kFirst) << "until 5000 bytes are left";
  EXPECT_EQ(network.counters().node.paused, 1u);
  EXPECT_EQ(count(0, kNone, kNone, kFirst + 2 * kTime, 8), 0) << "three messages have left";

  // Messages that leave by an uplink stay as long as a spine pauses it.
  const std::uint32_t up = network.path(2, 63, 1).up;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(count(2, kNone, up, 0, i), 0);
  network.pause(up, 0, 10 * kTime);
  EXPECT_EQ(count(2, kNone, up, kFirst + 9 * kTime, 20), kFirst + 10 * kTime);
  EXPECT_EQ(network.counters().uplink.paused, 1u);
}

// ---- flows through a cluster ----

/// A stream of requests from one node to another.
struct Flow {
  NodeId from, to;
  int requests;
  bool reads = false;
  std::uint32_t size = 32768;
  double gbps = 0;  // the result
};

struct Outcome {
  NetworkCounters network;
  std::vector<NicCounters> nics;
  double gbps = 0;  // of all flows together
};

/// Runs all flows at once. Checks that every request succeeds and that writes bring the right
/// bytes.
Outcome run(const SimOptions& world, std::vector<Flow>& flows, const QpOptions& qp = {}) {
  SimCluster cluster(world);
  Time begin = kForever, last_end = 0;
  const auto body = [&](Env& env, Flow& flow, std::size_t number) {
    const bool sends = env.node() == flow.from;
    const std::size_t bytes = std::max<std::size_t>(flow.size, 64);
    Endpoint end(env, sends ? flow.to : flow.from, bytes, qp, std::to_string(number));
    std::memset(end.memory->data(), sends ? static_cast<int>(number % 100) + 1 : 0, bytes);
    if (sends) {
      const Time start = env.now();
      for (int i = 0; i < flow.requests; ++i) {
        const bool last = i + 1 == flow.requests;
        if (flow.reads)
          end.queue_pair->read(end.memory->sge(0, flow.size), end.remote, 0, 0,
                               last ? kSignaled : 0);
        else
          end.queue_pair->write(end.memory->sge(0, flow.size), end.remote, 0, 0,
                                last ? kSignaled : 0);
      }
      EXPECT_EQ(end.next().status, Status::kSuccess) << "flow " << number;
      flow.gbps = 8.0 * flow.size * flow.requests / static_cast<double>(env.now() - start);
      begin = std::min(begin, start);
      last_end = std::max(last_end, env.now());
    }
    end.meet("end");
    if (!sends && !flow.reads) {
      EXPECT_EQ(std::to_integer<int>(end.memory->data()[flow.size - 1]),
                static_cast<int>(number % 100) + 1);
    }
  };
  cluster.run([&](Env& env) {
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::size_t i = 0; i < flows.size(); ++i)
      if (flows[i].from == env.node() || flows[i].to == env.node())
        threads.push_back(env.spawn("flow", [&, i] { body(env, flows[i], i); }));
    for (auto& thread : threads) thread->join();
  });
  Outcome outcome{cluster.network_counters(), {}, 0};
  for (const Flow& flow : flows)
    outcome.gbps += 8.0 * flow.size * flow.requests / static_cast<double>(last_end - begin);
  for (NodeId node = 0; node < cluster.nodes(); ++node)
    outcome.nics.push_back(cluster.counters(node));
  return outcome;
}

/// Two racks of 40 nodes of 25 Gb/s with five uplinks of 100 Gb/s. Every node of the first rack
/// sends to a node of the second, twice as much as the uplinks carry.
Outcome forty_senders(Changes changes) {
  changes.insert({{"topology.two_tier", 1},
                  {"topology.nodes_per_tor", 40},
                  {"topology.uplinks_per_tor", 5},
                  {"link.rate_gbps", 25},
                  {"switch.ecn_threshold_bytes", 150000}});
  std::vector<Flow> flows;
  for (NodeId node = 0; node < 40; ++node) flows.push_back({node, node + 40, 30});
  QpOptions qp;
  qp.timeout_us = 300;  // a full switch holds 160 us of an uplink
  const Outcome outcome = run(sim_options(80, changes), flows, qp);
  EXPECT_LT(outcome.gbps, 500) << "the uplinks carry no more";
  EXPECT_GT(outcome.gbps, 100);
  return outcome;
}

TEST(Switch, FortySendersOverflowTheUplinksOfALossyNetwork) {
  const Outcome outcome = forty_senders({{"link.lossless", 0}, {"switch.buffer_bytes", 2e6}});
  EXPECT_GT(outcome.network.uplink.dropped, 0u);
  EXPECT_GT(outcome.network.uplink.ecn_marked, 0u);
  EXPECT_EQ(outcome.network.uplink.paused, 0u);
  std::uint64_t dropped = 0, marked = 0, retransmitted = 0;
  for (const NicCounters& nic : outcome.nics) {
    dropped += nic.dropped;
    marked += nic.ecn_marked;
    retransmitted += nic.retransmitted;
  }
  EXPECT_EQ(dropped, outcome.network.uplink.dropped + outcome.network.spine.dropped +
                         outcome.network.node.dropped)
      << "the receivers must count every drop";
  EXPECT_GT(marked, 0u);
  EXPECT_GT(retransmitted, 0u) << "the drops must reach the retransmitters";
}

TEST(Switch, FortySendersArePausedByTheUplinksOfALosslessNetwork) {
  const Outcome outcome = forty_senders(
      {{"switch.buffer_bytes", 12e6}, {"switch.alpha", 8}, {"switch.pfc_xoff_bytes", 250000}});
  for (const QueueCounters* tier :
       {&outcome.network.node, &outcome.network.uplink, &outcome.network.spine})
    EXPECT_EQ(tier->dropped, 0u);
  EXPECT_GT(outcome.network.uplink.ecn_marked, 0u);
  EXPECT_GT(outcome.network.uplink.paused, 0u);
  std::uint64_t paused = 0, retransmitted = 0;
  for (NodeId node = 0; node < 40; ++node) {
    paused += outcome.nics[node].paused > 0;
    retransmitted += outcome.nics[node].retransmitted;
  }
  EXPECT_GT(paused, 20u) << "a pause must stop the senders";
  EXPECT_EQ(retransmitted, 0u);
}

TEST(Switch, AnUplinkThatIsPausedHoldsUpFlowsToOtherRacks) {
  // Two racks send to node 32 of the third rack, over one link from the spine. Node 1's flow to
  // node 17 shares only the uplink of the first rack.
  const auto victim = [](double xoff, Outcome* outcome) {
    std::vector<Flow> flows{{0, 32, 120}, {16, 32, 120}, {1, 17, 60}};
    *outcome = run(sim_options(48, {{"topology.two_tier", 1},
                                    {"topology.uplinks_per_tor", 1},
                                    {"topology.uplink_gbps", 200},
                                    {"switch.alpha", 100},
                                    {"switch.buffer_bytes", 1e9},
                                    {"switch.pfc_xoff_bytes", xoff},
                                    {"switch.ecn_threshold_bytes", 2.5 * xoff}}),
                   flows);
    return flows[2].gbps;
  };
  Outcome paused, endless;
  const double without = victim(1e9, &endless);
  const double with = victim(100000, &paused);
  EXPECT_EQ(endless.network.node.paused, 0u);
  EXPECT_GT(without, 90) << "node 17 and the uplink of 200 Gb/s can take the whole flow";
  EXPECT_LT(with, 0.8 * without);
  EXPECT_GT(paused.network.node.paused, 0u) << "node 32 is the bottleneck: it pauses the spine,";
  EXPECT_GT(paused.network.spine.paused, 0u) << "the spine pauses the uplinks,";
  EXPECT_GT(paused.network.uplink.paused, 0u) << "the uplinks pause the senders";
  EXPECT_GT(paused.nics[16].paused, 0u);
  EXPECT_EQ(paused.network.node.ecn_marked, 0u)
      << "a pause must hold what waits in the spine, so that node 32's queue stays near xoff";
}

TEST(Switch, FlowControlSharesAPortAmongItsUpstreamPorts) {
  // Three nodes of the rack and six of another rack send to node 0. The six come by one link, which
  // gets about a quarter of the port.
  std::vector<Flow> flows;
  for (NodeId node = 1; node < 10; ++node)
    flows.push_back({node < 4 ? node : node + 12, 0, node < 4 ? 120 : 20});
  run(sim_options(32, {{"topology.two_tier", 1},
                       {"topology.uplinks_per_tor", 1},
                       {"switch.pfc_xoff_bytes", 100000}}),
      flows);
  double near = 0, far = 0;
  for (const Flow& flow : flows) (flow.from < 16 ? near : far) += flow.gbps;
  EXPECT_GT(far, 12);
  EXPECT_LT(far, 40);
  EXPECT_GT(near, 50);
}

TEST(Switch, FlowControlLosesNothingAndAlwaysEnds) {
  // A buffer far too small for the load: every node of three racks reads from and writes to nodes
  // of other racks, and many write to node 0.
  for (const double ecmp : {0.0, 1.0}) {
    std::vector<Flow> flows;
    for (NodeId node = 0; node < 24; ++node) {
      flows.push_back({node, (node + 8) % 24, 12});
      flows.push_back({node, (node + 15) % 24, 12, true});
      if (node > 0) flows.push_back({node, 0, 6});
    }
    QpOptions qp;
    qp.timeout_us = 100000;  // a time-out is a loss here
    const Outcome outcome = run(sim_options(24, {{"topology.two_tier", 1},
                                                 {"topology.nodes_per_tor", 8},
                                                 {"topology.uplinks_per_tor", 2},
                                                 {"topology.spines", 2},
                                                 {"topology.ecmp", ecmp},
                                                 {"switch.buffer_bytes", 300000},
                                                 {"switch.pfc_xoff_bytes", 50000}}),
                                flows, qp);
    for (const QueueCounters* tier :
         {&outcome.network.node, &outcome.network.uplink, &outcome.network.spine}) {
      EXPECT_EQ(tier->dropped, 0u);
      EXPECT_GT(tier->paused, 0u) << "the load must make every tier pause";
    }
    for (const NicCounters& nic : outcome.nics) EXPECT_EQ(nic.retransmitted, 0u);
  }
}

TEST(Switch, APauseStopsLongResponsesToo) {
  // Eight nodes answer the long reads of one node. Each sends at the rate of the reader's link.
  std::vector<Flow> flows;
  for (NodeId node = 1; node <= 8; ++node) flows.push_back({0, node, 4, true, 524288});
  const Outcome outcome =
      run(sim_options(9, {{"switch.pfc_xoff_bytes", 50000}, {"switch.ecn_threshold_bytes", 1e6}}),
          flows);
  EXPECT_GT(outcome.network.node.paused, 0u);
  EXPECT_EQ(outcome.network.node.ecn_marked, 0u) << "the backlog stays below 1 MB";
}

TEST(Switch, AnIdlePathBetweenRacksAddsTwoSwitchesEachWay) {
  const auto latency = [](Changes changes) {
    SimCluster cluster(sim_options(2, changes));
    double ns = 0;
    cluster.run([&](Env& env) {
      Endpoint end(env, 1 - env.node(), 4096);
      if (env.node() == 0) {
        const Time start = env.now();
        end.queue_pair->read(end.memory->sge(0, 8), end.remote, 0);
        end.next();
        ns = static_cast<double>(env.now() - start);
      }
      end.meet("end");
    });
    return ns;
  };
  const Changes racks{{"topology.two_tier", 1}, {"topology.nodes_per_tor", 1}};
  const double hops = 2 * 2 * (150 + 20);
  EXPECT_NEAR(latency(racks) - latency({}), hops, 11) << "within one empty poll";
}

}  // namespace
}  // namespace pyrdma::fabric::sim
