// Connects on devices without dynamic connections, which wait for a reliable one.
#include "base/error.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

fabric::sim::SimOptions without_dynamic(std::uint32_t nodes) {
  fabric::sim::SimOptions options = runtime::sim_options(nodes);
  auto values = fabric::sim::test_profile_values();
  values["nic.has_dc"] = 0;
  options.profile = fabric::sim::SimProfile::from_values(values);
  return options;
}

Options small() {
  Options options;
  options.arena_bytes = 1 << 20;
  return options;
}

/// Connects, and returns the error's code and how long it took.
std::pair<ErrorCode, Time> refused(App& app, NodeId node) {
  const Time begin = app.env().now();
  try {
    app.connect(app.create_queue(), node, 7);
    ADD_FAILURE() << "connected to node " << node;
    return {};
  } catch (const Error& error) {
    return {error.code(), app.env().now() - begin};
  }
}

TEST(KrcoreConnectSim, ADeadPeerIsKnownWithinASecond) {
  fabric::sim::SimCluster cluster(without_dynamic(3));
  cluster.run([&](Env& env) {
    Service service(env, small());
    runtime::node_barrier(env, "up");
    if (env.node() == 2) env.sleep_until(env.now() + 10 * kSecond);
    if (env.node() != 1) return;
    cluster.kill(2);
    App app(service);
    const auto [code, took] = refused(app, 2);
    EXPECT_EQ(code, ErrorCode::kUnavailable);
    EXPECT_LT(took, kSecond);
  });
}

TEST(KrcoreConnectSim, AFullPoolSaysSoAtOnce) {
  fabric::sim::SimCluster cluster(without_dynamic(3));
  cluster.run([&](Env& env) {
    Options options = small();
    options.rc_queue_pairs = 1;
    Service service(env, options);
    if (env.node() == 0) {
      App app(service);
      app.connect(app.create_queue(), 1, 7);
      const auto [code, took] = refused(app, 2);
      EXPECT_EQ(code, ErrorCode::kExhausted);
      EXPECT_LT(took, 100 * kMillisecond);
    }
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
