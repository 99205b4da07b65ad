// The shared queue: each value is popped once, in order; full and empty are outcomes.
#include "systems/loco/shared_queue.h"

#include <array>
#include <map>
#include <vector>

#include "base/error_test.h"
#include "systems/loco/barrier.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

using LocoQueues = LocoWorlds;
INSTANTIATE_TEST_SUITE_P(Worlds, LocoQueues, loco_worlds(),
                         [](const auto& param) { return param.param; });

struct WideItem {
  std::array<std::uint64_t, 13> words;
};
WideItem wide(std::uint64_t value) {
  WideItem all;
  all.words.fill(value);
  return all;
}

TEST_P(LocoQueues, EmptyAndFullAreOutcomesAndOrderIsKept) {
  run(3, [&](Manager& manager) {
    SharedQueueOf<std::uint64_t> queue(manager, "q", 5);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    EXPECT_FALSE(queue.try_pop(me));
    barrier.wait(me);
    for (std::uint64_t round = 0; round < 9; ++round) {  // entries wrap around
      if (manager.self() == round % 3) {
        for (std::uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(queue.try_push(me, 10 * round + i));
      }
      barrier.wait(me);
      EXPECT_FALSE(queue.try_push(me, 99));
      barrier.wait(me);
      if (manager.self() == (round + 1) % 3) {
        for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(queue.try_pop(me), 10 * round + i);
      }
      barrier.wait(me);
      EXPECT_FALSE(queue.try_pop(me));
      barrier.wait(me);
    }
  });
}

// All nodes push and pop at once, into a queue that is mostly full or empty.
TEST_P(LocoQueues, EachValueComesOutOnceAndInItsProducersOrder) {
  constexpr std::uint64_t kEach = 60;
  std::array<std::vector<std::uint64_t>, 3> seen;  // by node
  ManagerOptions options;
  options.callers = 2;
  run(
      3,
      [&](Manager& manager) {
        SharedQueueOf<WideItem> queue(manager, "q", 4);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        barrier.wait(manager.caller(0));
        {
          const auto pusher = manager.env().spawn("pusher", [&] {
            for (std::uint64_t i = 1; i <= kEach; ++i) {
              const WideItem value = wide(manager.self() * 1000 + i);
              if (i % 2 == 0 || !queue.try_push(manager.caller(1), value)) {
                queue.push(manager.caller(1), value);
              }
            }
          });
          std::map<std::uint64_t, std::uint64_t> last;
          for (std::uint64_t i = 1; i <= kEach; ++i) {
            std::optional<WideItem> value =
                i % 2 == 0 ? queue.try_pop(manager.caller(0)) : std::nullopt;
            if (!value) value = queue.pop(manager.caller(0));
            for (const std::uint64_t word : value->words) EXPECT_EQ(word, value->words[0]);
            const std::uint64_t from = value->words[0] / 1000, number = value->words[0] % 1000;
            EXPECT_GT(number, last[from]);
            last[from] = number;
            seen[manager.self()].push_back(value->words[0]);
          }
        }
        barrier.wait(manager.caller(0));
        EXPECT_FALSE(queue.try_pop(manager.caller(0)));
        barrier.wait(manager.caller(0));
      },
      options);
  std::map<std::uint64_t, int> times;
  for (const auto& values : seen) {
    for (const std::uint64_t value : values) EXPECT_EQ(++times[value], 1) << value;
  }
  EXPECT_EQ(times.size(), 3 * kEach);
}

TEST(QueuesSim, SizesOutOfBoundsAndDeadNodesAreNamed) {
  fabric::sim::SimCluster cluster(sim_options(2, true));
  ManagerOptions options;
  options.wait_timeout = 30 * kMillisecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    EXPECT_THROW(SharedQueue(manager, "none", 0, 8), Error);
    EXPECT_THROW(SharedQueue(manager, "wide", 1, 1000), Error);
    SharedQueueOf<std::uint64_t> queue(manager, "q", 1);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    if (env.node() == 1) {
      cluster.kill(1);
      env.sleep_until(kForever);
    }
    EXPECT_TRUE(refuses([&] { queue.pop(me); }, ErrorCode::kTimeout, {"1"}))
        << "no node is left to push";
    EXPECT_EQ(blamed_by([&] { queue.pop(me); }), std::vector<NodeId>{1});
  });
}

}  // namespace
}  // namespace pyrdma::loco
