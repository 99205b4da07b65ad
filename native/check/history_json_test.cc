#include "check/history_json.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/error_test.h"
#include "base/quote.h"
#include "base/rng.h"
#include "check/check.h"
#include "check/histories_test.h"

namespace pyrdma::check {
namespace {

TEST(HistoryJson, WhatIsWrittenIsReadAgain) {
  History history;
  history.header = {~0ULL, "abc", "nodes = 5 \"x\"\n", "f00", "register", Value::integer(0)};
  const Value name = history.text("k\\\"\t\xc3\xa9");
  const std::array elements = {Value::none(), Value::boolean(true), name, Value::integer(-7)};
  history.invoke(1, 0, Function::kWrite, name, history.list(elements), 9);
  history.complete(2, 0, EventType::kOk, Function::kWrite, name, Value::none(), 9);
  history.invoke(3, 1, Function::kCas, Value::integer(3), Value::pair(1, 2));
  history.complete(4, 1, EventType::kInfo, Function::kCas, Value::integer(3), Value::none());
  history.point(5, 2, Function::kDeliver, Value::none(), Value::pair(1, 2), 4);
  const std::string text = to_json(history);
  const ParsedHistory parsed = parse_history(text);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(to_json(parsed.history), text);
  EXPECT_EQ(parsed.history.header.seed, ~0ULL);
  EXPECT_EQ(parsed.history.header.config, history.header.config);
  EXPECT_EQ(parsed.history.show(parsed.history.events()[0].value),
            history.show(history.list(elements)));
}

TEST(HistoryJson, ReadsWhatJepsenWrites) {
  const ParsedHistory good = parse_history(
      R"({"type": ":invoke", "f": ":enqueue", "value": 1, "process": 0, "time": 3, "error": {"a": [1.5e3, {}]}})"
      "\n\n"
      R"({"type":"info","f":"start-partition","value":{"n1":["n2"]},"process":":nemesis"})"
      "\r\n"
      R"({"type":"ok","f":"enqueue","value":1,"process":0,"index":7})");
  ASSERT_TRUE(good.ok()) << good.message();
  ASSERT_EQ(good.history.events().size(), 2U);
  EXPECT_EQ(good.history.events()[0].f, Function::kEnq);
}

struct Bad {
  const char* text;
  std::vector<std::string_view> values;
  std::size_t line = 2;
};

TEST(HistoryJson, SaysWhatIsWrongAndWhere) {
  const std::string first = R"({"seed":1,"model":"register"})"
                            "\n";
  const std::array<Bad, 24> all = {{
      {"x", {"'{'", "'x'"}},
      {"{", {"'\"'"}},
      {R"({"process":0,"type":"invoke"})", {"f"}},
      {R"({"process":0,"type":"maybe","f":"read"})", {"type", "maybe", "invoke", "ok"}},
      {R"({"process":0,"type":"ok","f":"jump"})", {"f", "jump", "read", "write"}},
      {R"({"process":-1,"type":"ok","f":"read"})", {"process", "-1", "0", "2147483647"}},
      {R"({"process":1.5,"type":"ok","f":"read"})", {"process", "1.5"}},
      {R"({"process":0,"process":0})", {"process"}},
      {R"({"process":0,"value":[[1]]})", {"null", "true", "false"}},
      {R"({"process":0,"value":1e99})", {"value", "1e99", "64"}},
      {R"({"process":0,"value":99999999999999999999})", {"value", "64"}},
      {R"({"process":0,"value":01})", {"zeros"}},
      {R"({"process":0,"value":nil})", {"null"}},
      {R"({"process":0,"value":"\x"})", {"'x'"}},
      {R"({"process":0,"value":"\ud800"})", {"surrogate"}},
      {"{\"process\":0,\"value\":\"\xff\"}", {"UTF-8", "0xff"}},
      {"{\"process\":0,\"value\":\"\x01\"}", {"0x01"}},
      {R"({"process":0,"type":"ok","f":"read"} 1)", {"'1'"}},
      {R"({"process":0,"type":"ok","f":"read"})", {"0", "read"}},
      {R"({"index":3,"process":0,"type":"invoke","f":"read"})"
       "\n"
       R"({"index":3,"process":1,"type":"invoke","f":"read"})",
       {"index", "3"},
       3},
      {R"({"process":0,"type":"invoke","f":"read"})"
       "\n"
       R"({"process":0,"type":"invoke","f":"read"})",
       {"0", "read"},
       3},
      {R"({"process":0,"type":"invoke","f":"read"})"
       "\n"
       R"({"process":0,"type":"ok","f":"write"})",
       {"0", "write", "read"},
       3},
      {R"({"time":7,"process":0,"type":"invoke","f":"read"})"
       "\n"
       R"({"time":7,"process":1,"type":"invoke","f":"read"})"
       "\n"
       R"({"process":2,"type":"invoke","f":"read"})"
       "\n"
       R"({"time":-6,"process":0,"type":"ok","f":"read"})",
       {"-6", "7", "4", "backwards"},
       5},
      {"{\"process\":0,\"type\":\"\\u001b[2J\\u202e\"}", {"\\x1b[2J\\u202e"}},
  }};
  for (const Bad& bad : all) {
    const ParsedHistory parsed = parse_history(first + bad.text);
    EXPECT_TRUE(names(parsed.error, bad.values)) << bad.text;
    EXPECT_EQ(parsed.line, bad.line) << bad.text;
    EXPECT_GE(parsed.column, 1u) << bad.text;
    EXPECT_TRUE(names(parsed.message(), {std::to_string(bad.line)})) << bad.text;
  }
}

TEST(HistoryJson, KeepsItsLimits) {
  const std::string nested(100, '[');
  EXPECT_TRUE(names(parse_history("{\"process\":0,\"more\":" + nested).error, {"32"}));
  const std::string event = "{\"process\":0,\"type\":\"info\",\"f\":\"view\"}\n";
  EXPECT_TRUE(names(parse_history(event + event + event, {1000, 2}).error, {"2"}));
  EXPECT_TRUE(names(parse_history(event, {10, 2}).error, {"10"}));
  EXPECT_TRUE(names(parse_history(event + event, {1000, 9, 50}).error, {"50"}));
  HistoryReader endless;  // as /dev/zero
  const std::string zeros(1 << 16, '\0');
  int pieces = 0;
  while (endless.feed(zeros)) ASSERT_LT(++pieces, 100);
  EXPECT_TRUE(names(endless.end().error, {"1048576"}));
}

TEST(HistoryJson, RefusesEmptyLinesWithoutEnd) {
  ReadLimits limits;
  limits.line_bytes = 100;
  HistoryReader reader(limits);
  EXPECT_TRUE(reader.feed(std::string(100, '\n')));
  EXPECT_FALSE(reader.feed("\n\n"));
  EXPECT_TRUE(names(reader.end().error, {"100", "empty"}));
}

TEST(HistoryJson, ReadsPiecesOfAnyLength) {
  Rng rng(5, 0, "pieces");
  const std::string text = to_json(testing::make_history({ModelKind::kRegister, 20, 3, 3}, rng));
  for (const std::size_t length : {std::size_t{1}, std::size_t{7}, std::size_t{64}, text.size()}) {
    HistoryReader reader;
    for (std::size_t at = 0; at < text.size(); at += length)
      EXPECT_TRUE(reader.feed(std::string_view(text).substr(at, length)));
    EXPECT_EQ(to_json(reader.end().history), text) << length;
  }
}

TEST(HistoryJson, AByteOrderMarkIsSkippedOrNamed) {
  const std::string event = R"({"process":0,"type":"info","f":"view"})";
  EXPECT_TRUE(parse_history("\xef\xbb\xbf" + event).ok());
  EXPECT_FALSE(parse_history(event + "\n\xef\xbb\xbf" + event).ok());
  EXPECT_TRUE(names(parse_history("\xff\xfe{").error, {"UTF-16", "UTF-8"}));
}

TEST(History, ShowsTextsInOneShortSafeLine) {
  EXPECT_EQ(in_quotes("a\nb\x1b[0m\xc2\x9b\xe2\x80\xae\xc3\xa9\xf3\xa0\x80\x81", '"'),
            "\"a\\x0ab\\x1b[0m\\x9b\\u202e\xc3\xa9\\U000e0001\"");
  std::string text;
  for (int n = 0; n < 100'000; ++n) text += "\xc3\xa9";
  EXPECT_LT(in_quotes(text).size(), 120U);
  EXPECT_TRUE(names(in_quotes(text), {"200000"}));
  History history;
  const std::vector<Value> many(1000, Value::integer(7));
  EXPECT_LT(history.show(history.list(many)).size(), 100U);
}

/// Histories are cut, mixed and filled with random bytes. The reader must answer or throw an Error.
TEST(HistoryJson, SurvivesRandomChanges) {
  Rng rng(11, 0, "garbage");
  const std::string syntax = "{}[]\",:0123456789-.eE\\unltrf \n";
  int read = 0;
  for (int i = 0; i < 20'000 / testing::kScale; ++i) {
    testing::Plan plan{static_cast<ModelKind>(rng.below(5)), 5, 3, 3};
    plan.info_percent = 10;
    std::string text = to_json(testing::make_history(plan, rng));
    for (std::uint64_t n = rng.below(4) + 1; n > 0; --n) {
      const std::size_t at = rng.below(text.size());
      const std::uint64_t how = rng.below(4);
      if (how == 0) text[at] = static_cast<char>(rng());
      if (how == 1) text[at] = syntax[rng.below(syntax.size())];
      if (how == 2) text.erase(at, rng.below(20));
      if (how == 3) text.insert(at, text.substr(rng.below(text.size()), rng.below(30)));
      if (text.empty()) text = "{";
    }
    const ParsedHistory parsed = parse_history(text);
    read += parsed.ok();
    EXPECT_EQ(parsed.ok(), parsed.line == 0);
    if (!parsed.ok()) continue;
    for (const std::string& model : model_names()) {
      try {
        check_history(parsed.history, model, {.configurations = 1000});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      }
    }
  }
  EXPECT_GT(read, 100 / testing::kScale);
}

TEST(History, MergesByTimeAndBeginningsFirst) {
  std::array<History, 2> parts;
  parts[0].invoke(10, 0, Function::kWrite, parts[0].text("x"), Value::integer(1));
  parts[0].complete(20, 0, EventType::kOk, Function::kWrite, parts[0].text("x"), Value::none());
  parts[1].text("other");
  parts[1].invoke(20, 1, Function::kRead, parts[1].text("x"), Value::none());
  parts[1].complete(30, 1, EventType::kOk, Function::kRead, parts[1].text("x"), Value::none());
  const History all = History::merge(parts);
  ASSERT_EQ(all.events().size(), 4U);
  EXPECT_EQ(all.events()[1].f, Function::kRead);
  EXPECT_EQ(all.events()[1].key, all.events()[0].key);
  EXPECT_EQ(check_history(all, "register").answer, Answer::kYes);
}

TEST(History, AProcessKeepsItsOrderWhenItsClockGoesBack) {
  History part;
  const Value key = part.text("x");
  part.invoke(10, 0, Function::kWrite, key, Value::integer(1));
  part.complete(20, 0, EventType::kOk, Function::kWrite, key, Value::none());
  part.invoke(20, 0, Function::kWrite, key, Value::integer(2));  // another core's clock is behind
  part.complete(19, 0, EventType::kOk, Function::kWrite, key, Value::none());
  const History all = History::merge(std::span(&part, 1));
  const std::array<EventType, 4> wanted{EventType::kInvoke, EventType::kOk, EventType::kInvoke,
                                        EventType::kOk};
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(all.events()[i].type, wanted[i]) << i;
  EXPECT_EQ(check_history(all, "register").answer, Answer::kYes);
}

/// A write by a node, then a read of the old value by another node whose clock is `ahead`.
History skewed_read(Time ahead, Time clock_bound) {
  std::array<History, 2> parts;
  parts[0].header.initial = Value::integer(0);
  parts[0].invoke(100, 0, Function::kWrite, {}, Value::integer(1));
  parts[0].complete(200, 0, EventType::kOk, Function::kWrite, {}, Value::none());
  for (const Time at : {150, 180}) {
    parts[1].invoke(at + ahead, 1, Function::kRead, {}, Value::none());
    parts[1].complete(at + ahead + 20, 1, EventType::kOk, Function::kRead, {}, Value::integer(0));
  }
  return History::merge(parts, clock_bound);
}

TEST(History, EndsAreWidenedByTheClocksBound) {
  const auto answer = [](const History& history) {
    return check_history(history, "register").answer;
  };
  EXPECT_EQ(answer(skewed_read(0, 0)), Answer::kYes);
  EXPECT_EQ(answer(skewed_read(60, 0)), Answer::kNo);  // 180 + 60 is after the write's end
  EXPECT_EQ(answer(skewed_read(60, 60)), Answer::kYes);
  EXPECT_EQ(answer(skewed_read(200, 60)), Answer::kNo);  // no clocks within 60 explain this
}

TEST(History, AWidenedHistoryIsWrittenAndReadWithItsBound) {
  const std::string text = to_json(skewed_read(60, 60));
  const ParsedHistory parsed = parse_history(text);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(parsed.history.header.clock_bound, 60);
  EXPECT_EQ(to_json(parsed.history), text);
  const std::array again{parsed.history};
  EXPECT_EQ(History::merge(again, 40).header.clock_bound, 100);
  EXPECT_EQ(History::merge(again, kForever).header.clock_bound, kForever);
}

TEST(History, MomentsAreNotWidened) {
  History inside;
  inside.invoke(5, 0, Function::kBcast, {}, Value::pair(0, 1));
  inside.point(10, 0, Function::kDeliver, {}, Value::pair(0, 1));
  try {
    History::merge(std::span(&inside, 1), 5);
    ADD_FAILURE() << "an event inside a node was widened";
  } catch (const Error& error) {
    EXPECT_TRUE(names(error.what(), {"deliver", "5"}));
  }
  History lock;
  lock.invoke(10, 0, Function::kLock, {}, Value::none());
  lock.complete(20, 0, EventType::kOk, Function::kLock, {}, Value::none());
  lock.invoke(30, 0, Function::kUnlock, {}, Value::none());
  lock.complete(40, 0, EventType::kOk, Function::kUnlock, {}, Value::none());
  const History widened = History::merge(std::span(&lock, 1), 100);
  EXPECT_EQ(check_history(widened, "lock").answer, Answer::kYes);
  EXPECT_THROW(check_history(widened, "mutex"), Error);
}

}  // namespace
}  // namespace pyrdma::check
