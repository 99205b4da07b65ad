// The reference model is compared with verdicts by hand. The text form of programs is tested too.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_test.h"
#include "measure/litmus/shapes.h"

namespace pyrdma::measure::litmus {
namespace {

Program program(const Shape& shape) {
  return parse(shape.locations, shape.threads, shape.observed);
}

TEST(LitmusModel, AgreesWithTheVerdictsByHand) {
  std::set<std::string> names;
  for (const Shape& shape : shapes()) {
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name << " is there twice";
    const Program parsed = program(shape);
    const std::map<Outcome, Level> levels = classify(parsed);
    const auto found = levels.find(parsed.outcome(shape.outcome));
    const Level level = found == levels.end() ? Level::kForbidden : found->second;
    EXPECT_STREQ(to_string(level), to_string(shape.level)) << shape.name;
    EXPECT_TRUE(std::any_of(levels.begin(), levels.end(), [](const auto& one) {
      return one.second == Level::kSequential;
    })) << shape.name;
  }
}

// The expected sets of outcomes are complete and derived by hand.
TEST(LitmusModel, AllowsExactlyTheseOutcomes) {
  const auto outcomes = [](const char* locations, const char* threads, const char* observed) {
    const Program parsed = parse(locations, threads, observed);
    std::string result;
    for (const auto& [outcome, level] : classify(parsed))
      result += parsed.text(outcome) + " " + to_string(level) + "\n";
    return result;
  };
  EXPECT_EQ(outcomes("x@1 a@0", "0: put x a; store a 2", "x"),
            "x=0 sequential\nx=2 asynchronous\n");
  EXPECT_EQ(outcomes("x@1 f@1", "0: put x 1; put f 1 | 1: load r0 f; load r1 x", "r0 r1"),
            "r0=0 r1=0 sequential\nr0=0 r1=1 sequential\nr0=1 r1=1 sequential\n");
  EXPECT_EQ(outcomes("x@1 a@0", "0: fadd a x 1; poll | 1: store x 4", "a x"),
            "a=0 x=1 late\na=0 x=4 sequential\na=4 x=5 sequential\n");
  EXPECT_EQ(outcomes("b@1:64", "0: put b 1 | 1: load r0 b.0; load r1 b.1", "r0 r1"),
            "r0=0 r1=0 sequential\nr0=1 r1=0 late\nr0=0 r1=1 sequential\nr0=1 r1=1 sequential\n");
  EXPECT_EQ(outcomes("x@1", "0: put x 1; poll; put x 2; poll; put x 3", "x"), "x=3 sequential\n");
}

TEST(LitmusModel, RefusesProgramsThatWaitForEver) {
  EXPECT_THROW(classify(parse("x@0", "0: wait x 1", "x")), Error);
}

TEST(LitmusProgram, PrintsAndReadsOutcomes) {
  const Program parsed = parse("x@1 b@1:64", "1: load r0 x", "r0 b.1 x");
  EXPECT_EQ(parsed.text(0x030201), "r0=1 b.1=2 x=3");
  EXPECT_EQ(parsed.outcome("r0=1 b.1=2 x=3"), 0x030201u);
  EXPECT_THROW(parsed.outcome("r0=1 x=3"), Error);
}

TEST(LitmusProgram, NamesTheWordThatIsWrong) {
  struct Case {
    const char *locations, *threads, *observed;
    std::vector<std::string_view> values;
  };
  const Case cases[] = {
      {"x", "0: poll", "x", {"x", "name@node"}},    {"x@9", "0: poll", "x", {"9", "0", "3"}},
      {"x@0", "0: put x 1", "x", {"put"}},          {"x@1", "0: store x 1", "x", {"x"}},
      {"x@1", "0: pet x 1", "x", {"pet"}},          {"x@1", "0: put x", "x", {"put", "2"}},
      {"x@1", "0: put x 9", "x", {"9", "0", "7"}},  {"x@1", "0: put y 1", "x", {"y"}},
      {"x@1:64 a@0", "0: get a x", "x.0", {"get"}}, {"x@0", "0: load r x; load r x", "r", {"r"}},
      {"x@1", "1: recv 0", "x", {"recv"}},          {"x@1", "0: put x 1", "", {"''"}},
  };
  for (const Case& wrong : cases)
    EXPECT_TRUE(refuses([&] { parse(wrong.locations, wrong.threads, wrong.observed); },
                        ErrorCode::kInvalidArgument, wrong.values));
}

}  // namespace
}  // namespace pyrdma::measure::litmus
