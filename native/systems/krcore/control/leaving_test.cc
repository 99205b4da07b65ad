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

/// A READ by a new queue pair, or a WRITE under which it breaks its physical one.
fabric::Status do_once(Service& service, App& app, const Registration& own,
                       const fabric::RemoteRegion& from, bool breaks) {
  const Queue queue = app.create_queue();
  app.connect(queue, from.node, 7);
  const fabric::Sge into = piece(own, 0, 8);
  // A READ would be posted again by the other end of a connection to the own node, and fail that.
  const fabric::WorkRequest request = one_sided(
      breaks ? fabric::Opcode::kWrite : fabric::Opcode::kRead, into, from.addr, from.rkey);
  EXPECT_EQ(app.push(queue, {&request, 1}).accepted, 1u);
  if (breaks) {
    EXPECT_TRUE(service.break_physical(queue, Service::Break::kUnderRequests));
  }
  fabric::Completion done;
  done.status = fabric::Status::kGeneral;
  app.wait(queue, {&done, 1}, app.env().now() + kSecond);
  app.destroy(queue);
  return done.status;
}

// Without dynamic connections a node reaches itself by a connection whose ends share a pool. When
// one of them has failed, the other leads to nobody, and goes, too.
TEST(KrcoreLeavingSim, BothEndsOfAConnectionToTheOwnNodeGo) {
  fabric::sim::SimCluster cluster(without_dynamic(1));
  cluster.run([](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(4096);
    const fabric::RemoteRegion there{own.addr, own.bytes, own.key, 0};
    for (int round = 0; round < 4; ++round) {
      EXPECT_EQ(do_once(service, app, own, there, false), fabric::Status::kSuccess) << round;
      const Queue idle = app.create_queue();
      if (round % 2 != 0) app.connect(idle, 0, 7);  // takes the first end
      do_once(service, app, own, there, true);
      app.destroy(idle);
      env.sleep_until(env.now() + 20 * kMillisecond);
      EXPECT_EQ(service.physical_queue_pairs(), 0u) << round;
    }
  });
}

// The farewell of the end that has failed is lost in a partition. The other end learns of it
// afterwards, before somebody uses it.
TEST(KrcoreLeavingSim, AFarewellIsRepeatedUntilThePeerAnswers) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  fabric::RemoteRegion regions[2];
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.rc_queue_pairs = 4;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    const auto reliable = [&] { return service.pool(0).reliable.size(); };
    runtime::node_barrier(env, "up");
    if (env.node() == 0) service.make_one_more(0, 1);
    runtime::node_barrier(env, "made");
    EXPECT_EQ(reliable(), 1u);
    if (env.node() == 0) {
      EXPECT_EQ(do_once(service, app, own, regions[1], false), fabric::Status::kSuccess);
      cluster.block(0, 1, 100 * kMillisecond);
      do_once(service, app, own, regions[1], true);
      env.sleep_until(env.now() + 10 * kMillisecond);
      EXPECT_EQ(reliable(), 0u);
    } else {
      env.sleep_until(env.now() + 90 * kMillisecond);
      EXPECT_EQ(reliable(), 1u) << "it does not know yet";
      env.sleep_until(env.now() + 100 * kMillisecond);
      EXPECT_EQ(reliable(), 0u);
      EXPECT_EQ(do_once(service, app, own, regions[0], false), fabric::Status::kSuccess);
    }
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
