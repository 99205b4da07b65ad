// Seeded variance: what differs, what does not, and that nothing differs without the switch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric::sim {
namespace {

constexpr std::size_t kSmall = 1 << 20, kCache = 1 << 22, kLarge = 1 << 28;

SimOptions varied(std::map<std::string, double> changes, std::uint64_t seed = 1) {
  auto values = test_profile_values();
  values["cpu.llc_bytes"] = kCache;
  values["variance.refresh_period_ns"] = 7800;
  values["variance.tick_period_us"] = 4000;
  for (const auto& [name, value] : changes) values.at(name) = value;
  SimOptions options;
  options.profile = SimProfile::from_values(values);
  options.seed = seed;
  options.variance = true;
  return options;
}

const std::map<std::string, double> kAll = {{"variance.pcie_ns", 50},
                                            {"variance.refresh_ns", 350},
                                            {"variance.numa_ns", 80},
                                            {"variance.tick_us", 2}};

struct Latencies {
  std::vector<Time> sorted;
  std::uint64_t fingerprint = 0;
  double at(double share) const {
    return static_cast<double>(
        sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))]);
  }
  double p50() const { return at(0.5); }
  double p99() const { return at(0.99); }
  double span() const { return at(1) - at(0); }
};

/// Measures reads of 8 bytes from a region of `bytes` bytes, one at a time.
Latencies latencies(const SimOptions& options, Opcode opcode = Opcode::kRead,
                    std::size_t bytes = kLarge) {
  SimCluster cluster(options);
  Device& here = cluster.env(0).device();
  Device& there = cluster.env(1).device();
  auto my_domain = here.create_protection_domain();
  auto its_domain = there.create_protection_domain();
  auto memory = here.allocate(*my_domain, 4096, kAllAccess);
  auto target = there.allocate(*its_domain, bytes, kAllAccess);
  auto queue = here.create_completion_queue(16);
  auto its_queue = there.create_completion_queue(16);
  auto qp = here.create_queue_pair(*my_domain, *queue, *queue);
  auto peer = there.create_queue_pair(*its_domain, *its_queue, *its_queue);
  qp->connect(peer->address());
  peer->connect(qp->address());
  Latencies result;
  Env& env = cluster.env(0);
  for (int i = 0; i < 3000; ++i) {
    const Time begin = env.now();
    WorkRequest request;
    request.opcode = opcode;
    request.flags = kSignaled;
    const Sge sge = memory->sge(0, 8);
    request.sges = &sge;
    request.sge_count = 1;
    request.remote_addr = target->remote().addr;
    request.rkey = target->remote().rkey;
    EXPECT_EQ(qp->post({&request, 1}).accepted, 1U);
    Completion completion;
    env.poll_until([&] { return queue->poll({&completion, 1}) == 1; }, kForever, &queue->watch());
    result.sorted.push_back(env.now() - begin);
  }
  std::sort(result.sorted.begin(), result.sorted.end());
  result.fingerprint = cluster.fingerprint();
  return result;
}

TEST(Variance, WithoutTheSwitchNothingVaries) {
  SimOptions off = varied(kAll);
  off.variance = false;
  const Latencies quiet = latencies(off);
  EXPECT_LE(quiet.span(), 10) << "one turn of the poll loop";
  EXPECT_EQ(quiet.fingerprint, latencies(varied({})).fingerprint) << "as with zeros";
}

TEST(Variance, EqualSeedsGiveEqualRunsAndOthersOtherTailsOfTheSameMedian) {
  const Latencies one = latencies(varied(kAll, 1)), two = latencies(varied(kAll, 2));
  EXPECT_EQ(one.fingerprint, latencies(varied(kAll, 1)).fingerprint);
  EXPECT_NE(one.p99(), two.p99());
  EXPECT_NEAR(one.p50() / two.p50(), 1, 0.02);
  EXPECT_GT(one.p99(), 1.1 * one.p50());
}

TEST(Variance, ACrossingVariesAroundItsMean) {
  const Latencies quiet = latencies(varied({})),
                  loud = latencies(varied({{"variance.pcie_ns", 50}}));
  EXPECT_NEAR(loud.p50(), quiet.p50(), 10);
  EXPECT_GT(loud.span(), 60) << "two crossings, at the target and for the completion";
  EXPECT_LE(loud.span(), 120);
}

TEST(Variance, OnlyReadsThatReachDramWaitForARefresh) {
  const SimOptions options = varied({{"variance.refresh_ns", 350}});
  const Latencies large = latencies(options), small = latencies(options, Opcode::kRead, kSmall),
                  writes = latencies(options, Opcode::kWrite);
  EXPECT_GT(large.p99() - large.p50(), 200);
  EXPECT_LE(large.at(0.94) - large.p50(), 10) << "95 % of the time no bank refreshes";
  EXPECT_LE(large.span(), 360);
  EXPECT_LE(small.span(), 10);
  EXPECT_LE(writes.span(), 10);
}

TEST(Variance, HalfOfALargeRegionLiesOnTheOtherSocket) {
  const Latencies reads = latencies(varied({{"variance.numa_ns", 80}}));
  EXPECT_NEAR(reads.at(0.4) - reads.at(0), 0, 10);
  EXPECT_NEAR(reads.at(0.6) - reads.at(0.4), 80, 10);
}

/// Returns the microseconds by which `work_ms` of work on one core took longer, in `pieces` pieces.
double lost_us(const SimOptions& options, Time work_ms, Time pieces) {
  SimCluster cluster(options);
  Time taken = 0;
  cluster.run([&](Env& env) {
    if (env.node() != 0) return;
    const Time begin = env.now();
    for (Time i = 0; i < pieces; ++i) {
      env.work(work_ms * kMillisecond / pieces);
      env.now();
    }
    taken = env.now() - begin - work_ms * kMillisecond;
  });
  return static_cast<double>(taken) / 1000 - static_cast<double>(pieces + 1) * 0.008;
}

TEST(Variance, TicksTakeTheirTimeFromABusyCore) {
  const SimOptions options = varied({{"variance.tick_us", 2}});
  for (const Time pieces : {1, 7, 4000}) EXPECT_NEAR(lost_us(options, 400, pieces), 100 * 2, 20);
  EXPECT_NEAR(lost_us(varied({}), 400, 7), 0, 0.1);
}

TEST(Variance, AWaitingThreadLosesTheRestOfATickOnly) {
  SimCluster cluster(varied({{"variance.tick_us", 100}, {"variance.tick_period_us", 1000}}));
  std::vector<Time> late;
  cluster.run([&](Env& env) {
    if (env.node() != 0) return;
    for (int i = 0; i < 2000; ++i) {
      const Time due = env.now() + 137 * kMicrosecond;
      env.sleep_until(due);
      late.push_back(env.now() - due);
    }
  });
  std::sort(late.begin(), late.end());
  EXPECT_LE(late[late.size() * 8 / 10], 20) << "a tick takes a tenth of the time";
  EXPECT_GT(late[late.size() * 95 / 100], 20 * kMicrosecond);
  EXPECT_LE(late.back(), 151 * kMicrosecond);
}

/// Returns when each node leaves a handshake, and how much later a thread that it spawns begins.
std::vector<Time> starts(const SimOptions& options) {
  SimCluster cluster(options);
  std::vector<Time> found(2 * cluster.nodes());
  cluster.run([&](Env& env) {
    env.sleep_until(kMillisecond);
    if (env.node() == 0) env.device().rendezvous().publish_value("go", 1);
    env.device().rendezvous().await("go", kForever);
    const Time left = env.now();
    found[2 * env.node()] = left;
    env.spawn("thread", [&] { found[2 * env.node() + 1] = env.now() - left; });
  });
  return found;
}

TEST(Variance, NodesAndThreadsStartAtTimesOfTheirOwn) {
  constexpr Time kSpread = 10 * kMicrosecond;
  SimOptions options = varied({{"variance.start_us", 10}});
  options.nodes = 40;
  const std::vector<Time> late = starts(options);
  EXPECT_EQ(late, starts(options));
  options.seed = 2;
  EXPECT_NE(late, starts(options));
  options.variance = false;
  const std::vector<Time> even = starts(options);
  EXPECT_EQ(std::set<Time>(even.begin(), even.end()).size(), 2U) << "all at once";
  std::vector<Time> nodes, threads;
  for (std::size_t i = 0; i < late.size(); i += 2) {
    nodes.push_back(late[i] - even[i]);
    threads.push_back(late[i + 1] - even[i + 1]);
  }
  for (std::vector<Time>* found : {&nodes, &threads}) {
    std::sort(found->begin(), found->end());
    EXPECT_GT(found->back() - found->front(), kSpread * 8 / 10);
    EXPECT_GT(std::set<Time>(found->begin(), found->end()).size(), 35U);
  }
  EXPECT_LE(nodes.back() - nodes.front(), kSpread + 20) << "one turn of the poll loop more";
  EXPECT_GE(threads.front(), 0);
  EXPECT_LE(threads.back(), kSpread + 20);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
