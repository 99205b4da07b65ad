// The oracle of failed clients compares the nodes that an error blames, not its text.
#include <gtest/gtest.h>

#include "fabric/sim/profile_test.h"
#include "fuzz/simulation.h"
#include "systems/loco/fuzz/world.h"

namespace pyrdma::loco::scenario {
namespace {

class OracleSim : public testing::Test {
 protected:
  OracleSim() {
    options.nodes = 4;
    options.profile = fabric::sim::test_profile();
    phase.emplace(options, outcome);
    world.emplace(options, outcome, *phase, false);
    cluster.emplace(fuzz::simulation_of(options, 0));
    world->cluster = &*cluster;
  }
  std::size_t violations() {
    world->check();
    return outcome.violations.size();
  }
  static Error timeout(std::vector<NodeId> blamed) {
    return Error(ErrorCode::kTimeout, "node 0: no answer within 100 ms").blaming(std::move(blamed));
  }
  fuzz::Options options;
  fuzz::Outcome outcome;
  std::optional<fuzz::FaultPhase> phase;
  std::optional<World> world;
  std::optional<fabric::sim::SimCluster> cluster;
};

TEST_F(OracleSim, AnErrorThatBlamesADeadNodeIsRight) {
  world->died[1] = true;
  world->failed(0, timeout({2, 1}));
  EXPECT_EQ(violations(), 0U);
}

TEST_F(OracleSim, TheNumberOfADeadNodeInTheTextProvesNothing) {
  world->died[1] = true;  // "100 ms" contains a 1
  world->failed(0, timeout({}));
  EXPECT_EQ(violations(), 1U);
}

TEST_F(OracleSim, ALivingNodeMustNotBeBlamedAlone) {
  world->died[1] = true;
  world->failed(0, timeout({2}));
  EXPECT_EQ(violations(), 1U);
}

TEST_F(OracleSim, ANodeThatADeadOneHoldsUpMayBeBlamed) {
  world->died[1] = true;
  world->failed(0, timeout({2}));
  world->failed(2, timeout({1}));
  EXPECT_EQ(violations(), 0U);
}

TEST_F(OracleSim, LivingNodesMustNotBlameEachOther) {
  world->died[1] = true;
  world->failed(0, timeout({2}));
  world->failed(2, timeout({0}));
  EXPECT_EQ(violations(), 2U);
}

TEST_F(OracleSim, ANodeThatDiesAfterItsOwnErrorIsDead) {
  world->ended[1] = true;
  world->died[1] = true;
  world->failed(1, timeout({}));
  world->failed(0, timeout({1}));
  EXPECT_EQ(violations(), 0U);
}

}  // namespace
}  // namespace pyrdma::loco::scenario
