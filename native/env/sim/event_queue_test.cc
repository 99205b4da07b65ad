// The order of the event queue, compared with a sorted set. A look ahead must not change the order.
#include "env/sim/event_queue.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/rng.h"

namespace pyrdma {
namespace {

struct NoEvent final : SimEvent {
  void fire(Picos) override {}
};

/// Draws a delay as in simulations: none, within a bucket, a message, a timer.
Picos draw_delay(Rng& rng) {
  switch (rng.below(5)) {
    case 0:
      return 0;
    case 1:
      return static_cast<Picos>(rng.below(2'000));
    case 2:
    case 3:
      return static_cast<Picos>(rng.below(3'000'000));
    default:
      return static_cast<Picos>(rng.below(5'000'000'000));
  }
}

class EventQueueOrder : public testing::TestWithParam<std::uint32_t> {};

TEST_P(EventQueueOrder, IsByTimeThenByPush) {
  EventQueue queue(GetParam());
  std::set<std::pair<Picos, std::uint64_t>> expected;
  NoEvent event;
  Rng rng(GetParam());
  Picos now = 0;
  const auto push = [&](Picos time) { expected.emplace(time, queue.push(time, &event)); };
  const auto pop = [&] {
    const EventQueue::Entry next = queue.pop();
    ASSERT_EQ(std::pair(next.time, next.ticket), *expected.begin());
    expected.erase(expected.begin());
    now = next.time;
  };
  for (int round = 0; round < 60'000; ++round) {
    const auto burst = rng.below(50) == 0 ? 1 + rng.below(200) : rng.below(3);
    const Picos time = now + draw_delay(rng);
    for (std::uint64_t i = 0; i < burst; ++i)
      push(rng.below(4) == 0 ? now + draw_delay(rng) : time);
    // A thread asks whether an event comes before its clock, and continues. Its next push may then
    // come before all events of the queue.
    const Picos clock = now + draw_delay(rng);
    const bool any = !expected.empty() && expected.begin()->first < clock;
    ASSERT_EQ(queue.has_before(clock), any) << "round " << round;
    if (rng.below(8) == 0) push(now);
    for (auto pops = rng.below(4); pops > 0 && !queue.empty(); --pops) pop();
    ASSERT_EQ(queue.size(), expected.size());
  }
  while (!queue.empty()) pop();
  EXPECT_FALSE(queue.has_before(kNever));
}

INSTANTIATE_TEST_SUITE_P(Nodes, EventQueueOrder, testing::Values(1, 16, 1000, 100'000));

}  // namespace
}  // namespace pyrdma
