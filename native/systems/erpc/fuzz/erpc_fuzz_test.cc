// RPCs keep their properties under drawn faults. Each deliberate bug is found; those that need a
// fault pass without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/erpc/bugs.h"
#include "systems/system.h"

namespace pyrdma::erpc {
namespace {

const std::uint64_t kRpcSeeds = (fuzz::kSlowed ? 60 : 2000) * fuzz::search_factor();

const fuzz::Scenario& rpcs() { return fuzz::scenario_named(systems::scenarios(), "erpc"); }

fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {2, 100, 300, true});
  if (seed % 16 == 0) options.nodes = 5;
  options.faults = fuzz::limited(rpcs(), options.faults);
  return options;
}

TEST(ErpcFuzz, RequestsKeepTheirPropertiesUnderFaults) {
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kRpcSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(rpcs(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 20 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(rpcs(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_EQ(fuzz::checks_too_rare(rpcs(), sums), "");
  EXPECT_GT(sums.ok, kRpcSeeds * 200);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kRpcSeeds / 20) << "crashes after 50 operations";
  EXPECT_GT(sums.restarts, kRpcSeeds / 20);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  for (const Fault fault : rpcs().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : rpcs().branches)
    EXPECT_GE(sums.branches.at(branch), fuzz::search_factor() > 1 ? 100U : 1U) << branch;
}

TEST(ErpcFuzz, PacketsFitALinkWithoutJumboFrames) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fuzz::Options options = drawn(seed);
    options.profile.link_mtu_bytes = 1024;
    const fuzz::Outcome outcome = run(rpcs(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
  }
}

TEST(ErpcFuzz, PresetsDecideTheSwitches) {
  for (const std::string_view preset : rpcs().presets) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      fuzz::Options options = drawn(seed);
      options.preset = preset;
      const fuzz::Outcome outcome = run(rpcs(), options);
      EXPECT_TRUE(outcome.violations.empty()) << preset << ", seed " << seed << "\n"
                                              << describe(outcome);
    }
  }
}

/// The faults in which a bug is looked for. With `only_by_faults` it passes without them.
struct FoundBug {
  const char* name;
  std::vector<std::pair<Fault, double>> faults;  // and how often, times the rate of the table
  bool only_by_faults;
  std::uint64_t seeds;  // within which it is found
};
const FoundBug kFoundBugs[] = {
    {"executes_again", {{Fault::duplicate, 10}}, false, 10},
    {"piece_by_response_size", {}, false, 10},
    {"credits_lost", {{Fault::loss, 5}}, false, 10},
    {"credits_doubled", {{Fault::loss, 5}}, false, 10},
    {"death_ignored", {{Fault::crash, 10}}, false, 20},
    {"generation_ignored", {{Fault::duplicate, 20}}, true, 60},
    {"order_ignored", {{Fault::loss, 5}, {Fault::reorder, 10}}, false, 20},
    {"older_response_taken", {{Fault::loss, 5}, {Fault::delay, 5}}, false, 20},
    {"wheel_ignored", {{Fault::loss, 5}, {Fault::delay, 5}}, false, 60},
    {"size_trusted", {}, false, 10},
    {"lost_in_backlog", {{Fault::crash, 10}}, false, 20},
    {"credit_not_returned", {}, false, 10},
    {"older_request_taken", {{Fault::duplicate, 20}, {Fault::reorder, 20}}, true, 60},
    // A client that comes again ends its old sessions itself.
    {"dead_client_kept", {{Fault::crash, 10}}, false, 100},
    {"any_ping_answered", {{Fault::pause, 10}}, true, 60},
    {"not_sent_claimed", {{Fault::crash, 10}}, false, 20},
    {"numbers_run_out", {}, false, 20},
};

fuzz::Options options_of_bug(const FoundBug& bug, std::uint64_t seed) {
  fuzz::Options options = drawn(seed);
  options.faults = FaultOptions();
  for (const auto& [fault, factor] : bug.faults) options.faults.enable(fault, factor);
  return options;
}

class ErpcFuzzBugs : public testing::TestWithParam<FoundBug> {};

TEST_P(ErpcFuzzBugs, AreFound) {
  const FoundBug& bug = GetParam();
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= bug.seeds && found == 0; ++seed) {
    fuzz::Options options = options_of_bug(bug, seed);
    const fuzz::Outcome control = run(rpcs(), options);
    EXPECT_TRUE(control.violations.empty()) << "seed " << seed << "\n" << describe(control);
    options.mutation = bug.name;
    if (!run(rpcs(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U) << bug.name;
  RecordProperty("seeds_to_kill", static_cast<int>(found));
  if (!bug.only_by_faults) return;
  for (std::uint64_t seed = 1; seed <= std::max<std::uint64_t>(found, 20); ++seed) {
    fuzz::Options options = options_of_bug(bug, seed);
    options.faults = FaultOptions();
    options.mutation = bug.name;
    const fuzz::Outcome ablated = run(rpcs(), options);
    EXPECT_TRUE(ablated.violations.empty()) << "seed " << seed << "\n" << describe(ablated);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ErpcFuzzBugs, testing::ValuesIn(kFoundBugs),
                         [](const auto& each) { return std::string(each.param.name); });

// Tests of their own find these: they count drains (failure_test.cc), measure times (turns_test.cc)
// and copies (copies_test.cc), send packets of others (strangers_test.cc), or make endpoints again
// (successor_test.cc).
constexpr std::string_view kBugsOfOtherTests[] = {
    "no_drain_at_client", "no_drain_at_server",  "own_slot_first",     "copies_measured",
    "sender_not_checked", "older_sessions_kept", "late_connect_taken", "refusal_is_final"};

TEST(ErpcFuzz, EveryBugHasATest) {
  for (const std::string_view name : kBugNames) {
    const bool is_drawn =
        std::ranges::any_of(kFoundBugs, [&](const auto& bug) { return bug.name == name; });
    EXPECT_NE(is_drawn, std::ranges::find(kBugsOfOtherTests, name) != std::end(kBugsOfOtherTests))
        << name;
  }
}

}  // namespace
}  // namespace pyrdma::erpc
