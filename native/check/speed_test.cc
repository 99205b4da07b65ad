// Limits of the search's time, on histories that make the search hard. Limits are several times the
// time needed. The report records the times and configurations of a run as properties.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "check/histories_test.h"
#include "check/history_json.h"
#include "check/linearizability.h"

namespace pyrdma::check {
namespace {

using testing::kScale;
using testing::make_history;
using testing::Plan;

struct Timed {
  Verdict verdict;
  double seconds;
};

Timed timed(const History& history, ModelKind kind) {
  const std::clock_t begin = std::clock();  // CPU time, because other programs run too
  Verdict verdict = check_linearizability(history, kind);
  return {std::move(verdict), static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC};
}

/// Changes the last read of a good history to an earlier value, or to one that was never written.
History with_a_wrong_read(const History& good, bool never = false) {
  std::vector<Event> events = good.events();
  Value older;
  for (const Event& event : events)
    if (event.f == Function::kRead && event.type == EventType::kOk && older.is_none())
      older = event.value;
  if (never) older = Value::integer(-1);
  for (std::size_t i = events.size(); i-- > 0;) {
    Event& event = events[i];
    if (event.f != Function::kRead || event.type != EventType::kOk || event.value == older)
      continue;
    event.value = older;
    break;
  }
  History broken;
  for (const Event& event : events) broken.append(event);
  return broken;
}

class FiftyProcesses : public ::testing::TestWithParam<int> {};

TEST_P(FiftyProcesses, OneRegisterWithinASecondEitherWay) {
  const int values = GetParam();  // 0: each once
  double slowest = 0;
  std::uint64_t most = 0;
  int bad = 0;
  for (int seed = 0; seed < 40 / (kScale == 1 ? 1 : 20); ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed), values, "fifty");
    const Plan plan{ModelKind::kRegister, 170, 50, values};
    const History good = make_history(plan, rng);
    const Timed legal = timed(good, plan.kind);
    EXPECT_EQ(legal.verdict.answer, Answer::kYes) << "seed " << seed;
    const Timed broken = timed(with_a_wrong_read(good), plan.kind);
    EXPECT_NE(broken.verdict.answer, Answer::kUnknown) << "seed " << seed;
    const Timed invented = timed(with_a_wrong_read(good, true), plan.kind);
    EXPECT_EQ(invented.verdict.answer, Answer::kNo) << "seed " << seed;
    EXPECT_LT(invented.seconds, 1.0 * kScale) << "seed " << seed;
    bad += broken.verdict.answer == Answer::kNo;
    slowest = std::max({slowest, legal.seconds, broken.seconds, invented.seconds});
    most = std::max({most, legal.verdict.configurations, broken.verdict.configurations});
    EXPECT_LT(std::max(legal.seconds, broken.seconds), 1.0 * kScale) << "seed " << seed;
  }
  RecordProperty("slowest_ms", static_cast<int>(slowest * 1000));
  RecordProperty("most_configurations", static_cast<int>(most));
  RecordProperty("violations", bad);
}

INSTANTIATE_TEST_SUITE_P(Values, FiftyProcesses, ::testing::Values(0, 5, 20));

// Histories have the form of Jepsen's public histories of etcd: five clients, five values, and a
// new process after each unknown outcome.
TEST(Speed, FiftyProcessesOneAfterTheOther) {
  int bad = 0;
  double slowest = 0;
  for (int seed = 0; seed < (kScale == 1 ? 40 : 2); ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed), 0, "etcd");
    Plan plan{ModelKind::kRegister, 170, 5, 5};
    plan.info_percent = 30;
    plan.renumber = true;
    const History good = make_history(plan, rng);
    const Timed legal = timed(good, plan.kind);
    EXPECT_EQ(legal.verdict.answer, Answer::kYes) << "seed " << seed;
    const Timed broken = timed(with_a_wrong_read(good), plan.kind);
    EXPECT_NE(broken.verdict.answer, Answer::kUnknown) << "seed " << seed;
    bad += broken.verdict.answer == Answer::kNo;
    slowest = std::max({slowest, legal.seconds, broken.seconds});
    EXPECT_LT(std::max(legal.seconds, broken.seconds), 1.0 * kScale) << "seed " << seed;
  }
  RecordProperty("slowest_ms", static_cast<int>(slowest * 1000));
  RecordProperty("violations", bad);
}

// Histories have the form of public logs of key-value stores with appends: texts that name client
// and number, ten keys, fifty clients.
TEST(Speed, FiftyProcessesThatAppend) {
  for (int seed = 0; seed < (kScale == 1 ? 10 : 1); ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed), 0, "append");
    Plan plan{ModelKind::kKv, 1000, 50, 0, 10};
    plan.appends = true;
    const Timed legal = timed(make_history(plan, rng), plan.kind);
    EXPECT_EQ(legal.verdict.answer, Answer::kYes) << "seed " << seed;
    EXPECT_LT(legal.seconds, 1.0 * kScale) << "seed " << seed;
  }
}

// A violation near the end of a long history takes little longer than the same history without it.
TEST(Speed, TheExplanationIsLinearInTheHistory) {
  const auto seconds = [](int operations) {
    Rng rng(7, 0, "linear");
    const History good = make_history({ModelKind::kRegister, operations, 5, 0}, rng);
    const Timed broken = timed(with_a_wrong_read(good), ModelKind::kRegister);
    EXPECT_EQ(broken.verdict.answer, Answer::kNo);
    EXPECT_LT(broken.verdict.window.size(), 10U);
    return broken.seconds;
  };
  EXPECT_LT(seconds(40'000 / kScale), 4.0 * kScale);  // it took 20 s when it was quadratic
}

TEST(Speed, FiftyThousandOperationsPerSecondOnTenKeys) {
  Rng rng(7, 0, "speed");
  const Plan plan{ModelKind::kKv, 100'000 / kScale, 16, 0, 10, 0, 2};
  const History history = make_history(plan, rng);
  const Timed done = timed(history, plan.kind);
  EXPECT_EQ(done.verdict.answer, Answer::kYes);
  EXPECT_EQ(done.verdict.objects, 10U);
  const double rate = static_cast<double>(done.verdict.operations) / done.seconds;
  RecordProperty("operations_per_second", static_cast<int>(rate));
  EXPECT_GT(rate, 50'000.0 / kScale);
}

}  // namespace
}  // namespace pyrdma::check
