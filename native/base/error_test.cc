#include "base/error_test.h"

namespace pyrdma {
namespace {

TEST(ErrorTest, AValueIsNamedAsAWholeWord) {
  EXPECT_TRUE(names("size is -1; give 1 to 4096 B", {"size", "-1", "1", "4096", "B"}));
  EXPECT_TRUE(names("loss is 2.000", {"2", "2.000"}));
  EXPECT_TRUE(names("[0 1] (event 14)", {"[0 1]", "14"}));
  for (const char* text : {"", "-1", "0.1", "12", "1.5", "x1", "1_000", "is -1"})
    EXPECT_FALSE(names(text, {"1"})) << text;
}

TEST(ErrorTest, CodeAndValuesAreCompared) {
  const auto act = [] { throw Error(ErrorCode::kTimeout, "node 3 is late"); };
  EXPECT_TRUE(refuses(act, ErrorCode::kTimeout, {"3"}));
  EXPECT_FALSE(refuses(act, ErrorCode::kTimeout, {"4"}));
  EXPECT_FALSE(refuses(act, ErrorCode::kInternal, {"3"}));
  EXPECT_FALSE(refuses([] {}, ErrorCode::kTimeout));
}

}  // namespace
}  // namespace pyrdma
