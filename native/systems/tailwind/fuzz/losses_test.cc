// A loss explains what was not durable, and nothing else.
#include "systems/tailwind/fuzz/losses.h"

#include <gtest/gtest.h>

#include "check/check.h"

namespace pyrdma::tailwind::scenario {
namespace {

using check::EventType;
using check::Function;
using check::Value;

/// One client; each step takes 10 ns.
class Recorder {
 public:
  void put(std::int64_t key, std::int64_t value) {
    step(Function::kPut, key, Value::integer(value), Value::integer(value));
  }
  void get(std::int64_t key, Value value) { step(Function::kGet, key, Value::none(), value); }
  void remove(std::int64_t key, bool was_there = true) {
    step(Function::kDelete, key, Value::none(), Value::boolean(was_there));
  }
  void lose(std::set<std::int64_t> keys, Time durable) {
    losses.push_back({history.events().size(), std::move(keys), durable});
  }
  bool is_right() const {
    return check::check_history(with_losses(history, losses), "kv").answer == check::Answer::kYes;
  }
  Time now = 0;
  check::History history;
  std::vector<Loss> losses;

 private:
  void step(Function f, std::int64_t key, Value wanted, Value got) {
    history.invoke(now, 0, f, Value::integer(key), wanted);
    now += 10;
    history.complete(now, 0, EventType::kOk, f, Value::integer(key), got);
  }
};

TEST(TailwindLosses, WithoutOneTheHistoryIsJudgedAsItIs) {
  Recorder run;
  run.put(1, 10);
  run.put(1, 11);
  EXPECT_EQ(with_losses(run.history, {}).events().size(), run.history.events().size());
  run.get(1, Value::integer(10));
  EXPECT_FALSE(run.is_right());
}

TEST(TailwindLosses, WhatWasNotDurableMayBeGone) {
  for (const bool is_durable : {false, true}) {
    Recorder run;
    run.put(1, 10);
    const Time before = run.now;
    run.put(1, 11);
    run.lose({1}, is_durable ? run.now : before);
    run.get(1, Value::integer(10));
    EXPECT_EQ(run.is_right(), !is_durable);
  }
}

TEST(TailwindLosses, OnlyAValueSinceTheLastDurableOneComesBack) {
  for (const std::int64_t value : {9, 10, 11, 12, 99}) {
    Recorder run;
    run.put(1, 9);
    run.put(1, 10);
    const Time before = run.now;
    run.put(1, 11);
    run.put(1, 12);
    run.lose({1}, before);
    run.get(1, Value::integer(value));
    EXPECT_EQ(run.is_right(), value >= 10 && value <= 12) << value;
  }
}

TEST(TailwindLosses, WithoutAnythingDurableAllMayComeBackOrBeGone) {
  for (const std::int64_t value : {9, 10, 99}) {
    Recorder run;
    run.put(1, 9);
    run.put(1, 10);
    run.lose({1}, -1);
    run.get(1, Value::integer(value));
    EXPECT_EQ(run.is_right(), value != 99) << value;
  }
  Recorder gone;
  gone.put(1, 9);
  gone.lose({1}, -1);
  gone.get(1, Value::none());
  EXPECT_TRUE(gone.is_right());
}

TEST(TailwindLosses, OtherKeysHaveNone) {
  Recorder run;
  run.put(1, 10);
  run.put(2, 20);
  run.lose({1}, -1);
  run.get(2, Value::none());
  EXPECT_FALSE(run.is_right());
}

TEST(TailwindLosses, AllIsAsUsualFromThatStateOn) {
  Recorder run;
  run.put(1, 10);
  run.put(1, 11);
  run.lose({1}, -1);
  run.get(1, Value::integer(10));
  run.put(1, 12);
  EXPECT_TRUE(run.is_right());
  Recorder again = run;
  again.get(1, Value::integer(10));
  EXPECT_FALSE(again.is_right()) << "a write since the loss is gone";
  run.get(1, Value::integer(12));
  EXPECT_TRUE(run.is_right());
}

TEST(TailwindLosses, ARemovedKeyComesBackOnlyIfTheRemovalMayBeLost) {
  for (const bool is_durable : {false, true}) {
    Recorder run;
    run.put(1, 10);
    const Time before = run.now;
    run.remove(1);
    run.lose({1}, is_durable ? run.now : before);
    run.remove(1);  // there was something to remove
    EXPECT_EQ(run.is_right(), !is_durable);
  }
}

TEST(TailwindLosses, ALaterLossMayBringBackWhatAnEarlierOneDid) {
  Recorder run;
  run.put(1, 10);
  const Time before = run.now;
  run.put(1, 11);
  run.lose({1}, before);
  run.lose({1}, run.now);
  run.get(1, Value::integer(10));
  EXPECT_TRUE(run.is_right()) << "the first loss";
}

// The client sends it again, and what its first time has led to is forgotten.
TEST(TailwindLosses, WhatWasOpenMayHappenTwice) {
  Recorder run;
  run.put(1, 10);
  run.history.invoke(run.now, 1, Function::kDelete, Value::integer(1), Value::none());
  run.get(1, Value::none());
  run.lose({1}, run.now);
  run.history.complete(run.now, 1, EventType::kOk, Function::kDelete, Value::integer(1),
                       Value::boolean(false));
  EXPECT_TRUE(run.is_right());
  run.losses.clear();
  EXPECT_FALSE(run.is_right());
}

}  // namespace
}  // namespace pyrdma::tailwind::scenario
