// A thread that works for long does not run its event loop. To the peers of its endpoint it looks
// dead: a handler or a continuation of the dispatch thread must be shorter than failure_timeout.
#include <functional>
#include <string>

#include "fabric/sim/cluster.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

constexpr Time kFailure = 500 * kMicrosecond;
constexpr std::uint8_t kSlow = 2;

Options slow_options() {
  Options options;
  options.retransmission_timeout = 50 * kMicrosecond;
  options.failure_timeout = kFailure;
  options.connect_interval = 50 * kMicrosecond;
  options.workers = 1;
  return options;
}

bool answers(Endpoint& endpoint, SessionId session) {
  TestCall call(endpoint, 8, 8);
  return call.send(session).wait(10 * kMillisecond) && call.is_right();
}

/// Node 1 has endpoint 0, whose handler of type kSlow takes `work`, and endpoint 1. Endpoint 0 has
/// a session of its own to node 0, of which `own_session_lives` is told at the end. `client` runs
/// on node 0.
void run_slow(Time work, RunIn where, const std::function<void(Endpoint&)>& client,
              const std::function<void(bool lives, const Endpoint& server)>& judge) {
  fabric::sim::SimOptions sim = runtime::sim_options(2);
  sim.cores_per_node = 4;
  fabric::sim::SimCluster cluster(sim);
  bool is_over = false, is_ready = false;
  cluster.run([&](Env& env) {
    const auto second = [&] {
      Endpoint endpoint(env, slow_options(), 1);
      serve_sized(endpoint);
      endpoint.run_until([&] { return is_over; }, kPatience);
    };
    Endpoint endpoint(env, slow_options());
    serve_sized(endpoint);
    if (env.node() == 0) {
      endpoint.run_until([&] { return is_ready; }, kPatience);
      client(endpoint);
      is_over = true;
      endpoint.run_for(20 * kMillisecond);
      return;
    }
    endpoint.register_handler(
        kSlow,
        [&](RequestHandle& handle) {
          env.work(work);
          env.now();  // in virtual time the others go on until then
          answer_to(handle, 8);
        },
        where);
    const auto other = env.spawn("other", second);
    const SessionId own = connect_to(endpoint, {0, 0});
    is_ready = true;
    endpoint.run_until([&] { return is_over; }, kPatience);
    judge(answers(endpoint, own), endpoint);
    other->join();
  });
}

TEST(ErpcSlowWork, InTheDispatchThreadEndsTheSessionsOfItsEndpointAlone) {
  Time work = 0;
  const auto client = [&](Endpoint& endpoint) {
    const SessionId asked = connect_to(endpoint, {1, 0}), idle = connect_to(endpoint, {1, 0});
    const SessionId other = connect_to(endpoint, {1, 1});
    TestCall slow(endpoint, 8, 8);
    ASSERT_TRUE(slow.send(asked, kSlow).wait());
    EXPECT_EQ(slow.outcome(), Outcome::kSessionLost);
    EXPECT_TRUE(may_have_run(slow.outcome()));
    EXPECT_EQ(std::string(endpoint.why_lost(asked)), "the server is silent");
    // Sessions without requests are tested from half of the time on.
    EXPECT_EQ(endpoint.run_until([&] { return endpoint.is_lost(idle); },
                                 endpoint.env().now() + 2 * kFailure),
              work > 2 * kFailure);
    EXPECT_TRUE(answers(endpoint, other)) << "another thread of the node";
    endpoint.destroy_session(asked);
    endpoint.destroy_session(idle);
    // The server answers when it is back, and knows then that the others are gone.
    EXPECT_TRUE(answers(endpoint, connect_to(endpoint, {1, 0})));
  };
  // Peers test a client only after failure_timeout, and then for as long again.
  work = kFailure * 5 / 4;
  run_slow(work, RunIn::kDispatch, client, [](bool lives, const Endpoint& server) {
    EXPECT_TRUE(lives);
    EXPECT_EQ(server.server_sessions(), 1U);
  });
  work = 3 * kFailure;
  run_slow(work, RunIn::kDispatch, client, [](bool lives, const Endpoint& server) {
    EXPECT_FALSE(lives);
    EXPECT_EQ(server.server_sessions(), 1U);
  });
}

TEST(ErpcSlowWork, InAWorkerEndsNothing) {
  const auto client = [](Endpoint& endpoint) {
    const SessionId asked = connect_to(endpoint, {1, 0}), idle = connect_to(endpoint, {1, 0});
    TestCall slow(endpoint, 8, 8);
    ASSERT_TRUE(slow.send(asked, kSlow).wait());
    EXPECT_TRUE(slow.is_right());
    EXPECT_TRUE(answers(endpoint, idle));
  };
  run_slow(5 * kFailure, RunIn::kWorker, client,
           [](bool lives, const Endpoint&) { EXPECT_TRUE(lives); });
}

// A client that is away for long finds the answers that wait for it.
TEST(ErpcSlowWork, BetweenTwoTurnsOfAClientLosesNothingBeforeTheServerGivesItUp) {
  run_slow(
      0, RunIn::kDispatch,
      [](Endpoint& endpoint) {
        const SessionId session = connect_to(endpoint, {1, 0});
        TestCall call(endpoint, 8, 8);
        call.send(session);
        endpoint.flush();
        endpoint.env().work(3 * kFailure / 2);
        ASSERT_TRUE(call.wait());
        EXPECT_TRUE(call.is_right());
        endpoint.run_for(2 * kFailure);
        EXPECT_TRUE(endpoint.is_connected(session));
      },
      [](bool lives, const Endpoint&) { EXPECT_TRUE(lives); });
}

}  // namespace

}  // namespace pyrdma::erpc
