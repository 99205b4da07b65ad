// The window and the text of a violation.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/error_test.h"
#include "check/check.h"
#include "check/histories_test.h"
#include "check/history_json.h"

namespace pyrdma::check {
namespace {

using testing::i;

struct Step {
  int process;
  char type;  // + invoke, . ok, ! info
  Function f;
  Value value;
};

History history_of(std::initializer_list<Step> steps) {
  History history;
  Time now = 0;
  for (const Step& step : steps) {
    const EventType type = step.type == '+'   ? EventType::kInvoke
                           : step.type == '.' ? EventType::kOk
                                              : EventType::kInfo;
    history.append({now += 10, {}, step.value, -1, -1, step.process, -1, type, step.f});
  }
  return history;
}

const Value kNil;

TEST(Window, OfAStaleReadIsTheReadAndTheWriteBefore) {
  using enum Function;
  History history;
  Time now = 0;
  const auto whole = [&](int process, Function f, Value input, Value output) {
    history.invoke(now += 10, process, f, kNil, input);
    history.complete(now += 10, process, EventType::kOk, f, kNil, output);
  };
  for (int n = 1; n <= 200; ++n) {
    whole(n % 5, kWrite, i(n), kNil);
    whole(n % 3, kRead, kNil, i(n));
  }
  whole(1, kRead, kNil, i(199));
  for (int n = 201; n <= 300; ++n) whole(n % 5, kWrite, i(n), kNil);
  const Verdict verdict = check_history(history, "register");
  ASSERT_EQ(verdict.answer, Answer::kNo);
  ASSERT_EQ(verdict.window.size(), 2U) << verdict.text;
  // The window shows one reason, the earlier read of 200. The write of 200 would be another reason.
  EXPECT_EQ(verdict.window[1].op.output, i(199));
  EXPECT_TRUE(verdict.window[1].impossible);
  EXPECT_TRUE(verdict.from_anywhere);
  EXPECT_TRUE(names(verdict.text, {"read -> 199", "1", "800", "801"}));
}

TEST(Window, OfAReadOfNothingWrittenIsThatRead) {
  using enum Function;
  const History history = history_of({{0, '+', kWrite, i(1)},
                                      {0, '.', kWrite, kNil},
                                      {1, '+', kWrite, i(2)},
                                      {2, '+', kRead, kNil},
                                      {2, '.', kRead, i(7)},
                                      {1, '.', kWrite, kNil}});
  const Verdict verdict = check_history(history, "register");
  ASSERT_EQ(verdict.answer, Answer::kNo);
  ASSERT_EQ(verdict.window.size(), 1U) << verdict.text;
  EXPECT_EQ(verdict.window[0].op.f, kRead);
  EXPECT_EQ(verdict.events, (std::vector<std::uint32_t>{3, 4}));
}

TEST(Window, UnknownOutcomesExplainOnceAndLater) {
  using enum Function;
  // An unknown write may show up late. It may not go away and come back.
  const History late = history_of({{0, '+', kWrite, i(1)},
                                   {0, '!', kWrite, kNil},
                                   {1, '+', kRead, kNil},
                                   {1, '.', kRead, kNil},
                                   {1, '+', kRead, kNil},
                                   {1, '.', kRead, i(1)}});
  EXPECT_EQ(check_history(late, "register").answer, Answer::kYes);
  const History back = history_of({{0, '+', kWrite, i(1)},
                                   {0, '!', kWrite, kNil},
                                   {1, '+', kRead, kNil},
                                   {1, '.', kRead, i(1)},
                                   {1, '+', kWrite, i(2)},
                                   {1, '.', kWrite, kNil},
                                   {1, '+', kRead, kNil},
                                   {1, '.', kRead, i(1)}});
  const Verdict verdict = check_history(back, "register");
  EXPECT_EQ(verdict.answer, Answer::kNo);
  EXPECT_LE(verdict.window.size(), 4U) << verdict.text;
}

/// Each window is a violation by itself: as a history that begins in any state, it has no order.
/// The test uses registers, because the definition can try all their first states.
TEST(Window, IsAViolationByItself) {
  Rng rng(21, 0, "window");
  int seen = 0;
  for (int n = 0; n < 4'000 / testing::kScale; ++n) {
    testing::Plan plan{ModelKind::kRegister, 20, 4, 3};
    plan.lie_percent = 15;
    plan.info_percent = 5;
    const History history = testing::make_history(plan, rng);
    const Verdict verdict = check_history(history, "register");
    if (verdict.answer != Answer::kNo) continue;
    ++seen;
    std::vector<Event> events;
    for (std::size_t number = 0; number < verdict.window.size(); ++number) {
      const WindowOperation& w = verdict.window[number];
      // Each operation has a process of its own, because an optional operation stays open.
      const auto take = [&](std::uint32_t at) {
        Event event = history.events()[at];
        event.process = static_cast<std::int32_t>(number);
        event.time = at;
        events.push_back(event);
      };
      take(w.op.call);
      if (w.op.known() && !w.optional) take(w.op.ret);
    }
    std::ranges::sort(events, {}, &Event::time);
    const bool anywhere = verdict.from_anywhere;
    for (int initial = anywhere ? 0 : 9; initial <= (anywhere ? 4 : 9); ++initial) {
      History part;
      if (initial < 4) part.header.initial = i(initial);
      for (const Event& event : events) part.append(event);
      ASSERT_EQ(check_history(part, "register", {.explain = false}).answer, Answer::kNo)
          << verdict.text << to_json(history);
    }
  }
  EXPECT_GT(seen, 10);
}

TEST(Window, GivenUpIsNeitherYesNorNo) {
  Rng rng(1, 0, "hard");
  const History history = testing::make_history({ModelKind::kRegister, 200, 40, 0}, rng);
  const Verdict verdict = check_history(history, "register", {.configurations = 3});
  EXPECT_EQ(verdict.answer, Answer::kUnknown);
  EXPECT_TRUE(names(verdict.text, {"3"}));
}

}  // namespace
}  // namespace pyrdma::check
