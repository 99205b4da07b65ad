// Heartbeats of members that have much to send.
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

// Each turn of the sender pushes one long message and waits for room in its short queues. All of
// its messages take milliseconds, each turn some microseconds. Its heartbeat came after 32 of these
// turns, and the others took it for dead.
TEST(SpindleHeartbeatSim, AMemberThatWaitsForRoomInEachTurnIsHeard) {
  constexpr std::uint32_t kNodes = 8, kMessages = 400;
  Options options = Options::of(Preset::kBaseline);
  options.send_entries = 16;
  options.heartbeat = 10 * kMicrosecond;
  options.suspicion_timeout = 150 * kMicrosecond;
  options.timeout_us = 1000;
  SubgroupSpec spec;
  spec.senders = {0};
  spec.window = 100;
  spec.max_message = 10'000;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  std::uint32_t done = 0;
  cluster.run([&](Env& env) {
    std::uint32_t got = 0;
    Upcalls upcalls;
    upcalls.deliver = [&](std::uint32_t, std::span<const Message> messages) {
      got += static_cast<std::uint32_t>(messages.size());
    };
    Group group(env, options, {spec}, upcalls);
    group.found(all_nodes(kNodes));
    for (std::uint32_t i = 0; i < kMessages && env.node() == 0; ++i) {
      ASSERT_FALSE(group.reserve(0, env.now() + kPatience).empty());
      group.send(0, spec.max_message);
    }
    const auto has_all = [&] { return got == kMessages || group.standing() != Standing::kMember; };
    EXPECT_TRUE(group.wait_until(has_all, env.now() + kPatience));
    ++done;
    EXPECT_TRUE(group.wait_until([&] { return done == kNodes; }, env.now() + kPatience));
    EXPECT_EQ(got, kMessages);
    EXPECT_EQ(group.view_id(), 1U) << "a member was suspected";
  });
}

}  // namespace
}  // namespace pyrdma::spindle
