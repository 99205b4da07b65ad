// A completion queue of a view's connections that has overrun.
#include "runtime/overrun_test.h"

#include <array>

#include "runtime/node_barrier.h"
#include "systems/spindle/links.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

using runtime::names_overrun;

constexpr const char* kOwner = "the links of a Spindle member";

// No completion frees a place, so the wait for room has no other end.
TEST(SpindleOverrunSim, AWaitForRoomAndADrainSaySo) {
  fabric::sim::SimCluster cluster(runtime::overrunning(2));
  cluster.run([&](Env& env) {
    fabric::Device& device = env.device();
    device.open();
    const auto domain = device.create_protection_domain();
    const auto table = device.allocate(*domain, 64, fabric::kLocalWrite | fabric::kRemoteWrite);
    Links links(env, *domain, options_of("sim", Options::of(Preset::kPaper)), 2, env.node());
    const Rank peer = 1 - env.node();
    fabric::Rendezvous& rendezvous = device.rendezvous();
    const auto key = [](const char* what, NodeId node) { return what + std::to_string(node); };
    rendezvous.publish_value(key("end", env.node()), links.address(peer));
    rendezvous.publish_value(key("table", env.node()), table->remote());
    links.connect(
        peer, rendezvous.await_value<fabric::QpAddress>(key("end", peer), runtime::kSetupTimeout),
        rendezvous.await_value<fabric::RemoteRegion>(key("table", peer), runtime::kSetupTimeout));
    links.open(peer);
    runtime::node_barrier(env, "open");
    if (env.node() == 0) {
      cluster.begin_faults();
      const auto write = [&] { links.write(peer, table->sge(0, 8), 0, true); };
      EXPECT_TRUE(names_overrun(
          [&] {
            for (int i = 0; i < 10'000; ++i) write();
          },
          0, kOwner));
      EXPECT_TRUE(names_overrun([&] { links.drain(kForever); }, 0, kOwner));
      EXPECT_TRUE(names_overrun([&] { links.poll(); }, 0, kOwner));
    }
    runtime::node_barrier(env, "end");
  });
}

// The member that sends has the first completions. It ends with the error, and not as one that the
// others took for dead.
TEST(SpindleOverrunSim, AMemberNamesTheQueueThatEndedIt) {
  SubgroupSpec spec;
  spec.max_message = 64;
  Log log(3);
  fabric::sim::SimCluster cluster(runtime::overrunning(3));
  bool is_over = false;
  cluster.run([&](Env& env) {
    TestNode node(env, "sim", Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(3));
    runtime::node_barrier(env, "founded");
    if (env.node() == 0) {
      cluster.begin_faults();
      const auto send = [&] {
        for (int i = 0; i < 10'000; ++i) node.send(0, 40);
      };
      EXPECT_TRUE(names_overrun(send, 0, kOwner));
      is_over = true;
    }
    env.poll_until([&] { return is_over; }, env.now() + kSecond);
    runtime::node_barrier(env, "end");
  });
}

}  // namespace
}  // namespace pyrdma::spindle
