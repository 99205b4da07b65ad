// What stays of an endpoint that has ended, or of a session that one side has given up.
#include <algorithm>
#include <memory>
#include <string>

#include "systems/erpc/bugs.h"
#include "systems/erpc/raw_peer_test.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

using fabric::sim::Crash;
using fabric::sim::SimCluster;
using fabric::sim::SimOptions;

/// The server has room for three sessions, and thinks long of a silent client that it may live.
Options successor_options() {
  Options options;
  options.credits = 8;
  options.receive_entries = 3 * options.credits;
  options.packet_bytes = 1024;
  options.failure_timeout = kSecond;
  options.connect_timeout = 5 * kMillisecond;
  options.connect_interval = 50 * kMicrosecond;
  return options;
}

/// Returns how many of 12 lives of a client, each of which is killed, got an answer.
std::uint32_t lives_served(Crash crash, Bugs bugs) {
  constexpr std::uint32_t kLives = 12;
  SimCluster cluster(runtime::sim_options(2));
  cluster.expect_restart(1);
  std::uint32_t life = 0, served = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    Options options = successor_options();
    if (env.node() == 0) {
      Endpoint endpoint(env, options, 0, bugs);
      serve_sized(endpoint);
      std::uint32_t seen = 0;
      while (!is_over) {
        endpoint.run_for(20 * kMicrosecond);
        if (life == seen) continue;
        seen = life;
        cluster.kill(1, crash);
        cluster.restart(1);
      }
      EXPECT_LE(endpoint.server_sessions(), bugs.none() ? 2U : 3U);
      return;
    }
    // Other sessions to the same server, of the same endpoint, end with it.
    options.receive_entries = 64 * options.credits;
    Endpoint endpoint(env, options);
    const SessionId sessions[] = {endpoint.create_session({0, 0}), endpoint.create_session({0, 0})};
    const auto are_over = [&] {
      return endpoint.is_connected(sessions[0]) && endpoint.is_connected(sessions[1]);
    };
    if (endpoint.run_until(are_over, env.now() + kMillisecond)) {
      TestCall call(endpoint, 8, 8);
      call.send(sessions[1]).wait(kMillisecond);
      served += call.is_right() ? 1 : 0;
    }
    if (++life == kLives) is_over = true;
    endpoint.run_until([&] { return is_over; }, kPatience);
  });
  return served;
}

TEST(ErpcSuccessors, ALifeOfAClientEndsTheSessionsOfTheLastOne) {
  for (const Crash crash : {Crash::kProcess, Crash::kHost}) {
    EXPECT_EQ(lives_served(crash, {}), 12U);
    EXPECT_EQ(lives_served(crash, Bug::kOlderSessionsKept), 1U);
  }
}

// Node 1 has an endpoint by hand, which has published its address, and then a true one of the same
// name.
TEST(ErpcSuccessors, ALateConnectEndsNothing) {
  for (const Bug bug : {Bug::kNone, Bug::kLateConnectTaken}) {
    SimCluster cluster(runtime::sim_options(2));
    bool is_over = false;
    cluster.run([&](Env& env) {
      const Options options = successor_options();
      if (env.node() == 0) {
        Endpoint endpoint(env, options, 0, bug);
        serve_sized(endpoint);
        endpoint.run_until([&] { return is_over; }, kPatience);
        EXPECT_EQ(endpoint.counters().bad_management, bug == Bug::kNone ? 3U : 0U);
        return;
      }
      RawPeer old(env);
      old.publish(options.name);
      old.aim_at(0);
      ManagementMessage message = connect_message(options, old.address());
      old.send(message);
      ASSERT_EQ(old.receive()->message().kind, ManagementKind::kConnected);
      Endpoint endpoint(env, options);
      const SessionId session = connect_to(endpoint, {0, 0});
      // It comes late, or lies: incarnation 1 has another address, and there is no 2.
      for (std::uint32_t incarnation = 0; incarnation < 3; ++incarnation) {
        message.client_incarnation = incarnation;
        message.first_request += options.slots;
        old.send(message);
        const auto answer = old.receive();
        EXPECT_EQ(answer.has_value(), bug != Bug::kNone);
      }
      TestCall call(endpoint, 8, 8);
      EXPECT_EQ(call.send(session).wait(kMillisecond), bug == Bug::kNone);
      EXPECT_EQ(call.is_right(), bug == Bug::kNone);
      is_over = true;
      endpoint.close();
    });
  }
}

// The new endpoint has the queue pair of the old one, so the addresses are equal.
TEST(ErpcSuccessors, ALateConnectFromTheSameAddressEndsNothing) {
  SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    const Options options = successor_options();
    if (env.node() == 0) {
      Endpoint endpoint(env, options);
      endpoint.run_until([&] { return is_over; }, kPatience);
      EXPECT_EQ(endpoint.server_sessions(), 1U);
      return;
    }
    RawPeer peer(env);
    peer.aim_at(0);
    peer.publish(options.name);
    const ManagementMessage old = connect_message(options, peer.address());
    peer.send(old);
    EXPECT_EQ(peer.receive()->message().client_token, old.client_token);
    peer.publish(options.name, 1);
    ManagementMessage young = old;
    ++young.client_token;
    young.client_incarnation = 1;
    peer.send(young);
    ManagementMessage session = peer.receive()->message();
    EXPECT_EQ(session.client_token, young.client_token);
    peer.send(old);
    EXPECT_FALSE(peer.receive().has_value());
    session.kind = ManagementKind::kPing;
    session.is_for_client = 0;
    session.sender = peer.address();
    peer.send(session);
    EXPECT_EQ(peer.receive()->message().kind, ManagementKind::kPong);
    is_over = true;
  });
}

// The server has room for two more of a client's sessions when another client ends one.
TEST(ErpcSuccessors, ARefusedSessionConnectsWhenThereIsRoom) {
  for (const Bug bug : {Bug::kNone, Bug::kRefusalIsFinal}) {
    SimCluster cluster(runtime::sim_options(2));
    bool is_over = false;
    cluster.run([&](Env& env) {
      const Options options = successor_options();
      if (env.node() == 0) {
        Endpoint endpoint(env, options);
        endpoint.run_until([&] { return is_over; }, kPatience);
        return;
      }
      Endpoint first(env, options, 0), second(env, options, 1, bug);
      const SessionId sessions[] = {first.create_session({0, 0}), first.create_session({0, 0}),
                                    first.create_session({0, 0})};
      first.connect(sessions);
      const SessionId refused = second.create_session({0, 0});
      second.run_for(kMillisecond);
      EXPECT_EQ(second.is_lost(refused), bug != Bug::kNone);
      EXPECT_NE(std::string(second.why_lost(refused)).find("receive_entries"), std::string::npos);
      first.destroy_session(sessions[1]);
      first.run_for(100 * kMicrosecond);
      second.run_for(kMillisecond);
      EXPECT_EQ(second.is_connected(refused), bug == Bug::kNone);
      is_over = true;
    });
  }
}

// A new endpoint and its clients look for the newest address of the name.
TEST(ErpcSuccessors, TheThousandthEndpointOfANameIsFoundSoon) {
  SimCluster cluster(runtime::sim_options(1));
  cluster.run([&](Env& env) {
    const Options options = successor_options();
    const auto life = [&] {
      const Time begin = env.now();
      Endpoint endpoint(env, options);
      return env.now() - begin;
    };
    const auto asking = [&](std::uint32_t number) {
      Endpoint endpoint(env, options), asker(env, options, number);
      const Time begin = env.now();
      const SessionId session = asker.create_session({0, 0});
      const Time end = env.now();
      while (!asker.is_connected(session)) {
        asker.run_for(10 * kMicrosecond);
        endpoint.run_for(10 * kMicrosecond);
      }
      return end - begin;
    };
    const Time first = life(), second = life(), first_asked = asking(1);
    const Time look = second - first;  // one address more
    ASSERT_GT(look, 0);
    for (std::uint32_t i = 4; i < 1000; ++i) life();
    EXPECT_LT(life() - first, 20 * look);
    EXPECT_LT(asking(2) - first_asked, 20 * look);
  });
}

// The server's answer to the connect finds no session.
TEST(ErpcSuccessors, ASessionThatItsClientGaveUpLeavesNothing) {
  SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    const Options options = successor_options();
    Endpoint endpoint(env, options);
    if (env.node() == 0) {
      std::uint32_t most = 0;
      const auto look = [&] {
        most = std::max(most, endpoint.server_sessions());
        return is_over;
      };
      endpoint.run_until(look, kPatience);
      EXPECT_EQ(most, 1U);
      EXPECT_EQ(endpoint.server_sessions(), 0U) << "long before a silent client counts as dead";
      return;
    }
    endpoint.run_for(100 * kMicrosecond);  // the server's address is published
    endpoint.destroy_session(endpoint.create_session({0, 0}));
    endpoint.run_for(100 * kMicrosecond);
    is_over = true;
  });
}

// The queue pair of the dead endpoint belongs to one of another name, which answers the first ping.
TEST(ErpcSuccessors, AnEndpointAtTheSameAddressDeniesTheSessionsOfTheLastOne) {
  SimOptions sim = runtime::sim_options(2);
  sim.faults[Fault::number_reuse].rate = 1;
  SimCluster cluster(sim);
  cluster.expect_restart(1);
  std::uint32_t old_number = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    Options options = successor_options();
    options.failure_timeout = 10 * kMillisecond;
    if (env.node() == 0) {
      Endpoint endpoint(env, options);
      endpoint.run_until([&] { return endpoint.server_sessions() == 1; }, kPatience);
      endpoint.run_for(kMillisecond);
      const Time died = env.now();
      cluster.kill(1);
      cluster.restart(1);
      EXPECT_TRUE(endpoint.run_until([&] { return endpoint.server_sessions() == 0; }, kPatience));
      EXPECT_LT(env.now() - died, options.failure_timeout * 6 / 5) << "ten pings would take twice";
      is_over = true;
      return;
    }
    Endpoint endpoint(env, options, old_number == 0 ? 0 : 7);
    if (old_number == 0) {
      old_number = endpoint.address().qp_num;
      connect_to(endpoint, {0, 0});
    }
    EXPECT_EQ(endpoint.address().qp_num, old_number);
    endpoint.run_until([&] { return is_over; }, kPatience);
  });
}

}  // namespace

}  // namespace pyrdma::erpc
