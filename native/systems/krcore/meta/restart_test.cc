// A meta server that dies and begins anew (section 4.2).
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

// The tables of the last life are lost. Nodes 2 and 3 never read them, so they do not notice. The
// server knows both again, and a connect costs what it did.
TEST(KrcoreMetaSim, AServerThatBeginsAnewKnowsAllNodes) {
  constexpr NodeId kServer = 0, kClient = 1;
  fabric::sim::SimCluster cluster(runtime::sim_options(4));
  bool is_up[4] = {}, is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    is_up[env.node()] = true;
    const auto await = [&](const bool& flag) {
      while (!flag) env.sleep_until(env.now() + 100 * kMicrosecond);
    };
    if (env.node() != kClient) {
      if (env.node() != kServer || env.incarnation() != 0) return await(is_over);
      env.sleep_until(kForever);  // it is killed
    }
    for (const bool& up : is_up) await(up);
    const auto time_of_connect = [&](NodeId node) {
      service.clear_caches();
      const Queue queue = app.create_queue();
      const Time begin = env.now();
      app.connect(queue, node, 7);
      const Time took = env.now() - begin;
      app.destroy(queue);
      return took;
    };
    const Time usual = time_of_connect(2);
    EXPECT_LT(usual, 10 * kMicrosecond);
    cluster.kill(kServer);
    EXPECT_GT(time_of_connect(2), 100 * kMicrosecond) << "the node itself tells";
    is_up[kServer] = false;
    cluster.restart(kServer);
    await(is_up[kServer]);
    env.sleep_until(env.now() + 500 * kMillisecond);
    for (const NodeId node : {2U, 3U, 2U, 3U}) EXPECT_LT(time_of_connect(node), 2 * usual) << node;
    is_over = true;
  });
}

// Node 1 begins one life after the other, and only the table of the meta server tells node 2 of the
// last one. When the server is dead, too, node 2 asks that life. The time for an answer is too
// short to ask each life in turn.
TEST(KrcoreMetaSim, ALifeThatATableNamesIsAskedLater) {
  constexpr NodeId kServer = 0, kRestarts = 1, kClient = 2;
  constexpr std::uint32_t kLives = 8;
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  bool is_up[kLives] = {}, is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const auto await = [&](const bool& flag) {
      while (!flag) env.sleep_until(env.now() + 100 * kMicrosecond);
    };
    if (env.node() == kRestarts) is_up[env.incarnation()] = true;
    if (env.node() != kClient) return await(is_over);
    await(is_up[0]);
    for (std::uint32_t life = 1; life < kLives; ++life) {
      cluster.kill(kRestarts);
      cluster.restart(kRestarts);
      await(is_up[life]);
    }
    service.clear_caches();
    const std::uint64_t reads = service.meta_reads();
    app.connect(app.create_queue(), kRestarts, 7);
    EXPECT_GT(service.meta_reads(), reads) << "the table told";
    cluster.kill(kServer);
    service.clear_caches();
    EXPECT_NO_THROW(app.connect(app.create_queue(), kRestarts, 7)) << "the node itself tells";
    is_over = true;
  });
}

// The background asks the dead server again and again. Places of regions whose leases have ended
// are free meanwhile.
TEST(KrcoreMetaSim, ADeadServerKeepsNoRegions) {
  constexpr std::uint32_t kRegions = 4;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.lease = kMillisecond;
    options.timeout_us = 100;
    options.regions = kRegions;
    Service service(env, options);
    runtime::node_barrier(env, "up");
    if (env.node() == 0) env.sleep_until(kForever);  // it is killed
    App app(service);
    cluster.kill(0);
    EXPECT_THROW(app.connect(app.create_queue(), 0, 7), Error);  // finds the server dead
    for (std::uint32_t i = 0; i < 80 * kRegions; ++i) {
      app.dereg_mr(app.reg_mr(64));
      env.sleep_until(env.now() + 2 * service.regions().grace() / kRegions);
    }
  });
}

}  // namespace
}  // namespace pyrdma::krcore
