// Connects on devices without dynamic connections, which wait for a reliable one.
#include <functional>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

Options small() {
  Options options;
  options.arena_bytes = 1 << 20;
  return options;
}

/// Connects, and returns the error's code and how long it took.
std::pair<ErrorCode, Time> refused(App& app, NodeId node) {
  const Time begin = app.env().now();
  try {
    app.connect(app.create_queue(), node, 7);
    ADD_FAILURE() << "connected to node " << node;
    return {};
  } catch (const Error& error) {
    return {error.code(), app.env().now() - begin};
  }
}

TEST(KrcoreConnectSim, ADeadPeerIsKnownWithinASecond) {
  fabric::sim::SimCluster cluster(without_dynamic(3));
  cluster.run([&](Env& env) {
    Service service(env, small());
    runtime::node_barrier(env, "up");
    if (env.node() == 2) env.sleep_until(env.now() + 10 * kSecond);
    if (env.node() != 1) return;
    cluster.kill(2);
    App app(service);
    const auto [code, took] = refused(app, 2);
    EXPECT_EQ(code, ErrorCode::kUnavailable);
    EXPECT_LT(took, kSecond);
  });
}

TEST(KrcoreConnectSim, AFullPoolSaysSoAtOnce) {
  fabric::sim::SimCluster cluster(without_dynamic(3));
  cluster.run([&](Env& env) {
    Options options = small();
    options.rc_queue_pairs = 1;
    Service service(env, options);
    if (env.node() == 0) {
      App app(service);
      app.connect(app.create_queue(), 1, 7);
      const auto [code, took] = refused(app, 2);
      EXPECT_EQ(code, ErrorCode::kExhausted);
      EXPECT_LT(took, 100 * kMillisecond);
    }
    runtime::node_barrier(env, "done");
  });
}

// Ten nodes are dead, and each attempt at one takes half a second. Others are made meanwhile.
TEST(KrcoreConnectSim, DeadPeersDelayNoOther) {
  constexpr NodeId kNodes = 12;
  for (const Bug bug : {Bug::kNone, Bug::kOffersInTurn}) {
    bool is_connected = false;
    Time took = 0;
    fabric::sim::SimCluster cluster(without_dynamic(kNodes));
    cluster.run([&](Env& env) {
      Options options = small();
      options.bugs = bug;
      Service service(env, options);
      runtime::node_barrier(env, "up");
      if (env.node() > 1) env.sleep_until(kForever);  // it is killed
      if (env.node() == 1) {
        App app(service);
        for (NodeId node = 2; node < kNodes; ++node) cluster.kill(node);
        std::vector<std::unique_ptr<Thread>> threads;
        for (NodeId node = 2; node < kNodes; ++node) {
          threads.push_back(env.spawn("connects", [&, node] {
            for (int i = 0; i < 2; ++i) {
              EXPECT_TRUE(refuses([&] { app.connect(app.create_queue(), node, 7); },
                                  ErrorCode::kUnavailable));
            }
          }));
        }
        env.sleep_until(env.now() + kMillisecond);
        const Time begin = env.now();
        try {
          app.connect(app.create_queue(), 0, 7);
          is_connected = true;
        } catch (const Error&) {
        }
        took = env.now() - begin;
        for (const auto& thread : threads) thread->join();
      }
      runtime::node_barrier(env, "done", 100 * kSecond, std::vector<NodeId>{0, 1});
    });
    EXPECT_EQ(is_connected, bug == Bug::kNone);
    EXPECT_EQ(took < 100 * kMillisecond, bug == Bug::kNone) << took;
  }
}

// Queues that wait for the same node wait for one connection.
TEST(KrcoreConnectSim, QueuesToOneNodeShareAnAttempt) {
  fabric::sim::SimCluster cluster(without_dynamic(3));
  cluster.run([&](Env& env) {
    Service service(env, small());
    runtime::node_barrier(env, "up");
    if (env.node() == 2) env.sleep_until(kForever);  // it is killed
    if (env.node() == 1) {
      cluster.kill(2);
      App app(service);
      const Time begin = env.now();
      std::vector<std::unique_ptr<Thread>> threads;
      for (int i = 0; i < 40; ++i)
        threads.push_back(env.spawn("connects", [&] { refused(app, 2); }));
      for (const auto& thread : threads) thread->join();
      EXPECT_LT(env.now() - begin, kSecond);
      app.connect(app.create_queue(), 0, 7);
      app.connect(app.create_queue(), 0, 7);
      EXPECT_EQ(service.counters().rc_made.load(), 1u);
    }
    runtime::node_barrier(env, "done", 100 * kSecond, std::vector<NodeId>{0, 1});
  });
}

// A receiver looks regions of its clients up, by the queue pairs that answer them. The first one
// finds the node dead, which ends the connection. The others know no other way, and say so.
TEST(KrcoreConnectSim, AnswersToADeadClientEnd) {
  constexpr NodeId kServes = 0, kAsks = 1;
  constexpr int kClients = 3;
  fabric::sim::SimCluster cluster(without_dynamic(2));
  fabric::RemoteRegion there;
  cluster.run([&](Env& env) {
    Service service(env, small());
    App app(service);
    const Registration own = app.reg_mr(4096);
    const fabric::Sge sge = piece(own, 0, 8);
    const Queue queue = app.create_queue();
    if (env.node() == kServes) app.bind(queue, 7);
    if (env.node() == kAsks) there = {own.addr, own.bytes, own.key, kAsks};
    runtime::node_barrier(env, "up");
    if (env.node() == kAsks) {
      for (int i = 0; i < kClients; ++i) {
        const Queue client = app.create_queue();
        app.connect(client, kServes, 7);
        EXPECT_EQ(do_one(app, client, one_sided(fabric::Opcode::kSend, sge, 0, 0)).status,
                  fabric::Status::kSuccess);
      }
      env.sleep_until(kForever);  // it is killed
    }
    std::vector<Queue> answers;
    for (int i = 0; i < kClients; ++i) {
      const fabric::ReceiveRequest receive{0, &sge, 1};
      app.post_receive(queue, {&receive, 1});
      Message message;
      EXPECT_EQ(app.wait_messages(queue, {&message, 1}, env.now() + kSecond), 1u);
      answers.push_back(message.reply);
    }
    cluster.kill(kAsks);
    for (const Queue answer : answers) {
      const Time begin = env.now();
      const fabric::WorkRequest read =
          one_sided(fabric::Opcode::kRead, sge, there.addr, there.rkey);
      EXPECT_NE(do_one(app, answer, read).status, fabric::Status::kSuccess);
      EXPECT_LT(env.now() - begin, kSecond);
      env.sleep_until(env.now() + 10 * kMillisecond);  // the connection has gone
    }
  });
}

// One thread has READs under way to a dead node by many queue pairs, and to one that lives. It asks
// for a connection to the dead one once.
TEST(KrcoreConnectSim, ADeadNodeIsAskedOnceForAllThatWait) {
  constexpr int kToDead = 65;
  constexpr NodeId kDead = 2, kLives = 1;
  fabric::sim::SimCluster cluster(without_dynamic(3));
  fabric::RemoteRegion regions[3];
  bool is_over = false;
  cluster.run([&](Env& env) {
    Options options = small();
    options.lease = 10 * kSecond;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    regions[env.node()] = {own.addr, own.bytes, own.key, env.node()};
    runtime::node_barrier(env, "up");
    if (env.node() != 0) {
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    const fabric::Sge sge = piece(own, 0, 8);
    std::vector<App::Post> posts;
    for (int i = 0; i <= kToDead; ++i) {
      const fabric::RemoteRegion& to = regions[i == kToDead ? kLives : kDead];
      const Queue queue = app.create_queue();
      app.connect(queue, to.node, 7);
      posts.push_back({queue, one_sided(fabric::Opcode::kRead, sge, to.addr, to.rkey)});
      EXPECT_EQ(do_one(app, queue, posts.back().request).status, fabric::Status::kSuccess);
    }
    cluster.kill(kDead);
    const Time begin = env.now();
    EXPECT_EQ(app.push(posts), posts.size());
    app.wait_each(posts);
    EXPECT_LT(env.now() - begin, kSecond);
    for (const App::Post& post : posts)
      EXPECT_EQ(service.state(post.queue) == VqpState::kConnected, &post == &posts.back());
    is_over = true;
  });
}

// A request waits for the next connection, which leads to the next life of its peer. Then its queue
// pair has failed, and waits no longer.
TEST(KrcoreConnectSim, AQueueOfAnEarlierLifeNeedsNoPlace) {
  fabric::sim::SimCluster cluster(without_dynamic(2));
  fabric::RemoteRegion there;
  bool has_second = false, is_over = false;
  cluster.run([&](Env& env) {
    Service service(env, small());
    App app(service);
    const Registration own = app.reg_mr(4096);
    if (env.node() == 1) {
      has_second = env.incarnation() == 1;
      there = {own.addr, own.bytes, own.key, 1};
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    env.sleep_until(env.now() + kMillisecond);
    const Queue queue = app.create_queue();
    app.connect(queue, 1, 7);
    const fabric::Sge sge = piece(own, 0, 8);
    const fabric::WorkRequest read = one_sided(fabric::Opcode::kRead, sge, there.addr, there.rkey);
    EXPECT_EQ(do_one(app, queue, read).status, fabric::Status::kSuccess);
    cluster.kill_later(1, kMicrosecond);
    cluster.restart_later(1, kMillisecond);
    while (!has_second) env.sleep_until(env.now() + kMicrosecond);
    EXPECT_EQ(app.push(queue, {&read, 1}).accepted, 1u);
    service.break_physical(queue);  // if the service has not left it
    const Time begin = env.now();
    fabric::Completion done;
    EXPECT_EQ(app.wait(queue, {&done, 1}, begin + 10 * kSecond), 1u);
    EXPECT_NE(done.status, fabric::Status::kSuccess);
    EXPECT_LT(env.now() - begin, kSecond);
    is_over = true;
  });
}

/// Runs a function on node 0 when node 1 has begun its second life, whose region `there` is.
/// `before`: in its first life.
void with_second_life(const std::function<void(Service&, App&, const Registration& own)>& before,
                      const std::function<void(Service&, App&, const Registration& own)>& then,
                      bool offers, fabric::RemoteRegion& there) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool has_second = false, is_over = false;
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.cores = 2;
    options.dc_queue_pairs = 1;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    if (env.node() == 1) {
      there = {own.addr, own.bytes, own.key, 1};
      if (env.incarnation() == 1) {
        if (offers) service.want_reliable(0, 0);
        env.sleep_until(env.now() + 50 * kMillisecond);
        has_second = true;
      }
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    env.sleep_until(env.now() + kMillisecond);
    before(service, app, own);
    cluster.kill_later(1, kMicrosecond);
    cluster.restart_later(1, kMillisecond);
    while (!has_second) env.sleep_until(env.now() + kMicrosecond);
    then(service, app, own);
    is_over = true;
  });
}

/// A READ of node 1's region.
fabric::Status read_there(App& app, Queue queue, const Registration& own,
                          const fabric::RemoteRegion& there) {
  const fabric::Sge sge = piece(own, 0, 8);
  return do_one(app, queue, one_sided(fabric::Opcode::kRead, sge, there.addr, there.rkey)).status;
}

// The node knows the metadata of its peer's first life, and the second one has made a connection to
// another core. A connect there does not lead to the first one.
TEST(KrcoreConnectSim, MetadataEndWithTheLifeOfTheirNode) {
  fabric::RemoteRegion there;
  const auto read = [&](Service&, App& app, const Registration& own) {
    app.env()
        .spawn(
            "client",
            [&] {
              const Queue queue = app.create_queue();
              app.connect(queue, 1, 7);
              EXPECT_EQ(read_there(app, queue, own, there), fabric::Status::kSuccess);
              app.destroy(queue);
            },
            1)
        ->join();
  };
  with_second_life(read, read, true, there);
}

// No dynamic queue pair is there when a queue connects. When it takes its first one, its peer has
// begun another life.
TEST(KrcoreConnectSim, AQueueWithoutAPlaceIsConnectedToItsLife) {
  fabric::RemoteRegion there;
  Queue queue;
  const auto before = [&](Service& service, App& app, const Registration& own) {
    const Queue first = app.create_queue();
    app.connect(first, 1, 7);
    EXPECT_EQ(read_there(app, first, own, there), fabric::Status::kSuccess);
    service.break_physical(first);
    const fabric::Sge sge = piece(own, 0, 8);
    EXPECT_EQ(
        do_one(app, first, one_sided(fabric::Opcode::kWrite, sge, there.addr, there.rkey)).status,
        fabric::Status::kFlushed);
    queue = app.create_queue();
    app.connect(queue, 1, 7);
    EXPECT_FALSE(service.break_physical(queue)) << "it has a queue pair";
  };
  const auto then = [&](Service& service, App& app, const Registration& own) {
    service.want_reliable(0, 1);
    app.env().sleep_until(app.env().now() + 50 * kMillisecond);
    EXPECT_NE(read_there(app, queue, own, there), fabric::Status::kSuccess);
  };
  with_second_life(before, then, false, there);
}

}  // namespace
}  // namespace pyrdma::krcore
