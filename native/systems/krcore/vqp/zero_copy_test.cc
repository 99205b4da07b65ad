// Long messages by the zero-copy protocol (section 4.5) whose answers are lost.
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

// The receive is too short, and the refusal is lost with the queue pair that carries it. The
// sender announces its message again, before or after the receiver has taken the error.
TEST(KrcoreZeroCopySim, ALostRefusalComesAgain) {
  for (const bool is_popped : {false, true}) {
    fabric::sim::SimCluster cluster(runtime::sim_options(2));
    cluster.run([&](Env& env) {
      Options options;
      options.cores = options.dc_queue_pairs = 1;
      options.arena_bytes = 1 << 20;
      options.rc_policy = RcPolicy::kNever;
      // The receiver's queue pair gives up while the link is blocked, the sender's does not.
      options.timeout_us = env.node() == 1 ? 20 : 10'000;
      options.retry_count = 1;
      Service service(env, options);
      App app(service);
      const Registration own = app.reg_mr(65536);
      Message message;
      if (env.node() == 1) {
        const Queue inbox = app.create_queue();
        app.bind(inbox, 7);
        const fabric::Sge sge = piece(own, 0, 64);
        const fabric::ReceiveRequest receives[2] = {{1, &sge, 1}, {2, &sge, 1}};
        ASSERT_EQ(app.post_receive(inbox, receives).accepted, 2u);
        runtime::node_barrier(env, "bound");
        if (is_popped) {
          ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, env.now() + kSecond), 1u);
          EXPECT_EQ(message.status, Status::kLocalLength);
        }
        runtime::node_barrier(env, "sent");
        EXPECT_EQ(app.pop_messages(inbox, {&message, 1}), is_popped ? 0u : 1u)
            << "an announcement that comes again takes no second receive";
        EXPECT_GE(service.counters().refused_messages.load(), 2u) << "one was lost";
      } else {
        runtime::node_barrier(env, "bound");
        const Queue queue = app.create_queue();
        app.connect(queue, 1, 7);
        cluster.block(1, 0, kMillisecond);
        const fabric::Sge sge = piece(own, 0, 60000);
        fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0, 4);
        ASSERT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
        fabric::Completion done;
        ASSERT_EQ(app.wait(queue, {&done, 1}, env.now() + 100 * kMillisecond), 1u);
        EXPECT_EQ(done.status, Status::kRemoteInvalidRequest);
        runtime::node_barrier(env, "sent");
      }
      runtime::node_barrier(env, "done");
    });
  }
}

}  // namespace
}  // namespace pyrdma::krcore
