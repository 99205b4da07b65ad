// Servers and clients that die, networks that lose packets, sessions that cannot be made. All in
// virtual time.
#include <memory>

#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

using fabric::sim::SimCluster;
using fabric::sim::SimOptions;

class ErpcFailures : public testing::Test {
 protected:
  ErpcFailures() {
    sim_ = runtime::sim_options(2);
    options_.retransmission_timeout = 20 * kMicrosecond;
    options_.failure_timeout = 500 * kMicrosecond;
    options_.connect_timeout = 5 * kMillisecond;
    options_.connect_interval = 50 * kMicrosecond;
  }
  /// Runs `client` on node 0 while node 1 serves, in each of its incarnations.
  void run(const std::function<void(SimCluster&, Endpoint&)>& client, Bugs bugs = {}) {
    SimCluster cluster(sim_);
    bool is_over = false;
    cluster.run([&](Env& env) {
      Endpoint endpoint(env, options_, 0, bugs);
      serve_sized(endpoint);
      endpoint.register_handler(2, [](RequestHandle&) {});  // never answers
      endpoint.register_handler(3, [&](RequestHandle& handle) { late_.push_back(handle); });
      if (env.node() == 0) {
        client(cluster, endpoint);
        is_over = true;
        return;
      }
      server_ = &endpoint;
      while (!is_over) {
        endpoint.run_for(20 * kMicrosecond);
        if (!answers_) continue;
        for (RequestHandle& handle : late_) answer_to(handle, 100);
        late_.clear();
      }
    });
  }
  SimOptions sim_;
  Options options_;
  Endpoint* server_ = nullptr;
  std::vector<RequestHandle> late_;
  bool answers_ = false;
};

// The session went on connecting, and had its receives for ever.
TEST_F(ErpcFailures, ASessionThatFindsNoMemoryIsGone) {
  sim_.faults[Fault::memory_pressure].rate = 1;
  sim_.faults.at_once = false;
  run([&](SimCluster& cluster, Endpoint& endpoint) {
    endpoint.run_for(100 * kMicrosecond);
    cluster.begin_faults();
    EXPECT_THROW(endpoint.create_session({1, 0}), Error);
    cluster.heal();
    EXPECT_EQ(endpoint.client_sessions(), 0U);
    endpoint.run_for(kMillisecond);
    EXPECT_EQ(server_->server_sessions(), 0U);
    TestCall call(endpoint, 100, 100);
    ASSERT_TRUE(call.send(connect_to(endpoint, {1, 0})).wait());
    EXPECT_TRUE(call.is_right());
  });
}

TEST_F(ErpcFailures, ADeadServerEndsEveryRequestAndItsSuccessorServes) {
  sim_.faults[Fault::number_reuse].rate = 1;
  run([](SimCluster& cluster, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    std::vector<std::unique_ptr<TestCall>> calls;
    for (std::uint32_t i = 0; i < 12; ++i) {
      calls.push_back(std::make_unique<TestCall>(endpoint, 16, 16, i));
      calls.back()->send(session, 2);
    }
    endpoint.run_for(50 * kMicrosecond);
    cluster.kill(1);
    cluster.restart(1);
    for (const auto& call : calls) ASSERT_TRUE(call->wait(20 * kMillisecond));
    for (std::uint32_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i]->ended(), 1U);
      EXPECT_EQ(calls[i]->outcome(), i < 8 ? Outcome::kSessionLost : Outcome::kNotSent);
    }
    EXPECT_TRUE(endpoint.is_lost(session));
    TestCall refused(endpoint, 16, 16);
    ASSERT_TRUE(refused.send(session).wait());
    EXPECT_EQ(refused.outcome(), Outcome::kNotSent);
    endpoint.destroy_session(session);
    const SessionId again = connect_to(endpoint, {1, 0});
    TestCall call(endpoint, 100, 5000);
    ASSERT_TRUE(call.send(again).wait());
    EXPECT_TRUE(call.is_right());
  });
}

TEST_F(ErpcFailures, AServerThatClosesTellsItsClients) {
  run([this](SimCluster&, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    TestCall call(endpoint, 16, 16);
    call.send(session, 2);
    endpoint.run_for(20 * kMicrosecond);
    server_->close();
    ASSERT_TRUE(call.wait(100 * kMicrosecond)) << "before the server would count as dead";
    EXPECT_EQ(call.outcome(), Outcome::kSessionLost);
    EXPECT_EQ(endpoint.counters().resets, 1U);
  });
}

TEST_F(ErpcFailures, AServerForgetsADeadClient) {
  SimCluster cluster(sim_);
  cluster.run([&](Env& env) {
    Endpoint endpoint(env, options_);
    serve_sized(endpoint);
    endpoint.register_handler(3, [&](RequestHandle& handle) { late_.push_back(handle); });
    if (env.node() == 0) {
      const SessionId session = connect_to(endpoint, {1, 0});
      TestCall call(endpoint, 16, 16);
      call.send(session, 3);
      endpoint.run_for(kSecond);
      return;
    }
    endpoint.run_for(kMillisecond);
    EXPECT_EQ(endpoint.server_sessions(), 1U);
    ASSERT_EQ(late_.size(), 1U);
    cluster.kill(0);
    endpoint.run_for(3 * options_.failure_timeout);
    EXPECT_EQ(endpoint.server_sessions(), 0U);
    EXPECT_EQ(endpoint.kept_sessions(), 1U) << "its handler runs";
    answer_to(late_[0], 10);
    EXPECT_EQ(endpoint.counters().late_answers, 1U);
    endpoint.run_for(options_.failure_timeout);
    EXPECT_EQ(endpoint.kept_sessions(), 0U);
  });
}

TEST_F(ErpcFailures, TheScanForLossesSendsAgainAndEnds) {
  run([](SimCluster& cluster, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    cluster.block(1, 0, 200 * kMicrosecond);
    TestCall call(endpoint, 10'000, 20'000);
    ASSERT_TRUE(call.send(session).wait());
    EXPECT_TRUE(call.is_right());
    const std::uint64_t repeated = endpoint.counters().retransmissions;
    EXPECT_GE(repeated, 5U);
    EXPECT_LE(repeated, 12U);
    EXPECT_EQ(endpoint.credits_of(session), endpoint.options().credits);
    const std::uint64_t sent = endpoint.packets().sent;
    endpoint.run_for(100 * kMicrosecond);
    EXPECT_EQ(endpoint.counters().retransmissions, repeated);
    EXPECT_LE(endpoint.packets().sent - sent, 2U) << "a ping at most";
  });
}

// The NIC must have read both copies before the buffers change hands (section 4.2.2).
TEST_F(ErpcFailures, BothSidesDrainAfterARetransmission) {
  for (const Bug bug : {Bug::kNone, Bug::kNoDrainAtClient, Bug::kNoDrainAtServer}) {
    run(
        [&](SimCluster& cluster, Endpoint& endpoint) {
          const SessionId session = connect_to(endpoint, {1, 0});
          TestCall first(endpoint, 100, 100);
          ASSERT_TRUE(first.send(session).wait());
          const std::uint64_t here = endpoint.packets().drains, there = server_->packets().drains;
          cluster.block(1, 0, 30 * kMicrosecond);
          TestCall call(endpoint, 100, 100);
          ASSERT_TRUE(call.send(session).wait());
          EXPECT_TRUE(call.is_right());
          EXPECT_GE(endpoint.counters().retransmissions, 1U);
          EXPECT_EQ(endpoint.packets().drains != here, bug != Bug::kNoDrainAtClient);
          EXPECT_EQ(server_->packets().drains != there, bug != Bug::kNoDrainAtServer);
        },
        bug);
  }
}

// The copy leaves the wheel some turns after the scan for losses has put it there.
TEST_F(ErpcFailures, TheTurnThatSendsACopyFromTheWheelDrains) {
  options_.rate_limiter_bypass = false;
  options_.failure_timeout = 5 * kMillisecond;  // no ping meanwhile
  run([](SimCluster& cluster, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    cluster.block(1, 0, 70 * kMicrosecond);
    TestCall call(endpoint, 100, 100);
    call.send(session);
    std::uint32_t copies = 0;
    while (call.ended() == 0) {
      const std::uint64_t sent = endpoint.packets().sent, drains = endpoint.packets().drains;
      endpoint.run_once();
      if (endpoint.counters().retransmissions == 0 || endpoint.packets().sent == sent) continue;
      EXPECT_EQ(endpoint.packets().drains, drains + 1);
      ++copies;
    }
    EXPECT_EQ(copies, endpoint.counters().retransmissions);
    EXPECT_GE(copies, 2U);
    EXPECT_TRUE(call.is_right());
  });
}

// A session that ends with requests under way drains too: at the client, and at the server.
TEST_F(ErpcFailures, BothSidesDrainWhenASessionEnds) {
  run([this](SimCluster& cluster, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    TestCall call(endpoint, 5000, 100), late(endpoint, 16, 16);
    late.send(session, 3);
    endpoint.run_for(10 * kMicrosecond);
    const std::uint64_t here = endpoint.packets().drains, there = server_->packets().drains;
    cluster.block(0, 1, 3 * kMillisecond);
    cluster.block(1, 0, 3 * kMillisecond);
    call.send(session);
    ASSERT_TRUE(call.wait(10 * kMillisecond));
    EXPECT_EQ(call.outcome(), Outcome::kSessionLost);
    endpoint.run_for(kMillisecond);
    EXPECT_GT(endpoint.packets().drains, here);
    EXPECT_GT(server_->packets().drains, there);
    EXPECT_EQ(server_->server_sessions(), 0U);
  });
}

TEST_F(ErpcFailures, AResponseLongerThanItsBufferEndsTheRequestAlone) {
  run([](SimCluster&, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    for (const std::uint32_t bytes : {33U, 5000U, 50'000U}) {
      TestCall call(endpoint, 16, 32);
      std::memcpy(call.request().data(), &bytes, sizeof bytes);
      ASSERT_TRUE(call.send(session).wait());
      EXPECT_EQ(call.outcome(), Outcome::kResponseSize);
      EXPECT_TRUE(may_have_run(call.outcome()));
      EXPECT_EQ(call.response().size(), 32U) << "the buffer is as it was";
    }
    TestCall call(endpoint, 16, 32);
    ASSERT_TRUE(call.send(session).wait());
    EXPECT_TRUE(call.is_right());
    EXPECT_EQ(endpoint.credits_of(session), endpoint.options().credits);
  });
}

TEST_F(ErpcFailures, AnEndpointThatNeverComesIsNamed) {
  run([](SimCluster&, Endpoint& endpoint) {
    const SessionId session = endpoint.create_session({1, 7});
    TestCall call(endpoint, 16, 16);
    call.send(session);
    EXPECT_TRUE(refuses(
        [&] {
          endpoint.connect({&session, 1});
        },
        ErrorCode::kTimeout, {"node 0", "endpoint 7 of node 1", "no such endpoint"}));
    ASSERT_TRUE(call.wait());
    EXPECT_EQ(call.outcome(), Outcome::kNotSent);
  });
}

TEST_F(ErpcFailures, ServersRefuseOtherOptionsAndSessionsWithoutReceives) {
  SimCluster cluster(sim_);
  bool is_over = false;
  cluster.run([&](Env& env) {
    Options options = options_;
    options.receive_entries = 2 * options.credits;
    options.failure_timeout = kSecond;  // `other` runs no loop
    if (env.node() == 0) options.slots = 4;
    Endpoint endpoint(env, options);
    if (env.node() == 1) {
      while (!is_over) endpoint.run_for(20 * kMicrosecond);
      return;
    }
    SessionId session = endpoint.create_session({1, 0});
    EXPECT_TRUE(refuses(
        [&] {
          endpoint.connect({&session, 1});
        },
        ErrorCode::kTimeout, {"other options", "slots"}));
    Options many = options;
    many.receive_entries = 1U << 20U;
    EXPECT_TRUE(refuses([&] { Endpoint(env, many, 1); }, ErrorCode::kInvalidArgument,
                        {"receive_entries = 1048576", "lower it to"}));
    Options same = options;
    same.slots = options_.slots;
    Endpoint other(env, same, 1), third(env, same, 2);
    const SessionId sessions[] = {other.create_session({1, 0}), other.create_session({1, 0})};
    other.connect(sessions);
    EXPECT_TRUE(refuses(
        [&] {
          other.create_session({1, 0});
        },
        ErrorCode::kExhausted, {"receive_entries"}));
    session = third.create_session({1, 0});
    EXPECT_TRUE(refuses(
        [&] {
          third.connect({&session, 1});
        },
        ErrorCode::kTimeout, {"no receives", "receive_entries"}));
    is_over = true;
  });
}

TEST_F(ErpcFailures, AQueuePairInTheErrorStateComesBack) {
  sim_.faults[Fault::qp_error].rate = 0.01;
  run([](SimCluster&, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {1, 0});
    for (std::uint32_t i = 0; i < 300; ++i) {
      TestCall call(endpoint, 4 + i * 10, i * 20, i);
      ASSERT_TRUE(call.send(session).wait()) << endpoint.describe_pending();
      EXPECT_TRUE(call.is_right());
    }
    EXPECT_GT(endpoint.packets().healed, 0U);
  });
}

// An endpoint is the client and the server of its sessions to itself.
TEST_F(ErpcFailures, ASessionToTheOwnEndpointLives) {
  run([this](SimCluster&, Endpoint& endpoint) {
    const SessionId session = connect_to(endpoint, {0, 0});
    endpoint.run_for(5 * options_.failure_timeout);
    TestCall call(endpoint, 100, 9000);
    ASSERT_TRUE(call.send(session).wait(kMillisecond));
    EXPECT_TRUE(call.is_right());
    endpoint.destroy_session(session);
    endpoint.run_for(100 * kMicrosecond);
    EXPECT_EQ(endpoint.server_sessions() + endpoint.client_sessions(), 0U);
  });
}

TEST_F(ErpcFailures, TwentyThousandSessionsOfANode) {
  constexpr std::uint32_t kSessions = 20'000;
  options_.credits = 1;
  options_.slots = 1;
  options_.preallocated_bytes = 32;
  options_.receive_entries = 1U << 15U;
  options_.failure_timeout = kSecond;
  options_.connect_timeout = kSecond;
  run([](SimCluster&, Endpoint& endpoint) {
    std::vector<SessionId> sessions;
    for (std::uint32_t i = 0; i < kSessions; ++i)
      sessions.push_back(endpoint.create_session({1, 0}));
    endpoint.connect(sessions);
    EXPECT_EQ(endpoint.packets().sent, sessions.size()) << "answers waited unread, not lost";
    for (std::uint32_t i = 0; i < kSessions; i += 97) {
      TestCall call(endpoint, 16, 16, i);
      ASSERT_TRUE(call.send(sessions[i]).wait());
      EXPECT_TRUE(call.is_right());
    }
    EXPECT_EQ(endpoint.client_sessions(), sessions.size());
    EXPECT_LT(endpoint.memory_per_session(), 2048U);
    RecordProperty("memory_per_session", std::to_string(endpoint.memory_per_session()));
  });
}

// A client that looks up many addresses is away from its loop for long.
TEST_F(ErpcFailures, AnswersThatWaitUnreadAreNotAskedForAgain) {
  constexpr std::uint32_t kServers = 100;
  options_.receive_entries = 64;
  options_.connect_interval = kMillisecond;
  options_.connect_timeout = options_.failure_timeout = kSecond;
  SimCluster cluster(sim_);
  bool over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      std::vector<std::unique_ptr<Endpoint>> servers;
      for (std::uint32_t i = 0; i < kServers; ++i)
        servers.push_back(std::make_unique<Endpoint>(env, options_, i));
      while (!over) {
        for (const auto& server : servers) server->run_once();
      }
      return;
    }
    options_.receive_entries = 4096;
    Endpoint endpoint(env, options_);
    env.sleep_until(env.now() + 10 * kMillisecond);
    std::vector<SessionId> sessions;
    for (std::uint32_t i = 0; i < kServers; ++i)
      sessions.push_back(endpoint.create_session({1, i}));
    env.sleep_until(env.now() + 3 * options_.connect_interval);
    endpoint.connect(sessions);
    EXPECT_EQ(endpoint.packets().sent, kServers);
    over = true;
  });
}

TEST_F(ErpcFailures, TwoEndpointsOfANodeServeBesideEachOther) {
  SimCluster cluster(sim_);
  std::uint32_t over = 0;
  cluster.run([&](Env& env) {
    const auto part = [&](std::uint32_t number) {
      Endpoint endpoint(env, options_, number);
      serve_sized(endpoint);
      std::vector<SessionId> sessions;
      for (std::uint32_t each = 0; each < 2; ++each)
        sessions.push_back(endpoint.create_session({1 - env.node(), each}));
      endpoint.connect(sessions);
      for (std::uint32_t i = 0; i < 20; ++i) {
        TestCall call(endpoint, 4 + 100 * i, 200 * i, i);
        ASSERT_TRUE(call.send(sessions[i % 2]).wait());
        EXPECT_TRUE(call.is_right());
      }
      ++over;
      while (over != 4) endpoint.run_for(20 * kMicrosecond);
    };
    const auto thread = env.spawn("second", [&] { part(1); });
    part(0);
    thread->join();
  });
}

}  // namespace

}  // namespace pyrdma::erpc
