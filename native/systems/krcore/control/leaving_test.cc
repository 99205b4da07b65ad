// Reliable connections that both ends leave (section 4.3).
#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

// The receiver has room for one connection and gives it to another node, while messages of the
// first one lie in the queue of its core. They have been acknowledged, so none is lost.
TEST(KrcoreLeavingSim, AConnectionThatEndsLosesNoMessages) {
  constexpr NodeId kSends = 0, kReceives = 1, kComes = 2;
  constexpr std::uint32_t kMessages = 400;  // the service takes 16 of them in 100 us
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  bool is_sent = false;
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.rc_policy = RcPolicy::kAtOnce;
    options.rc_queue_pairs = 1;
    options.receive_buffers = kMessages + 16;
    options.message_bytes = 64;
    options.zero_copy_above = 64;
    Service service(env, options);
    App app(service);
    const Registration memory = app.reg_mr(8 * kMessages);
    VqpOptions deep;
    deep.send_entries = deep.receive_entries = kMessages;
    const Queue queue = app.create_queue(deep);
    if (env.node() == kReceives) {
      app.bind(queue, 7);
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        const fabric::Sge sge = piece(memory, 8 * i, 8);
        const fabric::ReceiveRequest receive{i, &sge, 1};
        EXPECT_EQ(app.post_receive(queue, {&receive, 1}).accepted, 1u);
      }
    }
    runtime::node_barrier(env, "up");
    if (env.node() == kSends) {
      app.connect(queue, kReceives, 7);
      while (!service.uses_reliable(queue)) {
        fabric::Completion none;
        app.wait(queue, {&none, 1}, env.now() + 10 * kMicrosecond);
      }
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        std::memcpy(memory.data + 8 * i, &i, sizeof i);
        const fabric::Sge sge = piece(memory, 8 * i, 8);
        fabric::WorkRequest request = one_sided(fabric::Opcode::kSend, sge, 0, 0, i);
        EXPECT_EQ(app.push(queue, {&request, 1}).accepted, 1u);
      }
      for (std::uint32_t ended = 0; ended < kMessages; ++ended) {
        fabric::Completion done;
        EXPECT_EQ(app.wait(queue, {&done, 1}, env.now() + kSecond), 1u);
        EXPECT_EQ(done.status, fabric::Status::kSuccess);
      }
      is_sent = true;
    }
    while (!is_sent) env.sleep_until(env.now() + kMicrosecond);
    if (env.node() == kComes) app.connect(queue, kReceives, 7);
    if (env.node() == kReceives) {
      env.sleep_until(env.now() + 20 * kMillisecond);
      EXPECT_EQ(service.counters().rc_reclaimed.load(), 1u);
      std::uint64_t taken = 0;
      Message message;
      for (; app.wait_messages(queue, {&message, 1}, env.now() + kMillisecond) == 1; ++taken) {
        EXPECT_EQ(message.wr_id, taken);
        EXPECT_EQ(std::memcmp(memory.data + 8 * taken, &taken, sizeof taken), 0) << taken;
      }
      EXPECT_EQ(taken, kMessages);
    }
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
