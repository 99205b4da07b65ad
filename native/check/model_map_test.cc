// The model of a map with scans: it agrees with every order of small histories, accepts what an
// atomic map did, and finds scans that show no moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "check/check.h"
#include "check/histories_test.h"

namespace pyrdma::check::testing {
namespace {

/// A plain map.
struct PlainMap {
  std::map<std::int64_t, std::int64_t> entries;

  /// Carries the operation out and returns its result.
  Value execute(History& history, const Operation& op, bool sums) {
    switch (op.f) {
      case Function::kPut:
        entries[op.key.a] = op.input.a;
        return Value::none();
      case Function::kDelete:
        return Value::boolean(entries.erase(op.key.a) != 0);
      case Function::kGet: {
        const auto at = entries.find(op.key.a);
        return at == entries.end() ? Value::none() : i(at->second);
      }
      default: {
        std::vector<Value> found;
        std::int64_t sum = 0, left = op.input.a;
        for (auto at = entries.lower_bound(op.key.a); at != entries.end() && left > 0; ++at) {
          found.push_back(i(at->first));
          found.push_back(i(at->second));
          sum += at->second;
          --left;
        }
        return sums ? i(sum) : history.list(found);
      }
    }
  }
};

SearchLimits quick() {
  SearchLimits limits;
  limits.explain = false;
  return limits;
}

Operation some_operation(Rng& rng, std::int64_t number) {
  Operation op;
  op.key = i(static_cast<std::int64_t>(rng.below(4)));
  const std::uint64_t draw = rng.below(10);
  op.f = draw < 4   ? Function::kPut
         : draw < 5 ? Function::kDelete
         : draw < 7 ? Function::kGet
                    : Function::kScan;
  if (op.f == Function::kPut) op.input = i(100 + number);
  if (op.f == Function::kScan) op.input = i(1 + static_cast<std::int64_t>(rng.below(4)));
  return op;
}

/// A history of operations that overlap, each of which takes effect at a random time within its
/// interval. `lost`: one of them has no known outcome.
History history_of(Rng& rng, std::size_t count, bool sums, bool lost, std::vector<Operation>& ops) {
  History history;
  ops.clear();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::vector<Time> moments;
  for (std::size_t n = 0; n < count; ++n) {
    Operation op = some_operation(rng, static_cast<std::int64_t>(n));
    op.call_time = static_cast<Time>(rng.below(10 * count));
    op.return_time = op.call_time + 1 + static_cast<Time>(rng.below(40));
    moments.push_back(op.call_time + static_cast<Time>(rng.below(static_cast<std::uint64_t>(
                                         op.return_time - op.call_time))));
    op.process = static_cast<std::int32_t>(n);
    ops.push_back(op);
  }
  std::ranges::sort(order, {}, [&](std::size_t n) { return moments[n]; });
  PlainMap map;
  for (const std::size_t n : order) ops[n].output = map.execute(history, ops[n], sums);
  struct Moment {
    Time time;
    bool begins;
    std::size_t op;
  };
  std::vector<Moment> events;
  for (std::size_t n = 0; n < count; ++n) {
    events.push_back({ops[n].call_time, true, n});
    if (!lost || n != 0) events.push_back({ops[n].return_time, false, n});
  }
  std::ranges::sort(events, [](const Moment& a, const Moment& b) {
    return std::pair(a.time, !a.begins) < std::pair(b.time, !b.begins);
  });
  for (const Moment& event : events) {
    const Operation& op = ops[event.op];
    if (event.begins)
      history.invoke(event.time, op.process, op.f, op.key, op.input);
    else
      history.complete(event.time, op.process, EventType::kOk, op.f, op.key, op.output);
  }
  return history;
}

/// Tries all orders.
bool has_order(History& history, bool sums) {
  const Operations paired = pair_operations(history);
  std::vector<std::size_t> order(paired.all.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    const auto fits = [&](bool with_unknown) {
      PlainMap map;
      for (std::size_t at = 0; at < order.size(); ++at) {
        const Operation& op = paired.all[order[at]];
        for (std::size_t later = at + 1; later < order.size(); ++later) {
          if (paired.all[order[later]].known() && paired.all[order[later]].ret < op.call)
            return false;
        }
        if (!op.known() && !with_unknown) continue;
        const Value result = map.execute(history, op, sums);
        if (op.known() && op.f != Function::kPut && result != op.output) return false;
      }
      return true;
    };
    if (fits(true) || fits(false)) return true;
  } while (std::ranges::next_permutation(order).found);
  return false;
}

TEST(MapModel, AgreesWithEveryOrderOfSmallHistories) {
  Rng rng(11);
  std::vector<Operation> ops;
  int impossible = 0;
  for (int n = 0; n < 3000 / kScale; ++n) {
    const bool sums = n % 3 == 0;
    History history = history_of(rng, 2 + rng.below(4), sums, n % 4 == 0, ops);
    if (n % 2 == 0) {  // a result of another operation, or of none
      std::vector<Event> events = history.events();
      for (Event& event : events) {
        if (event.type != EventType::kOk || event.f != Function::kGet) continue;
        event.value = i(100 + static_cast<std::int64_t>(rng.below(5)));
        break;
      }
      History changed = history;
      changed.clear();
      for (const Event& event : events) changed.append(event);
      history = changed;
    }
    const bool expected = has_order(history, sums);
    impossible += !expected;
    const Verdict verdict = check_history(history, "map", quick());
    EXPECT_EQ(verdict.answer, expected ? Answer::kYes : Answer::kNo) << verdict.text;
  }
  EXPECT_GT(impossible, 150 / kScale);
}

TEST(MapModel, AcceptsWhatAMapDidAndFindsMixedScans) {
  Rng rng(12);
  std::vector<Operation> ops;
  int mixed = 0, found = 0;
  for (int n = 0; n < 300 / kScale; ++n) {
    History history = history_of(rng, 60, false, n % 2 == 0, ops);
    ASSERT_EQ(check_history(history, "map", quick()).answer, Answer::kYes) << n;
    // One value of one scan is replaced by another that the key had.
    History changed = history;
    changed.clear();
    bool done = false;
    for (Event event : history.events()) {
      const std::size_t size = history.size_of(event.value);
      if (!done && event.type == EventType::kOk && event.f == Function::kScan && size >= 4 &&
          changed.events().size() > 60) {
        std::vector<Value> elements;
        for (std::size_t at = 0; at < size; ++at)
          elements.push_back(history.element(event.value, at));
        for (const Operation& op : ops) {
          if (op.f == Function::kPut && op.key == elements[0] && op.input != elements[1] &&
              op.return_time < event.time - 60)
            elements[1] = op.input;
        }
        event.value = changed.list(elements);
        done = true;
      }
      changed.append(event);
    }
    if (!done) continue;
    ++mixed;
    found += check_history(changed, "map", quick()).answer == Answer::kNo;
  }
  EXPECT_GT(mixed, 100 / kScale);
  EXPECT_GT(found, mixed / 4);
}

// Each key alone is linearizable. The scan shows the second put and not the first.
TEST(MapModel, AScanOfTwoMomentsIsFound) {
  History history;
  const auto put = [&](Time at, std::int64_t key, std::int64_t value) {
    history.invoke(at, 0, Function::kPut, i(key), i(value));
    history.complete(at + 1, 0, EventType::kOk, Function::kPut, i(key), Value::none());
  };
  put(1, 1, 10);
  put(3, 2, 20);
  history.invoke(5, 1, Function::kScan, i(1), i(2));
  put(6, 1, 11);
  put(8, 2, 21);
  const std::vector<Value> mixed{i(1), i(10), i(2), i(21)};
  history.complete(20, 1, EventType::kOk, Function::kScan, i(1), history.list(mixed));
  const Verdict verdict = check_history(history, "map");
  EXPECT_EQ(verdict.answer, Answer::kNo);
  EXPECT_NE(verdict.text.find("scan"), std::string::npos);
}

}  // namespace
}  // namespace pyrdma::check::testing
