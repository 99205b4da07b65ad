#include "measure/params.h"

#include <gtest/gtest.h>

#include "base/error_test.h"
#include "measure/workload.h"

namespace pyrdma::measure {
namespace {

const std::vector<ParameterSpec>& specs() {
  static const std::vector<ParameterSpec> all = {
      {"size", std::int64_t{64}, "B", "", 1, 4096},
      {"skew", 0.99, "", "", 0},
      {"op", std::string("read"), "", "", 0, 0, {"read", "write"}},
      {"sizes", std::vector<std::int64_t>{1, 2}, "B", "", 1, 8},
  };
  return all;
}

testing::AssertionResult refused(const ParamMap& given,
                                 const std::vector<std::string_view>& values) {
  return refuses([&] { Params::resolve(specs(), given, "load"); }, ErrorCode::kInvalidArgument,
                 values);
}

TEST(Params, FillsDefaultsIn) {
  const Params params =
      Params::resolve(specs(), {{"size", std::int64_t{8}}, {"skew", std::int64_t{1}}}, "load");
  EXPECT_EQ(params.integer("size"), 8);
  EXPECT_EQ(params.real("skew"), 1.0);
  EXPECT_EQ(params.text("op"), "read");
  EXPECT_EQ(params.list("sizes"), (std::vector<std::int64_t>{1, 2}));
}

TEST(Params, ErrorsNameKeyValueBoundAndUnit) {
  EXPECT_TRUE(refused({{"size", std::int64_t{0}}}, {"load", "size", "0", "1", "4096", "B"}));
  EXPECT_TRUE(refused({{"skew", -0.5}}, {"load", "skew", "-0.5", "0"}));
  EXPECT_TRUE(refused({{"size", std::string("big")}}, {"load", "size", "big"}));
  EXPECT_TRUE(refused({{"op", std::string("reed")}}, {"load", "op", "reed", "read", "write"}));
  EXPECT_TRUE(
      refused({{"sizes", std::vector<std::int64_t>{1, 9}}}, {"load", "sizes", "9", "1", "8", "B"}));
  EXPECT_TRUE(
      refused({{"szie", std::int64_t{1}}}, {"load", "szie", "size", "skew", "op", "sizes"}));
}

TEST(Params, RefusesAParameterThatTheChosenSystemLacks) {
  const std::vector<ParameterSpec> own = {
      {"system", std::string("ours"), "", "", 0, 0, {"ours", "theirs"}},
      {"merged", std::int64_t{0}, "bool", "", 0, 1, {}, "theirs"},
  };
  const ParamMap given = {{"merged", std::int64_t{0}}};
  EXPECT_TRUE(refuses([&] { Params::resolve(own, given, "load"); }, ErrorCode::kInvalidArgument,
                      {"load", "merged", "False", "theirs", "ours"}));
  ParamMap theirs = given;
  theirs["system"] = std::string("theirs");
  EXPECT_FALSE(Params::resolve(own, theirs, "load").flag("merged"));
  EXPECT_FALSE(Params::resolve(own, {}, "load").flag("merged"));
}

TEST(Params, RunsHaveKeysOfTheirOwn) {
  const Params first = Params::resolve(specs(), {{"run", std::int64_t{1}}}, "load");
  const Params second = Params::resolve(specs(), {{"run", std::int64_t{2}}}, "load");
  EXPECT_NE(first.key("x"), second.key("x"));
}

TEST(Registry, NamesTheNearest) {
  Workloads table;
  table.add(shared_workloads());
  EXPECT_TRUE(refuses([&] { table.make("verbs_laod"); }, ErrorCode::kInvalidArgument,
                      {"verbs_laod", "verbs_load"}));
  for (const std::string& name : table.names())
    EXPECT_FALSE(table.make(name)->parameters().empty());
}

TEST(Registry, SaysWhyALibraryCannotBeLoaded) {
  EXPECT_TRUE(refuses([] { Workloads().make("./not-there.so:mine"); }, ErrorCode::kUnavailable,
                      {"./not-there.so"}));
}

}  // namespace
}  // namespace pyrdma::measure
