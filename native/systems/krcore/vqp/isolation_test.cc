// Queue pairs that share a physical one with requests to a dead node (section 4.4).
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

constexpr NodeId kClient = 0, kDead = 1, kHealthy = 2;

/// What a thread has seen of the queue pair that it uses alone.
struct Seen {
  Status last = Status::kSuccess;
  Time longest = 0;  // of a request
  int requests = 0;
};

// 40 queue pairs read a dead node. On the same two physical ones others read and write a healthy
// node: no request of theirs fails, and none waits longer than the attempts of one request take.
TEST(KrcoreIsolationSim, ADeadNodeFailsNoOthersRequests) {
  constexpr int kToDead = 40, kToHealthy = 8;
  constexpr Time kAttempts = 8 * kMillisecond, kLook = kMillisecond;
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  std::vector<Seen> seen(kToDead + kToHealthy);
  fabric::RemoteRegion regions[3];
  bool is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(4096);
    regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    runtime::node_barrier(env, "up");
    if (env.node() != kClient) {
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    std::vector<Queue> queues;
    const auto carry_out = [&](int number, Opcode opcode) {
      const fabric::RemoteRegion& to = regions[number < kToDead ? kDead : kHealthy];
      const fabric::Sge sge = piece(own, static_cast<std::uint64_t>(number) * 64, 8);
      return do_one(app, queues[static_cast<std::size_t>(number)],
                    one_sided(opcode, sge, to.addr, to.rkey))
          .status;
    };
    for (int number = 0; number < kToDead + kToHealthy; ++number) {
      queues.push_back(app.create_queue());
      app.connect(queues.back(), number < kToDead ? kDead : kHealthy, 7);
      EXPECT_EQ(carry_out(number, Opcode::kRead), Status::kSuccess);
    }
    cluster.kill(kDead);
    const Time end = env.now() + 50 * kMillisecond;
    std::vector<std::unique_ptr<Thread>> threads;
    for (int number = 0; number < kToDead + kToHealthy; ++number) {
      threads.push_back(env.spawn("user", [&, number] {
        Seen& own_view = seen[static_cast<std::size_t>(number)];
        const Opcode opcode = number < kToDead || number % 2 == 0 ? Opcode::kRead : Opcode::kWrite;
        while (own_view.last == Status::kSuccess && env.now() < end) {
          const Time begin = env.now();
          own_view.last = carry_out(number, opcode);
          own_view.longest = std::max(own_view.longest, env.now() - begin);
          ++own_view.requests;
          env.sleep_until(env.now() + 20 * kMicrosecond);
        }
      }));
    }
    for (const auto& thread : threads) thread->join();
    is_over = true;
  });
  for (int number = 0; number < kToDead + kToHealthy; ++number) {
    const Seen& each = seen[static_cast<std::size_t>(number)];
    EXPECT_EQ(each.last, number < kToDead ? Status::kRetryExceeded : Status::kSuccess) << number;
    EXPECT_LT(each.longest, kAttempts + kLook) << number;
    if (number >= kToDead) {
      EXPECT_GT(each.requests, 500) << number;
    }
  }
}

// Node 1 has announced a long message, and has begun another life, as node 0 knows. The payload is
// not read from the life that has ended, which would hold up others for all its attempts. A READ of
// that life by its connection fails, and one of the next life on the same queue pair does not.
TEST(KrcoreIsolationSim, TheLastLifeOfANodeHoldsUpNothing) {
  constexpr NodeId kRestarts = 1;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  fabric::RemoteRegion regions[2];
  bool is_bound = false, is_announced = false, is_over = false;
  cluster.run([&](Env& env) {
    const auto await = [&](const bool& flag) {
      while (!flag) env.sleep_until(env.now() + 10 * kMicrosecond);
    };
    Options options = one_core();
    options.dc_queue_pairs = 1;
    options.zero_copy_above = 1024;
    options.lease = kSecond;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(8192);
    const fabric::Sge word = piece(own, 0, 8), longer = piece(own, 4096, 4096);
    if (env.node() == kRestarts) {
      regions[env.incarnation()] = {own.addr, own.bytes, own.key, kRestarts};
      if (env.incarnation() == 0) {
        await(is_bound);
        const Queue queue = app.create_queue();
        app.connect(queue, kClient, 7);
        const fabric::WorkRequest send = one_sided(Opcode::kSend, longer, 0, 0);
        EXPECT_EQ(app.push(queue, {&send, 1}).accepted, 1u);
        is_announced = true;
      }
      await(is_over);
      return;
    }
    const Queue inbox = app.create_queue(), last = app.create_queue();
    app.bind(inbox, 7);
    is_bound = true;
    await(is_announced);
    const auto read = [&](std::uint32_t life) {
      return one_sided(Opcode::kRead, word, regions[life].addr, regions[life].rkey);
    };
    app.connect(last, kRestarts, 7);
    EXPECT_EQ(do_one(app, last, read(0)).status, Status::kSuccess);
    cluster.kill(kRestarts);
    cluster.restart(kRestarts);
    while (regions[1].length == 0) env.sleep_until(env.now() + kMillisecond);
    Queue next;
    for (bool is_known = false; !is_known;) {
      next = app.create_queue();
      app.connect(next, kRestarts, 7);
      is_known = do_one(app, next, read(1)).status == Status::kSuccess;
    }
    const fabric::ReceiveRequest receive{1, &longer, 1};
    EXPECT_EQ(app.post_receive(inbox, {&receive, 1}).accepted, 1u);
    const Time begin = env.now();
    EXPECT_EQ(do_one(app, next, read(1)).status, Status::kSuccess);
    EXPECT_LT(env.now() - begin, kMillisecond);
    const fabric::WorkRequest of_last = read(0), of_next = read(1);
    EXPECT_EQ(app.push(last, {&of_last, 1}).accepted, 1u);
    EXPECT_EQ(app.push(next, {&of_next, 1}).accepted, 1u);
    fabric::Completion done;
    EXPECT_EQ(app.wait(last, {&done, 1}, env.now() + kSecond), 1u);
    EXPECT_EQ(done.status, Status::kRetryExceeded);
    EXPECT_EQ(app.wait(next, {&done, 1}, env.now() + kSecond), 1u);
    EXPECT_EQ(done.status, Status::kSuccess);
    is_over = true;
  });
}

// A READ of the last life of node 1, by a queue pair that is destroyed meanwhile, gets no answer.
// A READ and a message to the next life share its physical queue pair, which turns to that life
// behind it alone. Both happen, in order.
TEST(KrcoreIsolationSim, TheLastLifeOfANodeFailsNothingOfTheNext) {
  constexpr NodeId kRestarts = 1;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  fabric::RemoteRegion regions[2];
  bool is_known = false, is_over = false;
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.dc_queue_pairs = 1;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    const fabric::Sge word = piece(own, 0, 8), other = piece(own, 64, 8);
    if (env.node() == kRestarts) {
      regions[env.incarnation()] = {own.addr, own.bytes, own.key, kRestarts};
      if (env.incarnation() == 0) env.sleep_until(kForever);  // it is killed
      const Queue inbox = app.create_queue();
      app.bind(inbox, 7);
      const fabric::ReceiveRequest receives[2] = {{1, &word, 1}, {2, &other, 1}};
      EXPECT_EQ(app.post_receive(inbox, receives).accepted, 2u);
      is_known = true;
      std::size_t messages = 0;
      while (!is_over) {
        Message message;
        messages += app.pop_messages(inbox, {&message, 1});
        env.sleep_until(env.now() + 10 * kMicrosecond);
      }
      EXPECT_EQ(messages, 1u);
      return;
    }
    const auto read = [&](std::uint32_t life) {
      return one_sided(Opcode::kRead, word, regions[life].addr, regions[life].rkey);
    };
    while (regions[0].length == 0) env.sleep_until(env.now() + 10 * kMicrosecond);
    const Queue last = app.create_queue();
    app.connect(last, kRestarts, 7);
    EXPECT_EQ(do_one(app, last, read(0)).status, Status::kSuccess);
    cluster.kill(kRestarts);
    cluster.restart(kRestarts);
    while (!is_known) env.sleep_until(env.now() + kMillisecond);
    Queue next;
    for (bool is_found = false; !is_found;) {
      next = app.create_queue();
      app.connect(next, kRestarts, 7);
      is_found = do_one(app, next, read(1)).status == Status::kSuccess;
    }
    const fabric::WorkRequest of_last = read(0);
    EXPECT_EQ(app.push(last, {&of_last, 1}).accepted, 1u);
    app.destroy(last);
    const fabric::WorkRequest of_next[2] = {read(1), one_sided(Opcode::kSend, other, 0, 0)};
    EXPECT_EQ(app.push(next, of_next).accepted, 2u);
    fabric::Completion done[2];
    EXPECT_EQ(app.wait(next, done, env.now() + kSecond), 2u);
    for (const fabric::Completion& each : done) EXPECT_EQ(each.status, Status::kSuccess);
    env.sleep_until(env.now() + kMillisecond);
    is_over = true;
  });
}

}  // namespace
}  // namespace pyrdma::krcore
