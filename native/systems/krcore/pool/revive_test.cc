// Physical queue pairs fail, drain and serve again, or go, beside the ends of their users.
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

class KrcoreRevive : public KrcoreWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreRevive, krcore_worlds(),
                         [](const auto& info) { return info.param; });

constexpr int kUsers = 2, kQueues = 150;

Options of_few(Options options, std::uint32_t reliable) {
  options.cores = 1;
  options.rc_policy = RcPolicy::kAtOnce;
  options.rc_queue_pairs = reliable;
  options.timeout_us = 100;
  return options;
}

// Threads make, reset and destroy queues with requests under way, to two nodes. Another one breaks
// the physical queue pairs. What has drained may have been destroyed when its turn comes. Every
// request that is awaited ends, and the pool serves.
void fail_beside_ends(Service& service) {
  Env& env = service.env();
  App app(service);
  const Registration own = app.reg_mr(4096);
  env.device().rendezvous().publish_value(
      "region/" + std::to_string(env.node()),
      fabric::RemoteRegion{own.addr, own.bytes, own.key, env.node()});
  runtime::node_barrier(env, "up");
  if (env.node() != 0) return runtime::node_barrier(env, "done");
  const auto use = [&](NodeId node, const fabric::Sge& sge, std::uint64_t draw) {
    const auto there = env.device().rendezvous().await_value<fabric::RemoteRegion>(
        "region/" + std::to_string(node), env.now() + runtime::kSetupTimeout);
    const fabric::WorkRequest read = one_sided(fabric::Opcode::kRead, sge, there.addr, there.rkey);
    const Queue queue = app.create_queue();
    app.connect(queue, node, 7);
    if (draw % 8 == 0) {
      app.push(queue, {&read, 1});
      service.break_physical(queue);
      service.reset(queue);
      app.connect(queue, node, 7);
    }
    app.push(queue, {&read, 1});
    if (draw / 8 % 4 == 0) service.break_physical(queue);
    fabric::Completion done;
    done.status = fabric::Status::kGeneral;
    if (draw / 32 % 2 == 0) {
      EXPECT_EQ(app.wait(queue, {&done, 1}, env.now() + 10 * kSecond), 1U);
    }
    app.destroy(queue);
    return done.status;
  };
  std::vector<std::unique_ptr<Thread>> users;
  for (std::uint64_t user = 0; user < kUsers; ++user) {
    users.push_back(env.spawn("user", [&, user] {
      Rng rng = env.rng("user/" + std::to_string(user));
      for (int i = 0; i < kQueues; ++i)
        use(1 + static_cast<NodeId>(rng.below(2)), piece(own, 64 * user, 8), rng());
    }));
  }
  for (const auto& user : users) user->join();
  for (const NodeId node : {1U, 2U})
    EXPECT_EQ(use(node, piece(own, 256, 8), 9), fabric::Status::kSuccess) << node;
  EXPECT_EQ(service.queues_of(app.number()), 0U);
  runtime::node_barrier(env, "done");
}

// There is one reliable connection for the two nodes.
TEST_P(KrcoreRevive, QueuePairsFailBesideTheEndsOfTheirUsers) {
  // The NICs that verbs find may have no dynamic connections for the other node.
  const bool is_real = GetParam() == "verbs";
  Options few = of_few(options(), is_real ? 4 : 1);
  if (is_real) few.timeout_us = options().timeout_us;  // an emulated NIC is slow
  run(3, few, [](Service& service, const Kill&) { fail_beside_ends(service); });
}

// A connection that was made for a queue may have failed before the queue has it.
TEST(KrcoreReviveSim, QueuePairsFailWhereTheDeviceHasNoDynamicConnections) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimOptions options = without_dynamic(3);
    options.seed = seed;
    fabric::sim::SimCluster cluster(options);
    EXPECT_NO_THROW(cluster.run([](Env& env) {
      Service service(env, of_few({}, 4));
      fail_beside_ends(service);
    })) << "seed "
        << seed;
  }
}

}  // namespace
}  // namespace pyrdma::krcore
