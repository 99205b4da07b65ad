// The replicated store over RPCs keeps its properties while members and clients die.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "fuzz/small_test.h"
#include "systems/erpc/raft/bugs.h"
#include "systems/erpc/raft/member.h"
#include "systems/system.h"

namespace pyrdma::erpc::replicas {
namespace {

const std::uint64_t kReplicaSeeds = (fuzz::kSlowed ? 20 : 120) * fuzz::search_factor();

const fuzz::Scenario& replicated() {
  return fuzz::scenario_named(systems::scenarios(), "erpc_raft");
}

fuzz::Options drawn_replicas(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {3, 80, 100, true});
  options.faults = fuzz::limited(replicated(), options.faults);
  if (seed % 4 == 0) {  // hosts lose their power in the midst of a write
    options.faults.enable(Fault::host_crash, 4);
    options.faults.enable(Fault::disk_torn, 2);
  }
  return options;
}

TEST(ErpcReplicasFuzz, TheStoreKeepsItsPropertiesWhileItsNodesDie) {
  if (!raft::raft_problem().empty()) GTEST_SKIP() << raft::raft_problem();
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kReplicaSeeds; ++seed) {
    const fuzz::Options options = drawn_replicas(seed);
    const fuzz::Outcome outcome = run(replicated(), options);
    ASSERT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 40 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(replicated(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_GT(sums.ok, kReplicaSeeds * 80);
  EXPECT_GT(sums.restarts, kReplicaSeeds);
  EXPECT_LE(sums.undecided, kReplicaSeeds / 40);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kReplicaSeeds) << "crashes after 50 operations";
  for (const Fault fault : replicated().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : replicated().branches)
    EXPECT_GE(sums.branches.at(branch), 1U) << branch;
}

TEST(ErpcReplicasFuzz, ItsBugsAreFound) {
  if (!raft::raft_problem().empty()) GTEST_SKIP() << raft::raft_problem();
  for (const std::string_view bug : replicated().mutations) {
    std::uint64_t found = 0;
    for (std::uint64_t seed = 1; seed <= 60 && found == 0; ++seed) {
      fuzz::Options options = drawn_replicas(seed);
      options.mutation = bug;
      if (!run(replicated(), options).violations.empty()) found = seed;
    }
    EXPECT_NE(found, 0U) << bug;
  }
}

}  // namespace
}  // namespace pyrdma::erpc::replicas
