#include "measure/params.h"

#include <gtest/gtest.h>

#include "base/error.h"
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

std::string complaint(const ParamMap& given) {
  try {
    Params::resolve(specs(), given, "load");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
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
  EXPECT_EQ(complaint({{"size", std::int64_t{0}}}), "load: size is 0; give 1 to 4096 B");
  EXPECT_EQ(complaint({{"skew", -0.5}}), "load: skew is -0.5; give at least 0");
  EXPECT_EQ(complaint({{"size", std::string("big")}}), "load: size is 'big'; give a whole number");
  EXPECT_EQ(complaint({{"op", std::string("reed")}}),
            "load: op is 'reed'; give one of read, write; did you mean 'read'?");
  EXPECT_EQ(complaint({{"sizes", std::vector<std::int64_t>{1, 9}}}),
            "load: sizes is 9; give 1 to 8 B");
  EXPECT_EQ(complaint({{"szie", std::int64_t{1}}}),
            "load has no parameter 'szie'; it takes size, skew, op, sizes; did you mean 'size'?");
}

TEST(Params, RunsHaveKeysOfTheirOwn) {
  const Params first = Params::resolve(specs(), {{"run", std::int64_t{1}}}, "load");
  const Params second = Params::resolve(specs(), {{"run", std::int64_t{2}}}, "load");
  EXPECT_NE(first.key("x"), second.key("x"));
}

TEST(Registry, NamesTheNearest) {
  Workloads table;
  table.add(shared_workloads());
  try {
    table.make("verbs_laod");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'verbs_load'?"), std::string::npos)
        << error.what();
  }
  for (const std::string& name : table.names())
    EXPECT_FALSE(table.make(name)->parameters().empty());
}

TEST(Registry, SaysWhyALibraryCannotBeLoaded) {
  try {
    Workloads().make("./not-there.so:mine");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("not-there.so"), std::string::npos);
  }
}

}  // namespace
}  // namespace pyrdma::measure
