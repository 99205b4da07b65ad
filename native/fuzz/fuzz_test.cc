#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "check/history_json.h"
#include "check/linearizability.h"
#include "fuzz/fabric/fabric_scenario.h"
#include "fuzz/fabric/word_history.h"
#include "fuzz/fabric/words.h"
#include "fuzz/simulation.h"
#include "fuzz/small_test.h"

namespace pyrdma::fuzz {
namespace {

const std::uint64_t kScenarios = (kSlowed ? 60 : 500) * search_factor();

Options drawn(std::uint64_t seed) { return small_options(seed, {3, 100, 300, true}); }

/// A simulation is one thread, and its fibers are slow and large under the thread sanitizer.
template <class Test>
class Simulated : public Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a simulation is one thread: the thread sanitizer has nothing to see";
#endif
  }
};
class Fuzz : public Simulated<testing::Test> {};

const Scenario& fabric() {
  static const Scenario scenario = fabric_scenario();
  return scenario;
}

TEST_F(Fuzz, RandomScenariosRunEquallyTwiceAndWithoutViolation) {
  Sums sums;
  for (std::uint64_t seed = 1; seed <= kScenarios; ++seed) {
    const Options options = drawn(seed);
    const Outcome first = run(fabric(), options), second = run(fabric(), options);
    ASSERT_EQ(first.fingerprint, second.fingerprint) << "seed " << seed;
    ASSERT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_TRUE(first.violations.empty()) << "seed " << seed << "\n" << describe(first);
    sums.add(first);
  }
  EXPECT_GT(sums.ok, kScenarios * 100);
  EXPECT_GT(sums.restarts, kScenarios / 10);
  EXPECT_GT(sums.reconnects, kScenarios);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kScenarios / 10) << "crashes after 50 operations";
  EXPECT_EQ(sums.undecided, 0U);
  EXPECT_EQ(checks_too_rare(fabric(), sums), "");
}

// All compilers, optimisation levels and sanitizers must give equal results.
TEST_F(Fuzz, FingerprintsAreTheSameOfEveryBuild) {
  constexpr std::array<std::uint64_t, 4> kGolden{9970916038830039684ULL, 105714402761604442ULL,
                                                 1404806375421580324ULL, 17474082310258236045ULL};
  for (std::uint64_t seed = 1; seed <= kGolden.size(); ++seed)
    EXPECT_EQ(run(fabric(), drawn(seed)).fingerprint, kGolden[seed - 1])
        << "seed " << seed << ": if the simulation was meant to change, take the new value";
}

class FuzzFault : public Simulated<testing::TestWithParam<Fault>> {};

TEST_P(FuzzFault, FiresAHundredTimesAndReachesItsTarget) {
  const Fault fault = GetParam();
  const auto at = static_cast<std::size_t>(fault);
  std::uint64_t fired = 0, reached = 0;
  for (std::uint64_t seed = 1; seed <= 300 && (fired < 100 || reached == 0); ++seed) {
    Options options = drawn(seed);
    options.nodes = 4;
    options.operations = 600;
    options.memory = fabric::sim::MemoryModel::weak();
    options.faults = FaultOptions();
    const FaultDraw draw = fault_info(fault).draw;
    const bool of_disk = fault_info(fault).number == "F24";
    options.faults.enable(fault, draw == FaultDraw::kWindow ? 20 : of_disk ? 100 : 8);
    if (of_disk && draw == FaultDraw::kDraw) options.faults[fault].rate = 0.3;
    if (fault == Fault::cq_overrun || fault == Fault::qp_error || fault == Fault::region_revoked)
      options.faults.enable(fault, 40);
    if (fault == Fault::queue_full) options.faults.enable(fault, 50);
    // These faults need a crash of a node, or readers and writers at the same time.
    if (fault == Fault::number_reuse) options.faults.enable(Fault::crash, 20);
    if (fault == Fault::torn_crash) {
      options.faults[fault].rate = 1;
      options.faults.enable(Fault::crash, 100);
      options.operations = 8000;
    }
    if (fault == Fault::torn_read) options.operations = 6000;
    if (of_disk) options.operations = 3000;
    if (fault == Fault::disk_torn || fault == Fault::disk_lies)
      options.faults.enable(Fault::host_crash, 20);
    const Outcome outcome = run(fabric(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    fired += outcome.faults.fired[at];
    reached += outcome.faults.reached[at];
  }
  EXPECT_GE(fired, 100u);
  EXPECT_GE(reached, 1u);
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (std::size_t i = 0; i < kFaults; ++i) all.push_back(static_cast<Fault>(i));
  return all;
}
INSTANTIATE_TEST_SUITE_P(Kinds, FuzzFault, testing::ValuesIn(all_faults()),
                         [](const testing::TestParamInfo<Fault>& info) {
                           return std::string(fault_info(info.param).key);
                         });

// Any order of the insertions is possible until the last removal contradicts all of them.
TEST(FuzzJudge, AHistoryThatTheCheckerGivesUpOnIsNotPassed) {
  using check::EventType;
  using check::Function;
  using check::Value;
  check::History history;
  constexpr int kValues = 14;
  for (int i = 0; i < kValues; ++i) history.invoke(1, i, Function::kEnq, {}, Value::integer(i));
  for (int i = 0; i < kValues; ++i) history.complete(2, i, EventType::kOk, Function::kEnq, {}, {});
  history.invoke(3, 0, Function::kDeq, {}, {});
  history.complete(4, 0, EventType::kOk, Function::kDeq, {}, Value::integer(kValues));
  Outcome outcome;
  judge(outcome, Options(), history, "queue", 0);
  EXPECT_EQ(outcome.undecided, std::vector<std::string>{"queue"});
  EXPECT_TRUE(outcome.violations.empty());
  EXPECT_EQ(outcome.checked, 0U);
}

TEST_F(Fuzz, DeliberateBugsAreFound) {
  for (const char* mutation : {"unordered_writes", "reads_do_not_drain"}) {
    bool found = false;
    for (std::uint64_t seed = 1; seed <= 50 && !found; ++seed) {
      Options options = drawn(seed);
      options.operations = 600;
      options.memory = fabric::sim::MemoryModel::weak();
      options.faults = FaultOptions();
      EXPECT_TRUE(run(fabric(), options).violations.empty()) << "seed " << seed;
      options.mutation = mutation;
      found = !run(fabric(), options).violations.empty();
    }
    EXPECT_TRUE(found) << mutation;
  }
}

TEST_F(Fuzz, TheCheckerGetsEveryRegister) {
  Options options = drawn(1);
  options.operations = 3000;
  options.history = true;
  const Outcome outcome = run(fabric(), options);
  ASSERT_EQ(outcome.histories.size(), 1U);
  const check::ParsedHistory history = check::parse_history(outcome.histories[0].second);
  ASSERT_TRUE(history.ok()) << history.message();
  EXPECT_EQ(history.history.header.model, "register");
  const auto& events = history.history.events();
  const auto swaps = std::count_if(events.begin(), events.end(), [](const check::Event& event) {
    return event.type == check::EventType::kInvoke;
  });
  EXPECT_GT(swaps, 50);
  EXPECT_EQ(outcome.checked, static_cast<std::uint64_t>(swaps));
}

// Only the linearizability checker sees that the value had been replaced before the swap began.
TEST(FuzzWords, AStaleSwapOfAnyRegisterIsFound) {
  const auto swapped = [](Time from, std::uint64_t old, std::uint64_t expected,
                          std::uint64_t desired) {
    AtomicOperation op;
    op.invoked = from;
    op.returned = from + 10;
    op.old = old;
    op.expected = expected;
    op.desired = desired;
    return op;
  };
  constexpr std::size_t kRegisters = 20;
  for (std::size_t wrong = 0; wrong <= kRegisters; ++wrong) {
    std::vector<AtomicWord> words(kRegisters);
    for (std::size_t i = 0; i < kRegisters; ++i) {
      words[i].operations = {swapped(0, 0, 0, 7), swapped(20, i == wrong ? 0 : 7, 9, 8)};
      EXPECT_EQ(complaint_of_register(words[i]), "");
    }
    const check::Verdict verdict =
        check::check_linearizability(history_of(words), check::ModelKind::kRegister);
    EXPECT_EQ(verdict.answer, wrong < kRegisters ? check::Answer::kNo : check::Answer::kYes);
  }
}

TEST_F(Fuzz, OptionsOutOfRangeAreNamed) {
  Options options = drawn(1);
  options.nodes = 1;
  EXPECT_THROW(run(fabric(), options), Error);
  options = drawn(1);
  options.mutation = "no such";
  EXPECT_THROW(run(fabric(), options), Error);
  options = drawn(1);
  options.preset = "no such";
  EXPECT_THROW(run(fabric(), options), Error);
  EXPECT_THROW(scenario_named(shared_scenarios(), "none"), Error);
}

AtomicOperation added(Time from, Time to, std::uint64_t old) {
  AtomicOperation op;
  op.invoked = from;
  op.returned = to;
  op.old = old;
  return op;
}

TEST(FuzzWords, CountersThatCannotBeExplained) {
  AtomicWord word;
  word.counter = true;
  word.operations = {added(0, 10, 0), added(5, 15, 1)};
  word.last = 2;
  EXPECT_EQ(complaint_of_counter(word), "");
  word.last = 3;
  EXPECT_NE(complaint_of_counter(word), "") << "one addition too many";
  word.operations.push_back(added(0, kForever, 0));
  EXPECT_EQ(complaint_of_counter(word), "") << "the unknown one may have happened";
  word.last.reset();
  word.operations = {added(0, 10, 0), added(5, 15, 0)};
  EXPECT_NE(complaint_of_counter(word), "") << "twice from the same number";
  word.operations = {added(0, 10, 1), added(20, 30, 0)};
  EXPECT_NE(complaint_of_counter(word), "") << "against real time";
  word.operations = {added(0, 10, 1)};
  EXPECT_NE(complaint_of_counter(word), "") << "no addition returned 0";
}

TEST(FuzzWords, RegistersThatCannotBeExplained) {
  auto swapped = [](std::uint64_t old, std::uint64_t expected, std::uint64_t desired) {
    AtomicOperation op = added(0, 10, old);
    op.expected = expected;
    op.desired = desired;
    return op;
  };
  AtomicWord word;
  word.operations = {swapped(0, 0, 7), swapped(7, 0, 8), swapped(7, 7, 9)};
  EXPECT_EQ(complaint_of_register(word), "");
  word.operations.push_back(swapped(7, 7, 10));
  EXPECT_NE(complaint_of_register(word), "") << "two swaps of one value";
  word.operations = {swapped(5, 0, 7)};
  EXPECT_NE(complaint_of_register(word), "") << "a value from nowhere";
}

}  // namespace
}  // namespace pyrdma::fuzz
