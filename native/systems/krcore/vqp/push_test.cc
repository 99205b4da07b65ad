// Posts that meet a change of the queue pair (algorithm 2, section 4.6).
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

// A list finds no free rows, so its post polls. The completions end a transfer to another core
// before the list has rows. Its requests go out on the new core without another call.
TEST(KrcorePushSim, AListFollowsTheTransferThatItsPollEnds) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Options options;
    options.cores = 2;
    options.arena_bytes = 1 << 20;
    options.rc_policy = RcPolicy::kNever;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    const std::string key = "region";
    fabric::Rendezvous& rendezvous = env.device().rendezvous();
    if (env.node() == 1) {
      rendezvous.publish_value(key, fabric::RemoteRegion{own.addr, own.bytes, own.key, env.node()});
    } else {
      const auto there =
          rendezvous.await_value<fabric::RemoteRegion>(key, env.now() + runtime::kSetupTimeout);
      VqpOptions small;
      small.send_entries = 4;
      const Queue queue = app.create_queue(small);
      app.connect(queue, 1, 7);
      const fabric::Sge sge = piece(own, 0, 8);
      std::vector<fabric::WorkRequest> list(4,
                                            one_sided(Opcode::kRead, sge, there.addr, there.rkey));
      for (fabric::WorkRequest& each : list) each.flags = 0;
      ASSERT_EQ(app.push(queue, list).accepted, 4u);
      service.start_transfer(queue, (env.core() + 1) % 2);
      env.sleep_until(env.now() + 50 * kMicrosecond);
      fabric::WorkRequest last = one_sided(Opcode::kRead, sge, there.addr, there.rkey, 5);
      ASSERT_EQ(app.push(queue, {&last, 1}).accepted, 1u);
      EXPECT_EQ(service.counters().transfers.load(), 1u);
      fabric::Completion done;
      std::size_t taken = 0;
      for (const Time end = env.now() + kMillisecond; taken == 0 && env.now() < end;) {
        env.sleep_until(env.now() + 10 * kMicrosecond);
        service.poll_physical({&queue, 1});
        taken = service.take(queue, {&done, 1});
      }
      ASSERT_EQ(taken, 1u);
      EXPECT_EQ(done.wr_id, 5u);
      EXPECT_EQ(done.status, Status::kSuccess);
    }
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
