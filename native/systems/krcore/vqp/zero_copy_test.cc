// Long messages by the zero-copy protocol (section 4.5) whose answers are lost.
#include <cstring>
#include <mutex>

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
      Options options = one_core();
      options.dc_queue_pairs = 1;
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

// Without dynamic connections. Node 1 dies with messages announced, and with what follows them.
// Node 2's messages arrive, and nothing stays for the dead node.
TEST(KrcoreZeroCopySim, ADeadSenderSilencesNoOther) {
  for (const Bug bug : {Bug::kNone, Bug::kNoWayKept}) {
    fabric::sim::SimCluster cluster(without_dynamic(3));
    int of_dead = 0, of_living = 0;
    std::size_t left = 0;
    bool is_bound = false, is_announced = false, is_over = false;
    cluster.run([&](Env& env) {
      const auto await = [&](const bool& flag) {
        while (!flag) env.sleep_until(env.now() + 10 * kMicrosecond);
      };
      Options options = one_core(bug);
      options.zero_copy_above = 1024;
      options.lease = 10 * kSecond;  // the bug keeps a READ until its announcement ends
      Service service(env, options);
      App app(service);
      const Registration own = app.reg_mr(65536);
      const auto send = [&](Queue queue, std::uint32_t bytes) {
        const fabric::Sge sge = piece(own, 0, bytes);
        const fabric::WorkRequest request = one_sided(Opcode::kSend, sge, 0, 0);
        EXPECT_EQ(app.push(queue, {&request, 1}).accepted, 1u);
      };
      if (env.node() == 0) {
        const Queue inbox = app.create_queue();
        app.bind(inbox, 7);
        is_bound = true;
        await(is_announced);
        env.sleep_until(env.now() + kMillisecond);
        cluster.kill(1);
        for (std::uint64_t i = 0; i < 8; ++i) {
          const fabric::Sge sge = piece(own, 8192 * i, 8192);
          const fabric::ReceiveRequest receive{i, &sge, 1};
          app.post_receive(inbox, {&receive, 1});
        }
        for (const Time end = env.now() + kSecond; env.now() < end && of_living < 4;) {
          Message message;
          if (app.wait_messages(inbox, {&message, 1}, end) == 1)
            ++(message.from == 1 ? of_dead : of_living);
        }
        left = service.pool(0).deferred.size();
        is_over = true;
      } else {
        await(is_bound);
        const Queue queue = app.create_queue();
        app.connect(queue, 0, 7);
        if (env.node() == 1) {
          for (const std::uint32_t bytes : {4096U, 4096U, 64U, 4096U}) send(queue, bytes);
          is_announced = true;
          env.sleep_until(kForever);  // it is killed
        }
        await(is_announced);
        env.sleep_until(env.now() + 20 * kMillisecond);
        for (const std::uint32_t bytes : {64U, 4096U, 64U, 4096U}) send(queue, bytes);
        fabric::Completion done[4];
        EXPECT_EQ(app.wait(queue, done, env.now() + 500 * kMillisecond) == 4, bug == Bug::kNone);
        await(is_over);
      }
    });
    EXPECT_EQ(of_dead, 0) << "a message behind a lost one";
    EXPECT_EQ(of_living, bug == Bug::kNone ? 4 : 0);
    EXPECT_EQ(left == 0, bug == Bug::kNone) << left;
  }
}

// The answer to a long message is lost with the queue pairs of the receiver. Another node sends 300
// before the first one announces its message again.
TEST(KrcoreZeroCopySim, AMessageArrivesOnceWhateverOthersSend) {
  constexpr int kOthers = 300;
  for (const Bug bug : {Bug::kNone, Bug::kOneSenderKept}) {
    fabric::sim::SimCluster cluster(runtime::sim_options(3));
    int from[3] = {};
    cluster.run([&](Env& env) {
      Options options;
      options.cores = 1;
      options.dc_queue_pairs = 4;
      options.arena_bytes = 1 << 20;
      options.rc_policy = RcPolicy::kNever;
      options.zero_copy_above = 1024;
      options.bugs = bug;
      Service service(env, options);
      App app(service);
      const Registration own = app.reg_mr(1 << 19);
      VqpOptions many;
      many.send_entries = many.receive_entries = 512;
      const Queue queue = app.create_queue(many);
      if (env.node() == 0) {
        app.bind(queue, 7);
        const auto receive = [&](std::uint64_t slot) {
          const fabric::Sge sge = piece(own, slot * 4096, 4096);
          const fabric::ReceiveRequest request{slot, &sge, 1};
          app.post_receive(queue, {&request, 1});
        };
        receive(0);
        runtime::node_barrier(env, "bound");
        runtime::node_barrier(env, "announced");
        env.sleep_until(env.now() + 2 * kMillisecond);
        for (int i = 0; i < 4; ++i) {
          const Queue uses = app.create_queue();
          app.connect(uses, 1, 9);
          service.break_physical(uses);
        }
        Message message;
        EXPECT_EQ(app.pop_messages(queue, {&message, 1}), 1u);
        ++from[message.from];
        for (std::uint64_t slot = 0; slot < 64; ++slot) receive(slot);
        runtime::node_barrier(env, "lost");
        for (const Time end = env.now() + 200 * kMillisecond; env.now() < end;) {
          if (app.wait_messages(queue, {&message, 1}, env.now() + kMillisecond) != 1) continue;
          ++from[message.from];
          receive(message.wr_id);
        }
      } else {
        runtime::node_barrier(env, "bound");
        app.connect(queue, 0, 7);
        const fabric::Sge sge = piece(own, 0, 2048);
        const fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
        const auto push = [&] { EXPECT_EQ(app.push(queue, {&send, 1}).accepted, 1u); };
        if (env.node() == 1) push();
        runtime::node_barrier(env, "announced");
        runtime::node_barrier(env, "lost");
        for (int i = 0; env.node() == 2 && i < kOthers; ++i) push();
        fabric::Completion done;
        EXPECT_EQ(app.wait(queue, {&done, 1}, env.now() + 100 * kMillisecond), 1u);
        EXPECT_EQ(done.status, Status::kSuccess);
      }
      runtime::node_barrier(env, "done");
    });
    EXPECT_EQ(from[1] == 1, bug == Bug::kNone) << from[1];
    EXPECT_EQ(from[2], kOthers);
  }
}

/// Takes so many messages, whose first 8 bytes must count from 0.
void take_in_order(App& app, Queue inbox, const Registration& memory, std::uint32_t bytes,
                   std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Message message;
    ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, app.env().now() + kSecond), 1u) << i;
    EXPECT_EQ(message.status, Status::kSuccess);
    std::uint64_t number = 0;
    std::memcpy(&number, memory.data + message.wr_id * bytes, sizeof number);
    EXPECT_EQ(number, i);
  }
}

void receive_all(App& app, Queue inbox, const Registration& memory, std::uint32_t bytes,
                 std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const fabric::Sge sge = piece(memory, i * bytes, bytes);
    const fabric::ReceiveRequest receive{i, &sge, 1};
    EXPECT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
  }
}

// A WRITE, a message and a long message come back from a queue pair that has failed. The WRITE must
// be looked up again, and so they wait for their owner's next call. The long one is not announced
// before.
TEST(KrcoreZeroCopySim, AMessageThatWaitsIsNotAnnounced) {
  constexpr std::uint32_t kBytes = 2048;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Registration target;
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.zero_copy_above = 1024;
    options.ask_again = 10 * kMicrosecond;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(2 * kBytes);
    const Queue queue = app.create_queue();
    if (env.node() == 1) {
      target = app.reg_mr(64);
      app.bind(queue, 7);
      receive_all(app, queue, own, kBytes, 2);
    }
    runtime::node_barrier(env, "up");
    if (env.node() == 1) {
      take_in_order(app, queue, own, kBytes, 2);
    } else {
      app.connect(queue, 1, 7);
      const std::uint64_t second = 1;
      std::memcpy(own.data + kBytes, &second, sizeof second);
      const fabric::Sge word = piece(own, 0, 8), longer = piece(own, kBytes, kBytes);
      const fabric::WorkRequest write = one_sided(Opcode::kWrite, word, target.addr, target.key);
      EXPECT_EQ(do_one(app, queue, write).status, Status::kSuccess);
      const fabric::WorkRequest list[] = {write, one_sided(Opcode::kSend, word, 0, 0),
                                          one_sided(Opcode::kSend, longer, 0, 0)};
      EXPECT_TRUE(service.break_physical(queue, Service::Break::kRefused));
      EXPECT_EQ(app.push(queue, list).accepted, 3u);
      service.forget_regions();
      env.sleep_until(env.now() + 10 * kMillisecond);
      EXPECT_GE(service.counters().reposted.load(), 3u);
      fabric::Completion done[3];
      EXPECT_EQ(app.wait(queue, done, env.now() + kSecond), 3u);
      for (const fabric::Completion& each : done) EXPECT_EQ(each.status, Status::kSuccess);
    }
    runtime::node_barrier(env, "done");
  });
}

// A long message waits for a receive, and a short one behind it has left its node. The first one's
// buffer ends, so both are lost, and both senders' completions say so.
TEST(KrcoreZeroCopySim, AMessageBehindALostOneFails) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.zero_copy_above = 1024;
    options.lease = 2 * kMillisecond;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(8192), payload = app.reg_mr(4096);
    const Queue queue = app.create_queue();
    if (env.node() == 1) app.bind(queue, 7);
    runtime::node_barrier(env, "up");
    if (env.node() == 0) {
      app.connect(queue, 1, 7);
      const fabric::Sge longer = piece(payload, 0, 4096), word = piece(own, 0, 8);
      const fabric::WorkRequest list[] = {one_sided(Opcode::kSend, longer, 0, 0),
                                          one_sided(Opcode::kSend, word, 0, 0)};
      EXPECT_EQ(app.push(queue, list).accepted, 2u);
      env.sleep_until(env.now() + kMillisecond);
      app.dereg_mr(payload);
      fabric::Completion done[2];
      EXPECT_EQ(app.wait(queue, done, env.now() + kSecond), 2u);
      EXPECT_EQ(done[0].status, Status::kLocalProtection);
      EXPECT_EQ(done[1].status, Status::kFlushed);
    }
    runtime::node_barrier(env, "failed");
    if (env.node() == 1) {
      env.sleep_until(env.now() + 2 * service.regions().grace());
      receive_all(app, queue, own, 4096, 2);
      Message message;
      EXPECT_EQ(app.wait_messages(queue, {&message, 1}, env.now() + 100 * kMillisecond), 0u);
    }
    runtime::node_barrier(env, "done");
  });
}

/// Sends long messages that wait for receives until their announcements have ended many times. All
/// arrive.
void send_before_receives(const Options& receivers, const Options& senders, std::uint32_t count,
                          bool is_core_busy) {
  constexpr std::uint32_t kBytes = 2048;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Service service(env, env.node() == 1 ? receivers : senders);
    App app(service);
    const Registration own = app.reg_mr(std::uint64_t{count} * kBytes);
    VqpOptions deep;
    deep.send_entries = deep.receive_entries = count;
    const Queue queue = app.create_queue(deep);
    if (env.node() == 1) {
      app.bind(queue, 7);
      bool is_over = false;
      // It polls the other core without a pause.
      const auto poller = env.spawn("poller", [&] {
        while (is_core_busy && !is_over) {
          {
            const std::lock_guard<Mutex> lock(service.pool(1).receive_mutex);
            env.sleep_until(env.now() + 200 * kMicrosecond);
          }
          env.sleep_until(env.now() + kMicrosecond);
        }
      });
      runtime::node_barrier(env, "bound");
      env.sleep_until(env.now() + 2 * service.regions().grace());
      receive_all(app, queue, own, kBytes, count);
      take_in_order(app, queue, own, kBytes, count);
      is_over = true;
      poller->join();
    } else {
      runtime::node_barrier(env, "bound");
      app.connect(queue, 1, 7);
      for (std::uint64_t i = 0; i < count; ++i) {
        std::memcpy(own.data + i * kBytes, &i, sizeof i);
        const fabric::Sge sge = piece(own, i * kBytes, kBytes);
        const fabric::WorkRequest send = one_sided(Opcode::kSend, sge, 0, 0);
        EXPECT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        fabric::Completion done;
        ASSERT_EQ(app.wait(queue, {&done, 1}, env.now() + kSecond), 1u);
        EXPECT_EQ(done.status, Status::kSuccess) << i;
      }
    }
    runtime::node_barrier(env, "done");
  });
}

Options short_announcements() {
  Options options = one_core();
  options.zero_copy_above = 1024;
  options.lease = kMillisecond;
  return options;
}

// An announcement that comes again waits for what lies with the other core, which a thread polls.
TEST(KrcoreZeroCopySim, ABusyCoreHidesNoAnnouncement) {
  Options receivers = short_announcements();
  receivers.cores = 2;
  send_before_receives(receivers, short_announcements(), 1, true);
}

// So many messages wait that their queue pair has room for a few at a time, and has announced the
// first again before it comes to the last.
TEST(KrcoreZeroCopySim, AFullQueuePairAnnouncesAllInTurn) {
  Options senders = short_announcements();
  senders.dc_queue_pairs = 1;
  senders.send_entries = 4;
  send_before_receives(short_announcements(), senders, 250, false);
}

}  // namespace
}  // namespace pyrdma::krcore
