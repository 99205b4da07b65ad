// Every scenario at its fewest and its most nodes, and the options that it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error_test.h"
#include "fuzz/small_test.h"
#include "systems/system.h"

namespace pyrdma::systems {
namespace {

class ScenariosSim : public testing::TestWithParam<std::size_t> {
 protected:
  const fuzz::Scenario& scenario() const { return scenarios().at(GetParam()); }
};

TEST_P(ScenariosSim, RunOnTheFewestAndOnTheMostNodes) {
  const NodeId fewest = scenario().fewest_nodes;
  const std::array<NodeId, 2> ends{fewest, fuzz::kSlowed ? NodeId{4} : scenario().most_nodes};
  for (const NodeId nodes : ends) {
    for (std::uint64_t seed = 1; seed <= (nodes == fewest ? 8U : 1U); ++seed) {
      fuzz::Options options = fuzz::small_options(seed, {nodes, 64, 1, false});
      options.nodes = nodes;
      const fuzz::Outcome outcome = run(scenario(), options);
      EXPECT_TRUE(outcome.violations.empty()) << nodes << " nodes, seed " << seed << "\n"
                                              << describe(outcome);
      EXPECT_TRUE(outcome.undecided.empty());
    }
  }
  fuzz::Options options = fuzz::small_options(1, {});
  for (const NodeId nodes : {fewest - 1, scenario().most_nodes + 1}) {
    options.nodes = nodes;
    const std::string bound = std::to_string(nodes < fewest ? fewest : scenario().most_nodes);
    EXPECT_TRUE(refuses([&] { run(scenario(), options); }, ErrorCode::kInvalidArgument,
                        {"nodes", std::to_string(nodes), bound}));
  }
}

TEST_P(ScenariosSim, RefuseFaultsThatTheyCannotHave) {
  for (const auto& [faults, reason] : scenario().left_out) {
    for (const Fault fault : faults) {
      fuzz::Options options = fuzz::small_options(1, {scenario().fewest_nodes, 8, 1, false});
      options.kept.emplace();  // the refusal precedes the run
      options.asked = {fault};
      EXPECT_TRUE(refuses([&] { run(scenario(), options); }, ErrorCode::kInvalidArgument,
                          {scenario().name, fault_info(fault).key, reason,
                           fault_info(scenario().faults().front()).key}));
    }
  }
}

TEST_P(ScenariosSim, RecordHistoriesOrRefuseTo) {
  fuzz::Options options = fuzz::small_options(1, {scenario().fewest_nodes, 64, 1, false});
  options.faults = {};
  options.history = true;
  if (scenario().has_histories) {
    EXPECT_FALSE(run(scenario(), options).histories.empty());
  } else {
    EXPECT_TRUE(refuses([&] { run(scenario(), options); }, ErrorCode::kInvalidArgument,
                        {scenario().name, "history", "trace"}));
  }
}

std::vector<std::size_t> every() {
  std::vector<std::size_t> numbers(scenarios().size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  return numbers;
}
INSTANTIATE_TEST_SUITE_P(All, ScenariosSim, testing::ValuesIn(every()), [](const auto& param) {
  return std::string(scenarios().at(param.param).name);
});

}  // namespace
}  // namespace pyrdma::systems
