// The litmus suite in its worlds: the outcomes that each world must show or must never show.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"
#include "measure/litmus/model.h"
#include "measure/shared_workloads.h"
#include "measure/workload.h"

namespace pyrdma::measure::litmus {
namespace {

using Int = std::int64_t;
using fabric::sim::MemoryModel;
using fabric::sim::MemoryMutation;

/// "shape|outcome" of the outcomes seen, and of those allowed but not seen, by level.
struct Seen {
  std::map<std::string, std::set<std::string>> seen, missed;
  std::vector<double> numbers;  // the numbers of all rows
  double forbidden = -1, rounds = 0;
  std::set<std::string> seen_at(Level level) { return seen[to_string(level)]; }
  std::set<std::string> missed_at(Level level) { return missed[to_string(level)]; }
};

template <class Cluster>
Seen run(Cluster& cluster, ParamMap given) {
  const Params params = Params::resolve(make_litmus()->parameters(), given, "litmus");
  std::map<NodeId, Recorder> recorders;
  for (NodeId node = 0; node < cluster.nodes(); ++node) recorders[node];
  cluster.run([&](Env& env) { make_litmus()->run(env, params, recorders.at(env.node())); });
  Seen result;
  for (const Row& row : recorders.at(0).rows()) {
    result.numbers.push_back(row.value);
    if (row.metric == "forbidden") result.forbidden = row.value;
    if (row.metric == "rounds") result.rounds = row.value;
    if (!row.metric.starts_with("outcome|")) continue;
    const std::size_t shape = row.metric.find('|') + 1, level = row.metric.find('|', shape) + 1,
                      outcome = row.metric.find('|', level) + 1;
    auto& found = row.value > 0 ? result.seen : result.missed;
    found[row.metric.substr(level, outcome - level - 1)].insert(
        row.metric.substr(shape, level - shape) + row.metric.substr(outcome));
  }
  return result;
}

fabric::sim::SimOptions options(const MemoryModel& memory) {
  fabric::sim::SimOptions result;
  result.nodes = kMaxNodes;
  result.profile = fabric::sim::test_profile();
  result.memory = memory;
  return result;
}

Seen simulate(const fabric::sim::SimOptions& options, Int rounds) {
  fabric::sim::SimCluster cluster(options);
  const Seen result = run(cluster, {{"rounds", rounds}});
  fabric::expect_same_run(cluster.fingerprint());
  return result;
}

using Names = std::set<std::string>;

#if defined(__SANITIZE_THREAD__)
#define PYRDMA_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PYRDMA_THREAD_SANITIZER 1
#endif
#endif

class LitmusSim : public testing::Test {
 protected:
  void SetUp() override {
#if defined(PYRDMA_THREAD_SANITIZER)
    GTEST_SKIP() << "a simulation is one thread, and its fibers are slow under this sanitizer";
#endif
  }
};

// Outcomes that the simulated hardware cannot show without faults. Requests that a node posts at
// one moment on two queue pairs reach a NIC in that order, unless a fault delays one of them. A NIC
// reads a source at one moment. Simulated CPUs have no store buffers.
TEST_F(LitmusSim, WeakMemoryShowsEveryWeakOutcomeAndNoForbiddenOne) {
  Seen result = simulate(options(MemoryModel::weak()), 10000);
  EXPECT_EQ(result.seen_at(Level::kForbidden), Names{});
  EXPECT_EQ(result.missed_at(Level::kLate), Names{});
  EXPECT_EQ(result.missed_at(Level::kAsynchronous),
            (Names{"CoRR-get-2qp|a=1 b=0", "IRIW-get|a=1 b=0 c=1 d=0", "LB-get-2qp|a=1 r0=1",
                   "MP-get-2qp|a=1 b=0"}));
  EXPECT_EQ(result.missed_at(Level::kSequential), Names{});
  EXPECT_EQ(result.seen_at(Level::kRepeated), Names{});
  EXPECT_EQ(result.seen_at(Level::kStoreBuffer), Names{});
}

TEST_F(LitmusSim, StrongMemoryShowsOnlyStrongOutcomes) {
  Seen result = simulate(options(MemoryModel::strong()), 2000);
  EXPECT_EQ(result.seen_at(Level::kForbidden), Names{});
  EXPECT_EQ(result.seen_at(Level::kLate), Names{});
  EXPECT_EQ(result.seen_at(Level::kRepeated), Names{});
  EXPECT_TRUE(result.seen_at(Level::kAsynchronous).count("put-store|x=2"));
}

TEST_F(LitmusSim, FaultsOfTheNetworkShowWhatNothingOrders) {
  fabric::sim::SimOptions faulty = options(MemoryModel::weak());
  faulty.faults[Fault::loss].rate = 0.01;
  faulty.faults[Fault::ack_loss].rate = 0.05;
  faulty.faults[Fault::duplicate].rate = 0.05;
  for (const Fault late : {Fault::delay, Fault::reorder, Fault::late_completion})
    faulty.faults[late] = {0.05, 200, 5000};
  faulty.faults[Fault::cache_miss] = {0.1, 500, 3000};
  Seen result = simulate(faulty, 12000);
  EXPECT_EQ(result.seen_at(Level::kForbidden), Names{});
  for (const char* unordered :
       {"CoRR-get-2qp|a=1 b=0", "LB-get-2qp|a=1 r0=1", "MP-get-2qp|a=1 b=0"})
    EXPECT_TRUE(result.seen_at(Level::kAsynchronous).count(unordered)) << unordered;
  EXPECT_TRUE(result.seen_at(Level::kRepeated).count("CoRW|a=1 x=1"));
  EXPECT_TRUE(result.seen_at(Level::kRepeated).count("LB-get|a=1 r0=1"));
}

TEST_F(LitmusSim, FailsOnMemoryThatIsTooStrong) {
  MemoryModel memory = MemoryModel::weak();
  memory.mutation = MemoryMutation::kNoDelay;
  Seen result = simulate(options(memory), 2000);
  EXPECT_EQ(result.seen_at(Level::kForbidden), Names{});
  EXPECT_GT(result.missed_at(Level::kLate).size(), 20u);
}

TEST_F(LitmusSim, FailsOnReadsThatDoNotDrain) {
  MemoryModel memory = MemoryModel::weak();
  memory.mutation = MemoryMutation::kReadsDoNotDrain;
  Seen result = simulate(options(memory), 2000);
  EXPECT_TRUE(result.seen_at(Level::kForbidden).count("SB-put-flush|r0=0 r1=0"));
  EXPECT_TRUE(result.seen_at(Level::kForbidden).count("CoWR|a=0 x=1"));
}

TEST_F(LitmusSim, FailsOnUnorderedWrites) {
  MemoryModel memory = MemoryModel::weak();
  memory.mutation = MemoryMutation::kUnorderedWrites;
  Seen result = simulate(options(memory), 2000);
  EXPECT_TRUE(result.seen_at(Level::kForbidden).count("MP|r0=1 r1=0"));
  EXPECT_TRUE(result.seen_at(Level::kForbidden).count("2+2W|x=1 y=1"));
}

TEST_F(LitmusSim, EqualSeedsGiveEqualCounts) {
  const auto once = [](std::uint64_t seed) {
    fabric::sim::SimOptions seeded = options(MemoryModel::weak());
    seeded.seed = seed;
    fabric::sim::SimCluster cluster(seeded);
    return run(cluster, {{"rounds", Int{300}}}).numbers;
  };
  EXPECT_EQ(once(1), once(1));
  EXPECT_NE(once(1), once(2));
}

// This test uses real threads; tests/measure/test_litmus.py uses processes and more rounds.
TEST(LitmusShm, ShowsNoForbiddenOutcome) {
  fabric::shm::ShmOptions real;
  real.nodes = kMaxNodes;
  fabric::shm::ShmCluster cluster(real);
#if defined(PYRDMA_THREAD_SANITIZER)
  // For this sanitizer an acquire costs as much as the process has had threads: after tests with a
  // thousand of them a round takes ten times longer.
  const Int rounds = 128, batch = 64;
#else
  const Int rounds = 1000, batch = 256;
#endif
  Seen result = run(cluster, {{"rounds", rounds}, {"batch", batch}});
  EXPECT_EQ(result.seen_at(Level::kForbidden), Names{});
  EXPECT_GE(result.rounds, 80 * rounds);
}

TEST(LitmusWorkload, RunsATestOfOnesOwn) {
  fabric::sim::SimCluster cluster(options(MemoryModel::weak()));
  const ParamMap given = {{"locations", std::string("x@1:64 f@1 c@2:64")},
                          {"threads", std::string("0: put x 3; send#s 1; poll | 1: recv#s 0; "
                                                  "store f 1 | 2: get c x; poll")},
                          {"observed", std::string("x.0 f c.1")},
                          {"rounds", Int{500}}};
  Seen result = run(cluster, given);
  EXPECT_EQ(result.seen_at(Level::kSequential),
            (Names{"custom|x.0=3 f=1 c.1=0", "custom|x.0=3 f=1 c.1=3"}));
  EXPECT_EQ(result.rounds, 512);
}

TEST(LitmusWorkload, SaysHowManyNodesATestNeeds) {
  fabric::sim::SimOptions small = options(MemoryModel::weak());
  small.nodes = 2;
  fabric::sim::SimCluster cluster(small);
  EXPECT_TRUE(refuses(
      [&] {
        run(cluster, {{"shape", std::string("tell")}});
      },
      ErrorCode::kInvalidArgument, {"tell", "2", "3"}));
}

}  // namespace
}  // namespace pyrdma::measure::litmus
