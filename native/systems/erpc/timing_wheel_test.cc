// The timing wheel: order, lateness and rates, by random times against a sorted list.
#include "systems/erpc/timing_wheel.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/error_test.h"
#include "base/rng.h"
#include "systems/erpc/rate_bounds.h"

namespace pyrdma::erpc {
namespace {

struct TestedEntry {
  std::uint64_t number = 0;
  Time at = 0;
};
using TestedWheel = TimingWheel<TestedEntry>;
constexpr Time kTestedWidth = 500, kTestedHorizon = 2'184'534;

std::vector<TestedEntry> entries_reaped(TestedWheel& wheel, Time now) {
  std::vector<TestedEntry> entries;
  const std::size_t count =
      wheel.reap(now, [&](const TestedEntry& entry) { entries.push_back(entry); });
  EXPECT_EQ(count, entries.size());
  return entries;
}

TEST(ErpcTimingWheel, AnEntryIsDueWhenASlotBeginsAtOrAfterItsTime) {
  TestedWheel wheel(kTestedWidth, kTestedHorizon, 1'000);
  EXPECT_EQ(wheel.next_due(), kForever);
  EXPECT_TRUE(wheel.insert({1, 2'001}, 2'001, 1'000));
  EXPECT_EQ(wheel.next_due(), 2'500);
  EXPECT_TRUE(wheel.insert({2, 2'000}, 2'000, 1'000));
  EXPECT_EQ(wheel.next_due(), 2'000) << "exactly where a slot begins";
  EXPECT_EQ(wheel.size(), 2u);
  EXPECT_TRUE(entries_reaped(wheel, 1'999).empty());
  const auto first = entries_reaped(wheel, 2'000);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].number, 2u);
  EXPECT_TRUE(entries_reaped(wheel, 2'499).empty());
  const auto second = entries_reaped(wheel, 2'500);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].number, 1u);
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_EQ(wheel.next_due(), kForever);
}

TEST(ErpcTimingWheel, EntriesOfASlotLeaveInTheirOrder) {
  TestedWheel wheel(kTestedWidth, kTestedHorizon, 0);
  for (std::uint64_t i = 0; i < 100; ++i) wheel.insert({i, 0}, 1'000, 0);
  const auto all = entries_reaped(wheel, 1'000);
  ASSERT_EQ(all.size(), 100u);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(all[i].number, i);
}

TEST(ErpcTimingWheel, ThePastIsNow) {
  TestedWheel wheel(kTestedWidth, kTestedHorizon, 0);
  entries_reaped(wheel, 10'100);
  EXPECT_TRUE(wheel.insert({1, 0}, 5, 10'200));
  EXPECT_EQ(wheel.next_due(), 10'500) << "the next slot";
  EXPECT_TRUE(wheel.insert({2, 0}, -5, 10'200));
  EXPECT_EQ(entries_reaped(wheel, 10'500).size(), 2u);
}

TEST(ErpcTimingWheel, BeyondTheHorizonIsTheHorizon) {
  TestedWheel wheel(kTestedWidth, 10'000, 0);
  EXPECT_TRUE(wheel.insert({1, 0}, 10'700, 700));
  EXPECT_FALSE(wheel.insert({2, 0}, 12'000, 700));
  EXPECT_FALSE(wheel.insert({3, 0}, kForever, 700));
  EXPECT_TRUE(entries_reaped(wheel, 10'500).empty());
  EXPECT_EQ(entries_reaped(wheel, 11'000).size(), 3u);
}

TEST(ErpcTimingWheel, AnOwnerThatDoesNotReapGetsItsEntriesEarly) {
  TestedWheel wheel(kTestedWidth, 10'000, 0);
  wheel.insert({1, 0}, 1'000, 0);
  EXPECT_FALSE(wheel.insert({2, 0}, kSecond + 5'000, kSecond));
  EXPECT_FALSE(wheel.insert({3, 0}, kSecond + 1'000, kSecond));
  EXPECT_EQ(wheel.next_due(), 1'000);
  const auto all = entries_reaped(wheel, kSecond);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].number, 1u) << "the oldest first";
  EXPECT_TRUE(wheel.insert({4, 0}, 2 * kSecond + 5'000, 2 * kSecond)) << "an empty wheel moves on";
  EXPECT_EQ(wheel.next_due(), 2 * kSecond + 5'000);
}

TEST(ErpcTimingWheel, TakeMayInsert) {
  TestedWheel wheel(kTestedWidth, kTestedHorizon, 0);
  wheel.insert({0, 0}, 500, 0);
  std::vector<std::uint64_t> order;
  wheel.reap(2'000, [&](const TestedEntry& entry) {
    order.push_back(entry.number);
    if (entry.number < 3) wheel.insert({entry.number + 1, 0}, 0, 500);
    if (entry.number == 3) wheel.insert({9, 0}, 2'001, 2'000);
  });
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2, 3})) << "one slot after the other";
  EXPECT_EQ(wheel.size(), 1u);
  EXPECT_EQ(wheel.next_due(), 2'500);
}

TEST(ErpcTimingWheel, ATakeThatPutsEntriesBackEnds) {
  TestedWheel wheel(kTestedWidth, kTestedHorizon, 0);
  wheel.insert({0, 0}, 500, 0);
  int taken = 0;
  wheel.reap(2'000, [&](const TestedEntry& entry) {
    if (++taken < 100) wheel.insert(entry, 0, 500);
  });
  EXPECT_EQ(taken, 4) << "once per slot";
  EXPECT_EQ(wheel.next_due(), 2'500);
}

TEST(ErpcTimingWheel, AClockThatGoesBackStands) {
  TestedWheel wheel(kTestedWidth, 10'000, 0);
  EXPECT_TRUE(wheel.insert({1, 0}, kSecond + 5'000, kSecond));
  EXPECT_TRUE(wheel.insert({2, 0}, 1'000, 0));
  EXPECT_EQ(wheel.next_due(), kSecond);
  EXPECT_EQ(entries_reaped(wheel, 2'000).size(), 0u);
  EXPECT_EQ(entries_reaped(wheel, kSecond + 5'000).size(), 2u);
}

TEST(ErpcTimingWheel, RefusesSlotsWithoutWidthAndTooMany) {
  const auto refused = [](Time width, Time horizon, std::string_view named) {
    return refuses([&] { TestedWheel(width, horizon, 0); }, ErrorCode::kInvalidArgument, {named});
  };
  EXPECT_TRUE(refused(0, 100, "0"));
  EXPECT_TRUE(refused(-1, 100, "-1"));
  EXPECT_TRUE(refused(1, 0, "0"));
  EXPECT_TRUE(refused(1, kForever, std::to_string(kForever)));
  EXPECT_TRUE(refused(1, TestedWheel::kMostSlots, std::to_string(TestedWheel::kMostSlots)));
}

// What a random run of a wheel shows, against a sorted list of deadlines.
struct TestedRun {
  std::size_t inserted = 0, taken = 0, early = 0, late = 0, disorder = 0, wrong_due = 0;
};

template <class AnyWheel>
TestedRun random_wheel_run(std::uint64_t seed, Time width, Time horizon) {
  Rng rng(seed);
  const Time start = static_cast<Time>(rng.below(1'000'000)) - 500'000;
  AnyWheel wheel(width, horizon, start);
  std::multimap<Time, std::uint64_t> model;  // of deadlines
  TestedRun run;
  Time now = start;
  std::map<Time, std::uint64_t> last_of;  // the last number taken per deadline
  for (int round = 0; round < 4'000; ++round) {
    now += static_cast<Time>(rng.below(static_cast<std::uint64_t>(width)));
    if (rng.below(200) == 0)
      now += static_cast<Time>(rng.below(static_cast<std::uint64_t>(horizon)));
    Time begin = kForever;  // of the slot that was taken last
    wheel.reap(now, [&](const TestedEntry& entry) {
      ++run.taken;
      run.early += entry.at > now;
      const Time slot =
          entry.at <= start ? start : start + (entry.at - start + width - 1) / width * width;
      run.disorder += begin != kForever && slot < begin;
      begin = slot;
      // Equal deadlines leave in the order in which they came.
      auto& last = last_of[entry.at];
      run.disorder += last > entry.number;
      last = entry.number;
      const auto [from, to] = model.equal_range(entry.at);
      auto found = from;
      while (found != to && found->second != entry.number) ++found;
      if (found == to) {
        ++run.disorder;  // unknown, or taken twice
      } else {
        model.erase(found);
      }
    });
    // All that should have left by now has left: the first deadline's slot is in the future.
    if (!model.empty() && model.begin()->first + width <= now) ++run.late;
    for (std::uint64_t i = rng.below(4); i > 0; --i) {
      const Time at = now + 1 + static_cast<Time>(rng.below(static_cast<std::uint64_t>(horizon)));
      ++run.inserted;
      run.disorder += !wheel.insert({run.inserted, at}, at, now);
      model.emplace(at, run.inserted);
    }
    run.disorder += wheel.size() != model.size();
    const Time due = wheel.next_due();
    if (model.empty())
      run.wrong_due += due != kForever;
    else
      run.wrong_due += due < model.begin()->first || due >= model.begin()->first + width;
  }
  now += 2 * horizon;
  wheel.reap(now, [&](const TestedEntry&) { ++run.taken; });
  return run;
}

TEST(ErpcTimingWheel, RandomEntriesLeaveInOrderNeitherEarlyNorLate) {
  const std::pair<Time, Time> shapes[] = {{500, 2'184'534}, {500, 20'000}, {1, 63},
                                          {7, 1'000},       {1'000, 999},  {64, 64 * 62}};
  for (const auto& [width, horizon] : shapes) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const TestedRun run = random_wheel_run<TestedWheel>(seed, width, horizon);
      EXPECT_GT(run.inserted, 4'000u);
      EXPECT_EQ(run.taken, run.inserted) << "none lost, none twice";
      EXPECT_EQ(run.early, 0u) << width << ' ' << horizon << " seed " << seed;
      EXPECT_EQ(run.late, 0u) << width << ' ' << horizon << " seed " << seed;
      EXPECT_EQ(run.disorder, 0u) << width << ' ' << horizon << " seed " << seed;
      EXPECT_EQ(run.wrong_due, 0u) << width << ' ' << horizon << " seed " << seed;
    }
  }
}

// Wheels with one fault each. The test above must see every one.
struct RoundsDown : TestedWheel {
  using TestedWheel::TestedWheel;
  bool insert(const TestedEntry& entry, Time at, Time now) {
    return TestedWheel::insert(entry, std::max(now, at - kTestedWidth), now);
  }
};
struct RoundsUpTwice : TestedWheel {
  using TestedWheel::TestedWheel;
  bool insert(const TestedEntry& entry, Time at, Time now) {
    TestedWheel::insert(entry, at + kTestedWidth, now);
    return true;
  }
};
struct LosesTheLast : TestedWheel {
  using TestedWheel::TestedWheel;
  template <class Take>
  std::size_t reap(Time now, Take&& take) {
    std::vector<TestedEntry> due;
    TestedWheel::reap(now, [&](const TestedEntry& entry) { due.push_back(entry); });
    if (due.size() > 1) due.pop_back();
    for (const TestedEntry& entry : due) take(entry);
    return due.size();
  }
};
struct ReversesASlot : TestedWheel {
  using TestedWheel::TestedWheel;
  template <class Take>
  std::size_t reap(Time now, Take&& take) {
    std::vector<TestedEntry> due;
    TestedWheel::reap(now, [&](const TestedEntry& entry) { due.push_back(entry); });
    for (auto entry = due.rbegin(); entry != due.rend(); ++entry) take(*entry);
    return due.size();
  }
};
struct ReapsASlotLate : TestedWheel {
  using TestedWheel::TestedWheel;
  template <class Take>
  std::size_t reap(Time now, Take&& take) {
    return TestedWheel::reap(now - kTestedWidth, take);
  }
};

TEST(ErpcTimingWheel, TheRandomRunsSeeWrongWheels) {
  constexpr Time kSmall = 20'000;  // many entries share a slot
  EXPECT_GT(random_wheel_run<RoundsDown>(1, kTestedWidth, kSmall).early, 0u);
  EXPECT_GT(random_wheel_run<RoundsUpTwice>(1, kTestedWidth, kSmall).late, 0u);
  EXPECT_GT(random_wheel_run<ReapsASlotLate>(1, kTestedWidth, kSmall).late, 0u);
  const TestedRun loses = random_wheel_run<LosesTheLast>(1, kTestedWidth, kSmall);
  EXPECT_LT(loses.taken, loses.inserted);
  EXPECT_GT(random_wheel_run<ReversesASlot>(1, kTestedWidth, kSmall).disorder, 0u);
}

// Sends packets of 1,024 bytes at a rate, eight at a time in the wheel, as a session does. Returns
// the rate at which they leave.
double rate_through_wheel(double rate, Time poll) {
  constexpr double kBytes = 1'024;
  TestedWheel wheel(kTestedWidth, RateBounds{}.longest(32 * kBytes), 0);
  double next = 0, sent = 0;
  std::size_t inside = 0;
  const Time end = 200 * kMillisecond;
  for (Time now = 0; now < end; now += poll) {
    wheel.reap(now, [&](const TestedEntry&) {
      sent += kBytes;
      --inside;
    });
    while (inside < 8) {
      next = std::max(next, static_cast<double>(now)) + kBytes / rate;
      EXPECT_TRUE(wheel.insert({}, static_cast<Time>(next), now));
      ++inside;
    }
  }
  return sent / static_cast<double>(end);
}

TEST(ErpcTimingWheel, KeepsTheRate) {
  for (const double rate : {kLeastRate, 0.1, 0.5, 1.0, 3.125}) {
    const double through = rate_through_wheel(rate, 300);
    EXPECT_LE(through, rate * 1.0001) << "never faster than asked";
    EXPECT_GT(through, rate * (8 * 1'024 / rate > 4 * kTestedWidth ? 0.99 : 0.8)) << rate;
  }
}

TEST(ErpcTimingWheel, AllocatesNothingOnceItHasGrown) {
  TestedWheel wheel(kTestedWidth, kTestedHorizon, 0);
  Rng rng(3);
  Time now = 0;
  std::size_t taken = 0, inserted = 0;
  for (int round = 0; round < 200'000; ++round) {
    now += 700;
    wheel.reap(now, [&](const TestedEntry&) { ++taken; });
    for (int i = 0; i < 5; ++i, ++inserted)
      wheel.insert(
          {}, now + static_cast<Time>(rng.below(static_cast<std::uint64_t>(kTestedHorizon))), now);
  }
  EXPECT_EQ(taken + wheel.size(), inserted);
  EXPECT_GT(wheel.pooled(), wheel.size() / 3);
  EXPECT_LT(wheel.pooled(), 20'000u) << "about 7,800 entries are inside at a time";
}

}  // namespace
}  // namespace pyrdma::erpc
