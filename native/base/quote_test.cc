#include "base/quote.h"

#include <gtest/gtest.h>

namespace pyrdma {
namespace {

TEST(Quote, EscapesWhatMovesATerminal) {
  EXPECT_EQ(in_quotes("a\x1b[2J\n"), "'a\\x1b[2J\\x0a'");
  EXPECT_EQ(in_quotes({"\0b", 2}), "'\\x00b'");
}

TEST(Quote, ShortensALongTextBetweenCharacters) {
  const std::string part(40, 'x');
  EXPECT_EQ(in_quotes(std::string(100'000, 'x')),
            "'" + part + "' ... '" + part + "' (100000 bytes)");
  std::string accents;
  for (int i = 0; i < 60; ++i) accents += "\u00e9";
  EXPECT_EQ(in_quotes('x' + accents),
            "'x" + accents.substr(0, 38) + "' ... '" + accents.substr(0, 40) + "' (121 bytes)");
}

}  // namespace
}  // namespace pyrdma
