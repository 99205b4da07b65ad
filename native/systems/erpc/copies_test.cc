// Packets that are sent again although their answers come: what a client learns of round trips.
#include <deque>
#include <vector>

#include "fabric/sim/cluster.h"
#include "systems/erpc/bugs.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

struct Late {
  RequestHandle handle;
  Time due;
};

/// Runs `client` with a session to a server that answers requests of type 2 after `delay`.
void run_late(const Options& options, Time delay, Bugs bugs,
              const std::function<void(Endpoint&, SessionId)>& client) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    std::deque<Late> late;
    Endpoint endpoint(env, options, 0, bugs);
    serve_sized(endpoint);
    endpoint.register_handler(2, [&](RequestHandle& handle) {
      late.push_back({handle, env.now() + delay});
    });
    if (env.node() == 0) {
      const SessionId session = connect_to(endpoint, {1, 0});
      client(endpoint, session);
      is_over = true;
      return;
    }
    while (!is_over) {
      const auto is_due = [&] { return !late.empty() && late.front().due <= env.now(); };
      endpoint.run_until(is_due, env.now() + kMicrosecond);
      if (!is_due()) continue;
      answer_to(late.front().handle, 0);
      late.pop_front();
    }
  });
}

// Copies go out at once, or wait in the wheel.
TEST(ErpcCopies, AnAnswerAfterACopyGivesNoRoundTrip) {
  for (const bool is_paced : {false, true}) {
    for (const Bug bug : {Bug::kNone, Bug::kCopiesMeasured}) {
      constexpr Time kDelay = 50 * kMicrosecond;
      Options options;
      options.retransmission_timeout = 20 * kMicrosecond;
      options.rate_limiter_bypass = !is_paced;
      run_late(options, kDelay, bug, [&](Endpoint& endpoint, SessionId session) {
        std::vector<Time> trips;
        endpoint.probe_round_trips([&](Time trip) { trips.push_back(trip); });
        for (std::uint32_t i = 0; i < 10; ++i) {
          // All but the last packet are answered at once.
          TestCall call(endpoint, 3 * endpoint.payload(), 0);
          ASSERT_TRUE(call.send(session, 2).wait());
        }
        EXPECT_GE(endpoint.counters().retransmissions, 20U);
        EXPECT_EQ(trips.size(), bug == Bug::kNone ? 20U : 30U);
      });
    }
  }
}

// The timeout begins below the round trip.
TEST(ErpcCopies, AnAdaptiveTimeoutLearnsALongerRoundTrip) {
  for (const Bug bug : {Bug::kNone, Bug::kCopiesMeasured}) {
    Options options = Options::of(Preset::kBest);
    run_late(options, 500 * kMicrosecond, bug, [&](Endpoint& endpoint, SessionId session) {
      for (std::uint32_t i = 0; i < 20; ++i) {
        TestCall soon(endpoint, 100, 0);
        ASSERT_TRUE(soon.send(session).wait());
      }
      EXPECT_EQ(endpoint.counters().retransmissions, 0U);
      for (std::uint32_t i = 0; i < 40; ++i) {
        TestCall call(endpoint, 100, 0);
        ASSERT_TRUE(call.send(session, 2).wait());
      }
      if (bug == Bug::kNone)
        EXPECT_LE(endpoint.counters().retransmissions, 2U);
      else
        EXPECT_GE(endpoint.counters().retransmissions, 20U);
    });
  }
}

}  // namespace

}  // namespace pyrdma::erpc
