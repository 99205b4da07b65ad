// Completion queues of the shared queue pairs that have overrun. Nobody can go on without them.
#include "runtime/overrun_test.h"

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using runtime::names_overrun;

TEST(KrcoreOverrunSim, EveryCallOfAUserSaysSo) {
  fabric::sim::SimCluster cluster(runtime::overrunning(2));
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(4096);
    const Queue queue = app.create_queue();
    const fabric::Sge sge = piece(own, 0, 8);
    if (env.node() == 1) {
      const Queue inbox = app.create_queue();
      app.bind(inbox, 7);
      env.device().rendezvous().publish_value(
          "region", fabric::RemoteRegion{own.addr, own.bytes, own.key, 1});
      const fabric::ReceiveRequest receive{0, &sge, 1};
      ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1U);
      runtime::node_barrier(env, "bound");
      Message message;
      EXPECT_TRUE(names_overrun(
          [&] {
            app.wait_messages(inbox, {&message, 1}, env.now() + kSecond);
          },
          1, "the messages of KRCore"));
    } else {
      runtime::node_barrier(env, "bound");
      const auto there = env.device().rendezvous().await_value<fabric::RemoteRegion>(
          "region", runtime::kSetupTimeout);
      app.connect(queue, 1, 7);
      const fabric::WorkRequest write =
          one_sided(fabric::Opcode::kWrite, sge, there.addr, there.rkey);
      EXPECT_EQ(do_one(app, queue, write).status, fabric::Status::kSuccess);
      cluster.begin_faults();
      const char* const owner = "the shared queue pairs of KRCore";
      const fabric::WorkRequest send = one_sided(fabric::Opcode::kSend, sge, 0, 0);
      EXPECT_TRUE(names_overrun([&] { do_one(app, queue, send); }, 0, owner));
      EXPECT_TRUE(names_overrun([&] { do_one(app, queue, write); }, 0, owner));
    }
    runtime::node_barrier(env, "end");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
