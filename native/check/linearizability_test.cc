// The checker is compared with the definition, which tries every order of every history of at most
// six operations.
#include "check/linearizability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "check/histories_test.h"
#include "check/history_json.h"

namespace pyrdma::check {
namespace {

using testing::kScale;
using testing::make_history;
using testing::make_nonsense;
using testing::Plan;
using testing::Spec;

// --- the definition -------------------------------------------------------------------------

bool result_fits(History& history, const Operation& op, const Value& computed) {
  switch (op.f) {
    case Function::kWrite:
    case Function::kPut:
    case Function::kAdd:
    case Function::kEnq:
    case Function::kLock:
    case Function::kUnlock:
    case Function::kAppend:
      return true;
    case Function::kInsert:
      return op.output.is_none() ? computed == Value::boolean(true) : op.output == computed;
    case Function::kDelete:
      return op.output.is_none() || op.output == computed;
    case Function::kCas: {
      const bool swapped = computed == history.element(op.input, 0);
      if (op.output.is_none() || op.output == op.input) return swapped;
      if (op.output.is_bool()) return op.output == Value::boolean(swapped);
      return op.output == computed;
    }
    default:
      if (history.has_appends() && op.output == history.text("")) return computed.is_none();
      return op.output == computed;
  }
}

bool some_order(History& history, std::vector<Operation>& left, Spec spec) {
  std::uint32_t first_ret = kNever;
  for (const Operation& op : left) first_ret = std::min(first_ret, op.ret);
  if (first_ret == kNever) return true;  // the remaining operations may never have happened
  for (std::size_t i = 0; i < left.size(); ++i) {
    const Operation op = left[i];
    if (op.call > first_ret) continue;
    Spec after = spec;
    const auto computed = after.execute(history, op);
    if (!computed || (op.known() && !result_fits(history, op, *computed))) continue;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    const bool found = some_order(history, left, after);
    left.insert(left.begin() + static_cast<std::ptrdiff_t>(i), op);
    if (found) return true;
  }
  return false;
}

bool by_definition(History history, ModelKind kind) {
  std::map<std::int64_t, std::vector<Operation>> by_key;
  for (const Operation& op : pair_operations(history).all) by_key[op.key.a].push_back(op);
  for (auto& [key, ops] : by_key) {
    Spec spec;
    spec.value = kind == ModelKind::kCounter ? Value::integer(0) : history.header.initial;
    if (!some_order(history, ops, spec)) return false;
  }
  return true;
}

bool accepts(const History& history, ModelKind kind) {
  const Verdict verdict = check_linearizability(history, kind, {.explain = false});
  EXPECT_NE(verdict.answer, Answer::kUnknown);
  return verdict.answer == Answer::kYes;
}

class EveryModel : public ::testing::TestWithParam<ModelKind> {};

TEST_P(EveryModel, AgreesWithEveryOrderOfSmallHistories) {
  Rng rng(1, static_cast<int>(GetParam()), "agrees");
  int bad = 0;
  const int rounds = 100'000 / kScale;
  for (int i = 0; i < rounds; ++i) {
    Plan plan;
    plan.kind = GetParam();
    plan.operations = 1 + static_cast<int>(rng.below(6));
    plan.processes = 1 + static_cast<int>(rng.below(5));
    plan.values = static_cast<int>(rng.below(4));
    plan.keys = plan.kind == ModelKind::kKv ? 1 + static_cast<int>(rng.below(2)) : 1;
    plan.info_percent = i % 3 == 0 ? 30 : 0;
    plan.fail_percent = i % 4 == 0 ? 20 : 0;
    plan.lie_percent = i % 2 == 0 ? 30 : 0;
    const History history = i % 8 == 0 ? make_nonsense(plan, rng) : make_history(plan, rng);
    const bool expected = by_definition(history, plan.kind);
    bad += !expected;
    ASSERT_EQ(accepts(history, plan.kind), expected) << "history " << i << '\n' << to_json(history);
  }
  EXPECT_GT(bad, rounds / 50);
  EXPECT_LT(bad, rounds / 2);
}

TEST_P(EveryModel, AcceptsWhatARunMade) {
  Rng rng(2, static_cast<int>(GetParam()), "good");
  for (int i = 0; i < 20'000 / kScale; ++i) {
    Plan plan;
    plan.kind = GetParam();
    plan.operations = 10 + static_cast<int>(rng.below(30));
    plan.processes = 2 + static_cast<int>(rng.below(5));
    plan.values = static_cast<int>(rng.below(5));
    plan.info_percent = i % 2 == 0 ? 10 : 0;
    plan.fail_percent = 5;
    const History history = make_history(plan, rng);
    ASSERT_TRUE(accepts(history, plan.kind)) << "history " << i << '\n' << to_json(history);
  }
}

std::string name_of(const ::testing::TestParamInfo<ModelKind>& info) {
  return to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         ::testing::Values(ModelKind::kRegister, ModelKind::kKv, ModelKind::kQueue,
                                           ModelKind::kLock, ModelKind::kCounter),
                         name_of);

TEST(Linearizability, AppendsAgreeWithEveryOrderOfSmallHistories) {
  Rng rng(6, 0, "appends");
  int bad = 0;
  const int rounds = 40'000 / kScale;
  for (int n = 0; n < rounds; ++n) {
    Plan plan{ModelKind::kKv, 6, 1 + static_cast<int>(rng.below(5)), n % 3};
    plan.appends = true;
    plan.keys = 1 + static_cast<int>(rng.below(2));
    plan.info_percent = n % 3 == 0 ? 30 : 0;
    plan.lie_percent = n % 2 == 0 ? 30 : 0;
    const History history = make_history(plan, rng);
    const bool expected = by_definition(history, plan.kind);
    bad += !expected;
    ASSERT_EQ(accepts(history, plan.kind), expected) << "history " << n << '\n' << to_json(history);
    if (n % 16 == 0) check_linearizability(history, plan.kind, {});  // with the explanation
  }
  EXPECT_GT(bad, rounds / 50);
  EXPECT_LT(bad, rounds / 2);
}

class ModelWithResults : public ::testing::TestWithParam<ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Models, ModelWithResults,
                         ::testing::Values(ModelKind::kRegister, ModelKind::kKv, ModelKind::kQueue,
                                           ModelKind::kCounter),
                         name_of);

// --- one swap -------------------------------------------------------------------------------

/// Swaps two results of a history. The history is good before, so that a swap can break it.
bool swap_two_results(History& history, Rng& rng) {
  std::vector<Event> events = history.events();
  std::vector<std::size_t> results;
  for (std::size_t i = 0; i < events.size(); ++i)
    if (events[i].type == EventType::kOk && !events[i].value.is_none()) results.push_back(i);
  if (results.size() < 2) return false;
  const std::size_t x = results[rng.below(results.size())];
  const std::size_t y = results[rng.below(results.size())];
  if (events[x].value == events[y].value || events[x].f != events[y].f) return false;
  std::swap(events[x].value, events[y].value);
  history.clear();
  for (const Event& event : events) history.append(event);
  return true;
}

TEST_P(ModelWithResults, AgreesWithEveryOrderAfterOneSwap) {
  Rng rng(3, static_cast<int>(GetParam()), "swap");
  int bad = 0, swapped = 0;
  while (swapped < 25'000 / kScale) {
    Plan plan;
    plan.kind = GetParam();
    plan.operations = 6;
    plan.processes = 2 + static_cast<int>(rng.below(3));
    plan.values = static_cast<int>(rng.below(3));
    plan.info_percent = 10;
    History history = make_history(plan, rng);
    if (!swap_two_results(history, rng)) continue;
    ++swapped;
    const bool expected = by_definition(history, plan.kind);
    bad += !expected;
    ASSERT_EQ(accepts(history, plan.kind), expected) << to_json(history);
  }
  EXPECT_GT(bad, swapped / 4);
}

/// Returns whether x is over before y begins; both are of one kind.
bool ordered(const Operation& x, const Operation& y) { return x.ret < y.call; }

/// Returns whether no order explains the swapped results: two dequeues follow each other, and their
/// values were enqueued in the same order.
bool swap_breaks_order(const Operations& paired, const Operation& x, const Operation& y) {
  const Operation *enq_x = nullptr, *enq_y = nullptr;
  for (const Operation& op : paired.all) {
    if (op.f == Function::kEnq && op.input == x.output) enq_x = &op;
    if (op.f == Function::kEnq && op.input == y.output) enq_y = &op;
  }
  return enq_x != nullptr && enq_y != nullptr && ordered(x, y) && ordered(*enq_x, *enq_y);
}

TEST(Linearizability, RejectsDequeuesThatAreSwapped) {
  Rng rng(4, 0, "swapped queue");
  for (int found = 0; found < 50'000 / kScale;) {
    Plan plan{ModelKind::kQueue, 24, 4, 0};
    const History history = make_history(plan, rng);
    const Operations paired = pair_operations(history);
    std::vector<const Operation*> deqs;
    for (const Operation& op : paired.all)
      if (op.f == Function::kDeq && op.known() && !op.output.is_none()) deqs.push_back(&op);
    for (std::size_t i = 0; i + 1 < deqs.size(); ++i) {
      if (!swap_breaks_order(paired, *deqs[i], *deqs[i + 1])) continue;
      std::vector<Event> events = history.events();
      std::swap(events[deqs[i]->ret].value, events[deqs[i + 1]->ret].value);
      History broken;
      for (const Event& event : events) broken.append(event);
      ASSERT_FALSE(accepts(broken, ModelKind::kQueue)) << to_json(broken);
      ++found;
      break;
    }
  }
}

TEST(Linearizability, RejectsReadsOfOverwrittenValues) {
  Rng rng(5, 0, "stale read");
  for (int found = 0; found < 50'000 / kScale;) {
    const Plan plan{ModelKind::kRegister, 30, 4, 0};
    const History history = make_history(plan, rng);
    const Operations paired = pair_operations(history);
    // The operations are the first write, the first write that follows it, and a read after both.
    const Operation *older = nullptr, *newer = nullptr, *read = nullptr;
    bool made_again = false;  // a cas may write the older value once more
    for (const Operation& op : paired.all) {
      if (op.f == Function::kWrite && older == nullptr)
        older = &op;
      else if (op.f == Function::kWrite && newer == nullptr && ordered(*older, op))
        newer = &op;
      else if (op.f == Function::kRead && newer != nullptr && op.known() && ordered(*newer, op))
        read = &op;
      else if (op.f == Function::kCas && older != nullptr)
        made_again = made_again || history.element(op.input, 1) == older->input;
    }
    if (read == nullptr || made_again) continue;
    std::vector<Event> events = history.events();
    events[read->ret].value = older->input;
    History broken;
    for (const Event& event : events) broken.append(event);
    ASSERT_FALSE(accepts(broken, ModelKind::kRegister)) << to_json(broken);
    ++found;
  }
}

}  // namespace
}  // namespace pyrdma::check
