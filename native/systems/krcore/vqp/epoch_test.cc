// Numbers of connections, and of queue pairs, which go round (section 4.1).
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

// A long message has been read, and its sender begins another connection before it takes the
// answer. The first long message of that has the same ticket, and no receive: it has not ended.
TEST(KrcoreEpochSim, AnAnswerEndsNothingOfALaterConnection) {
  constexpr std::uint32_t kBytes = 2048;
  for (const std::uint16_t first : {std::uint16_t{1}, std::uint16_t{0xffff}}) {  // 0 would be any
    fabric::sim::SimCluster cluster(runtime::sim_options(2));
    cluster.run([&](Env& env) {
      Options options = one_core();
      options.zero_copy_above = 1024;
      options.first_epoch = first;
      Service service(env, options);
      App app(service);
      const Registration own = app.reg_mr(kBytes);
      const fabric::Sge sge = piece(own, 0, kBytes);
      const Queue queue = app.create_queue();
      if (env.node() == 1) {
        app.bind(queue, 7);
        const fabric::ReceiveRequest receive{1, &sge, 1};
        ASSERT_EQ(app.post_receive(queue, {&receive, 1}).accepted, 1u);
        runtime::node_barrier(env, "bound");
        runtime::node_barrier(env, "announced");
        Message message;
        EXPECT_EQ(app.wait_messages(queue, {&message, 1}, env.now() + kSecond), 1u);
      } else {
        const fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
        const auto begin = [&] {
          service.reset(queue);
          app.connect(queue, 1, 7);
          EXPECT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
        };
        runtime::node_barrier(env, "bound");
        begin();
        env.sleep_until(env.now() + 20 * kMicrosecond);  // it is announced
        runtime::node_barrier(env, "announced");
        begin();
        fabric::Completion done;
        EXPECT_EQ(app.wait(queue, {&done, 1}, env.now() + 2 * kMillisecond), 0u);
      }
      runtime::node_barrier(env, "done");
    });
  }
}

TEST(KrcoreEpochSim, GenerationsOfAPlaceSkipZero) {
  fabric::sim::SimCluster cluster(runtime::sim_options(1));
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.virtual_queue_pairs = 1;
    options.first_generation = 0xfffe;
    Service service(env, options);
    for (int i = 0; i < 4; ++i) {
      const VqpId made = service.create({});
      EXPECT_TRUE(made) << i;
      service.destroy(made);
    }
  });
}

}  // namespace
}  // namespace pyrdma::krcore
