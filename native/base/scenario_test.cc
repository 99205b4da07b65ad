#include "base/scenario_test.h"

#include <gtest/gtest-spi.h>
#include <unistd.h>

namespace pyrdma {
namespace {

/// A scenario of a counter, in a file of its own.
class Scenarios : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path); }
  void run(const std::string& text) {
    std::ofstream(path) << text;
    std::uint64_t sum = 0;
    run_scenario(path, [&](const ScenarioStep& step) -> std::string {
      if (step.command == "add") return sum += step.number(0) * step.setting("times", 1), "";
      if (step.command == "sum") return std::to_string(sum);
      throw step.wrong("has an unknown command");
    });
  }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  const std::string path =
      std::filesystem::temp_directory_path() / ("pyrdma-scenario-" + std::to_string(getpid()));
};

TEST_F(Scenarios, StepsAreComparedBlockByBlock) {
  run("# Adds.\nadd 1\nadd 2 times=3\nsum\n----\n7\n\nsum\nsum\n----\n7\n7\n");
  run("add 1\n----\n\nsum\n----\n1");
  EXPECT_NONFATAL_FAILURE(run("add 1\nsum\n----\n2\n"), ":3");
}

TEST_F(Scenarios, WhatIsMisspeltIsNamedWithItsLine) {
  EXPECT_NONFATAL_FAILURE(run("add 1\nad 2\n----\n"), ":2");
  EXPECT_NONFATAL_FAILURE(run("add 1 time=2\n----\n"), "time");
  EXPECT_NONFATAL_FAILURE(run("add 1 2\n----\n"), "add 1 2");
  EXPECT_NONFATAL_FAILURE(run("add\n----\n"), "add");
  EXPECT_NONFATAL_FAILURE(run("add 1x\n----\n"), "1x");
  EXPECT_NONFATAL_FAILURE(run("add 1\n----\n\nsum\n"), "----");
  EXPECT_NONFATAL_FAILURE(run("# nothing\n"), path);
}

TEST_F(Scenarios, RewritingMakesAFileOfWhatIsShown) {
  setenv("PYRDMA_REWRITE", "1", 1);
  run("# Adds.\nadd 1\nsum\n----\n5\n6\n\nsum\n----\n");
  unsetenv("PYRDMA_REWRITE");
  EXPECT_EQ(content(), "# Adds.\nadd 1\nsum\n----\n1\n\nsum\n----\n1\n");
  run(content());
}

}  // namespace
}  // namespace pyrdma
