// Messages of a queue pair that leaves its physical one for another way (section 4.6).
#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr std::uint32_t kShort = 200;  // messages; the service takes 16 of a core in 100 us
constexpr std::uint32_t kBytes = 2048;

/// How the queue pair leaves a reliable connection that fails.
enum class Leaves : std::uint8_t {
  kIdle,         // its next message goes another way
  kInATransfer,  // the transfer asks its peer again; a long message is announced again before
};

Options two_cores() {
  Options options = one_core();
  options.cores = 2;
  options.rc_queue_pairs = 2;
  options.zero_copy_above = 1024;
  options.receive_buffers = 2 * kShort;
  options.ask_again = 400 * kMicrosecond;
  return options;
}

/// Takes all messages of a core that nobody else asks, whose first 8 bytes must count from 0.
void take_all(App& app, Queue inbox, const Registration& memory) {
  for (std::uint64_t i = 0; i <= kShort; ++i) {
    Message message;
    ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, app.env().now() + kSecond), 1u) << i;
    std::uint64_t number = 0;
    std::memcpy(&number, memory.data + message.wr_id * kBytes, sizeof number);
    ASSERT_EQ(number, i);
  }
}

/// Short messages go to core 1 of the peer, and have been acknowledged. The last one is long.
void send_all(Service& service, App& app, const Registration& own, const Registration& there,
              Leaves leaves) {
  Env& env = app.env();
  service.make_one_more(1, 1);
  VqpOptions deep;
  deep.send_entries = 2 * kShort;
  const Queue queue = app.create_queue(deep), other = app.create_queue();
  for (const Queue each : {queue, other}) app.connect(each, 1, 7);
  ASSERT_TRUE(service.uses_reliable(queue));
  const auto send = [&](std::uint64_t number, std::uint32_t bytes) {
    std::memcpy(own.data + number * kBytes, &number, sizeof number);
    const fabric::Sge sge = piece(own, number * kBytes, bytes);
    const fabric::WorkRequest request = one_sided(Opcode::kSend, sge, 0, 0, number);
    EXPECT_EQ(app.push(queue, {&request, 1}).accepted, 1u);
  };
  const auto wait = [&](std::size_t count) {
    for (; count > 0; --count) {
      fabric::Completion done;
      ASSERT_EQ(app.wait(queue, {&done, 1}, env.now() + kSecond), 1u);
      EXPECT_EQ(done.status, Status::kSuccess);
    }
  };
  for (std::uint64_t i = 0; i < kShort; ++i) send(i, 8);
  if (leaves == Leaves::kInATransfer) {
    send(kShort, kBytes);
    wait(kShort);
    env.sleep_until(env.now() + 100 * kMicrosecond);
  } else {
    wait(kShort);
  }
  service.break_physical(queue);
  if (leaves == Leaves::kInATransfer) service.start_transfer(queue, 1);
  // A READ that is posted again finds out.
  const fabric::Sge aside = piece(own, 8, 8);
  EXPECT_EQ(do_one(app, other, one_sided(Opcode::kRead, aside, there.addr, there.key)).status,
            Status::kSuccess);
  if (leaves == Leaves::kIdle) send(kShort, 8);
  wait(1);
  EXPECT_FALSE(service.uses_reliable(queue));
}

// The reliable connection leads to core 1 of the peer, and dynamic ones to core 0, whose messages
// the peer takes first.
void go_another_way(Leaves leaves) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Registration there;
  cluster.run([&](Env& env) {
    Service service(env, two_cores());
    App app(service);
    const Registration own = app.reg_mr((kShort + 1) * kBytes);
    if (env.node() == 1) {
      there = own;
      VqpOptions deep;
      deep.receive_entries = 2 * kShort;
      const Queue inbox = app.create_queue(deep);
      app.bind(inbox, 7);
      for (std::uint64_t i = 0; i <= kShort; ++i) {
        const fabric::Sge sge = piece(own, i * kBytes, kBytes);
        const fabric::ReceiveRequest receive{i, &sge, 1};
        ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
      }
      runtime::node_barrier(env, "bound");
      take_all(app, inbox, own);
    } else {
      runtime::node_barrier(env, "bound");
      env.spawn(
             "sender", [&] { send_all(service, app, own, there, leaves); }, 1)
          ->join();
    }
    runtime::node_barrier(env, "done");
  });
}

TEST(KrcoreTransferSim, MessagesByAnotherWayOvertakeNone) { go_another_way(Leaves::kIdle); }

TEST(KrcoreTransferSim, AnAnnouncementByAnotherWayOvertakesNone) {
  go_another_way(Leaves::kInATransfer);
}

// Long messages wait for transfers from one core to the other. Their answers come to the core that
// has posted them, where their owner looks: the service itself takes those of the last core later.
TEST(KrcoreTransferSim, AMessageThatHasWaitedIsAnsweredAtItsNewCore) {
  constexpr std::uint32_t kRounds = 8, kLarge = 1 << 18;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Registration there;
  Time took = 0;
  cluster.run([&](Env& env) {
    Service service(env, two_cores());
    App app(service);
    const Registration own = app.reg_mr(kLarge);
    const Queue inbox = app.create_queue();
    const fabric::Sge longer = piece(own, 0, kBytes), large = piece(own, 0, kLarge);
    if (env.node() == 1) {
      there = own;
      app.bind(inbox, 7);
    }
    runtime::node_barrier(env, "bound");
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      if (env.node() == 1) {
        const fabric::ReceiveRequest receive{round, &longer, 1};
        ASSERT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
        Message message;
        ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, env.now() + kSecond), 1u);
        continue;
      }
      const Queue queue = app.create_queue();  // its transfer waits for no answer of the peer
      app.connect(queue, 1, 7);
      const fabric::WorkRequest write = one_sided(Opcode::kWrite, large, there.addr, there.key);
      const fabric::WorkRequest send = one_sided(Opcode::kSend, longer, 0, 0);
      const Time begin = env.now();
      ASSERT_EQ(app.push(queue, {&write, 1}).accepted, 1u);
      service.start_transfer(queue, env.core() + 1);
      ASSERT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
      fabric::Completion done[2];
      ASSERT_EQ(app.wait(queue, done, env.now() + kSecond), 2u);
      took += env.now() - begin;
    }
    runtime::node_barrier(env, "done");
  });
  EXPECT_LT(took, kRounds * 80 * kMicrosecond);
}

}  // namespace
}  // namespace pyrdma::krcore
