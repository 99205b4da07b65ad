// Each checker without search is compared with its definition, and with the search where both
// apply.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error_test.h"
#include "check/check.h"
#include "check/histories_test.h"
#include "check/history_json.h"
#include "check/invariants/barriers.h"
#include "check/invariants/fifo.h"
#include "check/invariants/locks.h"

namespace pyrdma::check {
namespace {

using testing::i;
using testing::kScale;
using testing::Plan;

/// Records whole operations and points, one step of time after the other.
struct Notes {
  History history;
  Time now = 0;
  void call(int process, Function f, Value value) { history.invoke(++now, process, f, {}, value); }
  void done(int process, Function f, Value value = {}) {
    history.complete(++now, process, EventType::kOk, f, {}, value);
  }
  void lost(int process, Function f) {
    history.complete(++now, process, EventType::kInfo, f, {}, {});
  }
  void whole(int process, Function f, Value input, Value output = {}) {
    call(process, f, input);
    done(process, f, output);
  }
  void point(int node, Function f, Value value, std::int64_t epoch = -1, Value key = {}) {
    history.point(++now, node, f, key, value, epoch);
  }
  Value list(std::initializer_list<std::int64_t> numbers) {
    std::vector<Value> elements;
    for (const std::int64_t number : numbers) elements.push_back(i(number));
    return history.list(elements);
  }
  std::string check(const char* model) const { return check_history(history, model).text; }
};

void expect_names(const Notes& notes, const char* model,
                  const std::vector<std::string_view>& values) {
  EXPECT_TRUE(names(notes.check(model), values));
}

// --- queues -------------------------------------------------------------------------------------

/// Names the operations of a violation: e and d for an enqueue and a dequeue of a value.
std::string pattern(const Violation& found) {
  std::string letters;
  for (const Operation& op : found.operations) {
    if (op.f == Function::kDeq && op.output.is_none()) return "empty";
    letters += op.f == Function::kEnq ? 'e' : 'd';
  }
  std::ranges::sort(letters);
  return letters;
}

TEST(Fifo, AgreesWithTheSearchOnCompleteHistories) {
  Rng rng(31, 0, "fifo");
  std::set<std::string> patterns;
  int good = 0;
  for (int n = 0; n < 60'000 / kScale; ++n) {
    Plan plan{ModelKind::kQueue, 2 + static_cast<int>(rng.below(11)), 4, 0};
    plan.lie_percent = n % 2 == 0 ? 0 : 20;
    plan.fail_percent = n % 3 == 0 ? 10 : 0;
    const History history = testing::make_history(plan, rng);
    const auto found = check_fifo(history, pair_operations(history));
    const Verdict verdict = check_history(history, "queue", {.explain = false});
    ASSERT_EQ(!found, verdict.answer == Answer::kYes)
        << (found ? found->text : "nothing found") << '\n'
        << to_json(history);
    good += !found;
    if (!found) continue;
    patterns.insert(pattern(*found));
  }
  // The patterns: a value was never enqueued, came out before it went in, came out twice, came out
  // in the wrong order, or came out although an earlier one never did; a dequeue found the queue
  // empty.
  if (kScale == 1) {
    EXPECT_EQ(patterns, (std::set<std::string>{"d", "de", "dde", "ddee", "dee", "empty"}));
  }
  EXPECT_GT(good, 1000 / kScale);
}

TEST(Fifo, FindsNothingWrongThatTheSearchAcceptsWithUnknownOutcomes) {
  Rng rng(32, 0, "fifo unknown");
  int found_too = 0, bad = 0;
  for (int n = 0; n < 40'000 / kScale; ++n) {
    Plan plan{ModelKind::kQueue, 2 + static_cast<int>(rng.below(9)), 4, 0};
    plan.lie_percent = n % 2 == 0 ? 0 : 20;
    plan.info_percent = 20;
    const History history = testing::make_history(plan, rng);
    const auto found = check_fifo(history, pair_operations(history));
    const bool legal = check_history(history, "queue", {.explain = false}).answer == Answer::kYes;
    ASSERT_FALSE(found && legal) << found->text << '\n' << to_json(history);
    bad += !legal;
    found_too += found.has_value();
  }
  EXPECT_GT(found_too, bad / 2);
}

// --- locks --------------------------------------------------------------------------------------

TEST(Locks, AgreesWithTheSearchOnCompleteHistories) {
  Rng rng(33, 0, "locks");
  int bad = 0;
  for (int n = 0; n < 30'000 / kScale; ++n) {
    Plan plan{ModelKind::kLock, 2 + static_cast<int>(rng.below(9)), 3};
    plan.lie_percent = n % 2 == 0 ? 0 : 15;
    History drawn = testing::make_history(plan, rng);
    // The history has only complete operations: an operation that waits for ever is left out.
    History history;
    for (const Operation& op : pair_operations(drawn).all) {
      if (!op.known()) continue;
      for (const std::uint32_t at : {op.call, op.ret}) {
        Event event = drawn.events()[at];
        event.time = at;
        history.append(event);
      }
    }
    const std::array<History, 1> one = {history};
    history = History::merge(one);
    const auto found = check_locks(history, pair_operations(history));
    const bool legal = check_history(history, "lock", {.explain = false}).answer == Answer::kYes;
    ASSERT_EQ(!found, legal) << (found ? found->text : "nothing found") << '\n' << to_json(history);
    bad += !legal;
  }
  EXPECT_GT(bad, 1000 / kScale);
}

TEST(Locks, TicketsAreGrantedInOrder) {
  using enum Function;
  Notes notes;
  notes.whole(0, kLock, {}, i(4));
  notes.whole(0, kUnlock, {});
  notes.whole(1, kLock, {}, i(5));
  notes.whole(1, kUnlock, {});
  EXPECT_EQ(notes.check("mutex"), "");
  Notes skipped = notes;
  skipped.whole(0, kLock, {}, i(7));
  expect_names(skipped, "mutex", {"7", "5"});
  Notes again = notes;
  again.whole(0, kLock, {}, i(5));
  expect_names(again, "mutex", {"5"});
  // A client holds ticket 6 and is gone.
  notes.call(2, kLock, {});
  notes.lost(2, kLock);
  notes.whole(0, kLock, {}, i(7));
  EXPECT_EQ(notes.check("mutex"), "");
}

TEST(Locks, NamesBothHolders) {
  using enum Function;
  Notes notes;
  notes.whole(0, kLock, {});
  notes.whole(1, kLock, {});
  expect_names(notes, "mutex", {"0", "1", "2", "3"});
}

// --- barriers -----------------------------------------------------------------------------------

TEST(Barriers, AgreeWithTheDefinition) {
  Rng rng(34, 0, "barriers");
  int bad = 0;
  for (int n = 0; n < 20'000 / kScale; ++n) {
    const int parties = 1 + static_cast<int>(rng.below(4));
    Notes notes;
    std::vector<int> round(static_cast<std::size_t>(parties)), inside(round);
    std::map<int, std::vector<Time>> in, out;
    for (int turn = 0; turn < 20; ++turn) {
      const std::size_t who = rng.below(round.size());
      const int process = static_cast<int>(who);
      int all_in = 0;
      for (std::size_t p = 0; p < round.size(); ++p)
        all_in += round[p] > round[who] || (round[p] == round[who] && inside[p] != 0);
      const Value name = Value::pair(round[who], parties);
      if (inside[who] == 0) {
        notes.call(process, Function::kBarrier, name);
        in[round[who]].push_back(notes.now);
        inside[who] = 1;
      } else if (all_in == parties || rng.below(40) == 0) {
        notes.done(process, Function::kBarrier);
        out[round[who]].push_back(notes.now);
        inside[who] = 0;
        ++round[who];
      }
    }
    bool legal = true;
    for (const auto& [number, leaves] : out) {
      const Time first = *std::min_element(leaves.begin(), leaves.end());
      const auto& enters = in[number];
      legal = legal && enters.size() == static_cast<std::size_t>(parties) &&
              *std::max_element(enters.begin(), enters.end()) <= first;
    }
    const auto found = check_barriers(notes.history, pair_operations(notes.history));
    ASSERT_EQ(!found, legal) << (found ? found->text : "nothing found") << '\n'
                             << to_json(notes.history);
    bad += !legal;
  }
  EXPECT_GT(bad, 200 / kScale);
}

TEST(Barriers, SaysWhoLeftBeforeWhom) {
  Notes notes;
  notes.call(0, Function::kBarrier, i(3));
  notes.done(0, Function::kBarrier);
  notes.call(1, Function::kBarrier, i(3));
  expect_names(notes, "barrier", {"0", "1", "2", "3"});
}

// --- calls --------------------------------------------------------------------------------------

TEST(Rpc, RunsAtMostOnceAndOnlyWhatWasCalled) {
  using enum Function;
  Notes good;
  const Value a = good.list({1, 0, 7}), b = good.list({1, 0, 8});
  good.call(1, kRpc, a);
  good.point(0, kExec, a);
  good.done(1, kRpc);
  good.call(1, kRpc, b);
  Notes unknown = good;
  unknown.lost(1, kRpc);
  EXPECT_EQ(unknown.check("rpc"), "");
  unknown.point(0, kExec, b);
  EXPECT_EQ(unknown.check("rpc"), "");
  Notes twice = unknown;
  twice.point(0, kExec, b);
  expect_names(twice, "rpc", {"[1 0 8]", "5", "6"});
  Notes answered = good;
  answered.done(1, kRpc);
  expect_names(answered, "rpc", {"[1 0 8]"});
  Notes uncalled = good;
  uncalled.point(0, kExec, uncalled.list({2, 0, 1}));
  expect_names(uncalled, "rpc", {"[2 0 1]", "4"});
  Notes failed = good;
  failed.history.complete(9, 1, EventType::kFail, kRpc, {}, {});
  failed.point(0, kExec, b);
  expect_names(failed, "rpc", {"[1 0 8]", "5"});
}

}  // namespace
}  // namespace pyrdma::check
