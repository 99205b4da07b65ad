// RPCs in all worlds: sizes, many under way, handlers in workers, nested requests, misuse.
#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "runtime/exchange.h"
#include "systems/erpc/background_endpoint.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

INSTANTIATE_TEST_SUITE_P(Worlds, ErpcWorlds, erpc_worlds(),
                         [](const auto& each) { return each.param; });

TEST_P(ErpcWorlds, ResponsesFollowFromRequestsOfAllSizes) {
  run(2, [](Endpoint& endpoint) {
    serve_sized(endpoint);
    if (endpoint.env().node() != 0) return;
    const SessionId session = connect_to(endpoint, {1, 0});
    const std::uint32_t one = endpoint.payload();
    const std::uint32_t sizes[] = {0, 4, 32, one - 1, one, one + 1, 3 * one, 10 * one + 5, 100'000};
    for (const std::uint32_t request : sizes) {
      for (const std::uint32_t response : sizes) {
        TestCall call(endpoint, request, response);
        ASSERT_TRUE(call.send(session).wait()) << endpoint.describe_pending();
        EXPECT_TRUE(call.is_right()) << request << " and " << response << " bytes";
        EXPECT_EQ(endpoint.credits_of(session), endpoint.options().credits);
      }
    }
    EXPECT_EQ(endpoint.counters().lies, 0U);
  });
}

TEST_P(ErpcWorlds, ManyRequestsAreUnderWayAndTheRestWait) {
  run(3, [](Endpoint& endpoint) {
    serve_sized(endpoint);
    std::vector<SessionId> sessions;
    for (NodeId node = 0; node < 3; ++node) sessions.push_back(endpoint.create_session({node, 0}));
    std::vector<std::unique_ptr<TestCall>> calls;
    for (std::uint32_t i = 0; i < 200; ++i) {
      calls.push_back(std::make_unique<TestCall>(endpoint, 4 + i * 37 % 5000, i * 91 % 7000, i));
      calls.back()->send(sessions[i % 3]);
    }
    const auto are_over = [&] {
      for (const auto& call : calls) {
        if (call->ended() == 0) return false;
      }
      return true;
    };
    ASSERT_TRUE(endpoint.run_until(are_over, endpoint.env().now() + kPatience))
        << endpoint.describe_pending();
    for (const auto& call : calls) {
      EXPECT_TRUE(call->is_right());
      EXPECT_EQ(call->ended(), 1U);
    }
    for (const SessionId session : sessions)
      EXPECT_EQ(endpoint.credits_of(session), endpoint.options().credits);
    EXPECT_EQ(endpoint.active_requests(), 0U);
  });
}

TEST_P(ErpcWorlds, EachSwitchLeavesTheResultsAsTheyAre) {
  bool Options::*const switches[] = {
      &Options::batched_timestamps,     &Options::timely_bypass,
      &Options::rate_limiter_bypass,    &Options::zero_copy_receive,
      &Options::preallocated_responses, &Options::multi_packet_receives};
  for (bool Options::*const each : switches) {
    Options options;
    options.*each = false;
    run(
        2,
        [](Endpoint& endpoint) {
          serve_sized(endpoint);
          if (endpoint.env().node() != 0) return;
          const SessionId session = connect_to(endpoint, {1, 0});
          for (std::uint32_t i = 0; i < 20; ++i) {
            TestCall call(endpoint, 4 + i * 300, i * 400, i);
            ASSERT_TRUE(call.send(session).wait()) << endpoint.describe_pending();
            EXPECT_TRUE(call.is_right());
          }
        },
        options);
  }
}

TEST_P(ErpcWorlds, TheNumbersOfRequestsGoRound) {
  for (const std::uint32_t slots : {1U, 8U, 64U}) {
    Options options;
    options.slots = slots;
    options.first_request = PacketHeader::kMaxRequest - 5 * slots;
    run(
        2,
        [](Endpoint& endpoint) {
          serve_sized(endpoint);
          if (endpoint.env().node() != 0) return;
          const SessionId session = connect_to(endpoint, {1, 0});
          const std::uint32_t rounds = 10 * endpoint.options().slots;
          std::vector<std::unique_ptr<TestCall>> calls;
          for (std::uint32_t i = 0; i < rounds; ++i) {
            calls.push_back(std::make_unique<TestCall>(endpoint, i * 37 % 9000, i * 91 % 9000, i));
            calls.back()->send(session);
          }
          for (const auto& call : calls) {
            ASSERT_TRUE(call->wait()) << endpoint.describe_pending();
            EXPECT_TRUE(call->is_right());
          }
        },
        options);
  }
}

TEST_P(ErpcWorlds, WorkersRunHandlersBesideTheDispatchThread) {
  Options options;
  options.workers = 2;
  run(
      2,
      [](Endpoint& endpoint) {
        serve_sized(endpoint, RunIn::kWorker);
        if (endpoint.env().node() != 0) return;
        const SessionId session = connect_to(endpoint, {1, 0});
        std::vector<std::unique_ptr<TestCall>> calls;
        for (std::uint32_t i = 0; i < 40; ++i) {
          calls.push_back(std::make_unique<TestCall>(endpoint, 4 + i * 200, i * 300, i));
          calls.back()->send(session);
        }
        for (const auto& call : calls) {
          ASSERT_TRUE(call->wait()) << endpoint.describe_pending();
          EXPECT_TRUE(call->is_right());
        }
      },
      options);
}

// Node 0 asks node 1, whose handler asks node 2 and answers with its answer.
TEST_P(ErpcWorlds, HandlersSendRequestsOfTheirOwn) {
  struct Relay {
    Endpoint* endpoint;
    RequestHandle handle;
    MsgBuffer *request, *response;
    static void end(void* context, std::uint64_t, Outcome outcome) {
      const std::unique_ptr<Relay> relay(static_cast<Relay*>(context));
      EXPECT_EQ(outcome, Outcome::kOk);
      const auto bytes = relay->response->bytes();
      std::memcpy(relay->handle.response(relay->response->size()).data(), bytes.data(),
                  bytes.size());
      relay->handle.respond();
      relay->endpoint->free(relay->request);
      relay->endpoint->free(relay->response);
    }
  };
  run(3, [](Endpoint& endpoint) {
    const NodeId node = endpoint.env().node();
    SessionId onward = 0;
    if (node == 2) serve_sized(endpoint);
    if (node == 1) {
      onward = connect_to(endpoint, {2, 0});
      endpoint.register_handler(1, [&endpoint, onward](RequestHandle& handle) {
        const auto size = static_cast<std::uint32_t>(handle.request().size());
        auto* relay =
            new Relay{&endpoint, handle, endpoint.allocate(size), endpoint.allocate(4096)};
        std::memcpy(relay->request->data(), handle.request().data(), size);
        endpoint.enqueue_request(
            {onward, 1, relay->request, relay->response, &Relay::end, relay, 0});
      });
    }
    Meeting ready(endpoint.env(), "handlers");
    ready.wait(endpoint, kPatience);
    if (node != 0) return;
    const SessionId session = connect_to(endpoint, {1, 0});
    for (std::uint32_t i = 0; i < 10; ++i) {
      TestCall call(endpoint, 64, i * 100, i);
      ASSERT_TRUE(call.send(session).wait()) << endpoint.describe_pending();
      EXPECT_TRUE(call.is_right());
    }
  });
}

TEST_P(ErpcWorlds, MisuseIsRefusedWithARemedy) {
  run(2, [](Endpoint& endpoint) {
    endpoint.register_handler(2, [](RequestHandle& handle) {
      handle.respond();
      EXPECT_TRUE(refuses([&] { handle.respond(); }, ErrorCode::kInvalidArgument,
                          {"second time", "2", "once"}));
      EXPECT_TRUE(refuses([&] { handle.endpoint().run_once(); }, ErrorCode::kInvalidArgument,
                          {"event loop", "own"}));
    });
    EXPECT_TRUE(refuses([&] { endpoint.register_handler(2, [](RequestHandle&) {}); },
                        ErrorCode::kInvalidArgument, {"2", "another type"}));
    EXPECT_TRUE(refuses(
        [&] {
          endpoint.register_handler(
              3, [](RequestHandle&) {}, RunIn::kWorker);
        },
        ErrorCode::kInvalidArgument, {"3", "workers"}));
    if (endpoint.env().node() != 0) return;
    EXPECT_TRUE(refuses(
        [&] {
          endpoint.create_session({2, 0});
        },
        ErrorCode::kInvalidArgument, {"node 2", "2 nodes"}));
    const SessionId session = connect_to(endpoint, {1, 0});
    const std::uint32_t most = endpoint.options().max_message;
    EXPECT_TRUE(refuses([&] { endpoint.allocate(most + 1); }, ErrorCode::kInvalidArgument,
                        {std::to_string(most + 1), std::to_string(most), "max_message"}));
    TestCall call(endpoint, 16, 16);
    EXPECT_TRUE(refuses([&] { call.request().resize(1000); }, ErrorCode::kInvalidArgument,
                        {"1000", "larger buffer"}));
    EXPECT_TRUE(refuses([&] { call.send(session + 1); }, ErrorCode::kInvalidArgument,
                        {"does not exist", "create_session"}));
    ASSERT_TRUE(call.send(session, 2).wait());
    EXPECT_EQ(call.outcome(), Outcome::kOk);
    TestCall unknown(endpoint, 16, 16);
    ASSERT_TRUE(unknown.send(session, 200).wait());
    EXPECT_EQ(unknown.outcome(), Outcome::kNoHandler);
    TestCall long_answer(endpoint, 16, 4096);
    std::uint32_t bytes = 20'000;
    std::memcpy(long_answer.request().data(), &bytes, sizeof bytes);
    TestCall pending(endpoint, 16, 16);
    pending.send(session, 2);
    EXPECT_TRUE(refuses([&] { endpoint.destroy_session(session); }, ErrorCode::kInvalidArgument,
                        {"has requests", "event loop"}));
    ASSERT_TRUE(pending.wait());
    endpoint.destroy_session(session);
    EXPECT_TRUE(
        refuses([&] { call.send(session, 2); }, ErrorCode::kInvalidArgument, {"destroyed"}));
  });
}

// Timers, workers and the condition of a wait are looked at between turns.
TEST(ErpcTurnSim, EndsThoughPacketsComeWithoutEnd) {
  Options options;
  options.receive_batch = 1;
  run_endpoints("sim", 4, options, [&](Endpoint& endpoint) {
    std::uint32_t handled = 0;
    endpoint.register_handler(1, [&](RequestHandle& handle) {
      ++handled;
      answer_to(handle, 16);
    });
    if (endpoint.env().node() == 0) {
      endpoint.run_until([&] { return handled != 0; }, kPatience);
      EXPECT_LE(handled, 16U);
      while (handled != 900) endpoint.run_for(kMicrosecond);
      return;
    }
    const SessionId session = connect_to(endpoint, {0, 0});
    std::vector<std::unique_ptr<TestCall>> calls;
    for (std::uint32_t i = 0; i < 300; ++i)
      calls.push_back(std::make_unique<TestCall>(endpoint, 16, 16, i));
    for (const auto& call : calls) call->send(session);
    for (const auto& call : calls) ASSERT_TRUE(call->wait());
  });
}

// A credit that has come back says that its receive is posted again (section 4.3.1).
TEST(ErpcReceivesSim, ServeAllCreditsOfAllSessions) {
  for (const std::uint32_t strides : {1U, 4U, 512U}) {
    Options options;
    options.receive_strides = strides;
    options.receive_entries = 2 * options.credits;
    options.congestion_control = CongestionControl::kNone;
    run_endpoints("sim", 2, options, [&](Endpoint& endpoint) {
      serve_sized(endpoint);
      if (endpoint.env().node() != 0) return;
      std::vector<SessionId> sessions;
      std::vector<std::unique_ptr<TestCall>> calls;
      for (std::uint32_t i = 0; i < 2; ++i) sessions.push_back(connect_to(endpoint, {1, 0}));
      for (std::uint32_t i = 0; i < 8; ++i) {
        calls.push_back(std::make_unique<TestCall>(endpoint, 500'000, 500'000, i));
        calls.back()->send(sessions[i % 2]);
      }
      for (const auto& call : calls) {
        ASSERT_TRUE(call->wait());
        EXPECT_TRUE(call->is_right());
      }
      EXPECT_EQ(endpoint.counters().retransmissions, 0U) << strides << " strides";
    });
  }
}

// A timeout below the round-trip time. Each answer meets the next copy in the wheel (appendix C).
TEST(ErpcTimeoutSim, APacedRequestEndsOnlyWithGrowingTimeouts) {
  for (const bool growing : {false, true}) {
    Options options;
    options.retransmission_timeout = 1500;
    options.timely_bypass = options.rate_limiter_bypass = false;
    options.link_gbps = 0.2;  // a packet of 116 bytes takes 4.6 us, longer than a drain
    options.growing_timeouts = growing;
    run_endpoints("sim", 2, options, [&](Endpoint& endpoint) {
      serve_sized(endpoint);
      if (endpoint.env().node() != 0) return;
      const SessionId session = connect_to(endpoint, {1, 0});
      TestCall call(endpoint, 100, 24);
      EXPECT_EQ(call.send(session).wait(5 * kMillisecond), growing);
      if (!growing) {
        EXPECT_GT(endpoint.counters().in_wheel, 100U);
      }
      endpoint.close();
    });
  }
}

TEST_P(ErpcWorlds, AHandlerThatFailsSaysWhy) {
  run(2, [](Endpoint& endpoint) {
    endpoint.register_handler(1, [](RequestHandle& handle) {
      const std::string text(handle.request().size(), 'x');
      handle.fail(text);
    });
    if (endpoint.env().node() != 0) return;
    const SessionId session = connect_to(endpoint, {1, 0});
    for (const std::uint32_t bytes : {0U, 5U, 2 * endpoint.payload()}) {
      TestCall call(endpoint, bytes, endpoint.payload());
      ASSERT_TRUE(call.send(session).wait());
      EXPECT_EQ(call.outcome(), Outcome::kFailed);
      const auto got = call.response().bytes();
      const std::string text(reinterpret_cast<const char*>(got.data()), got.size());
      EXPECT_EQ(text,
                bytes == 0 ? "no message" : std::string(std::min(bytes, endpoint.payload()), 'x'));
    }
    TestCall small(endpoint, 500, 0);
    ASSERT_TRUE(small.send(session).wait());
    EXPECT_EQ(small.outcome(), Outcome::kFailed);
    EXPECT_LE(small.response().size(), small.response().capacity());
    EXPECT_EQ(endpoint.counters().lies, 0U);
    EXPECT_EQ(endpoint.credits_of(session), endpoint.options().credits);
  });
}

TEST_P(ErpcWorlds, ABackgroundEndpointServesCallsOfSeveralThreads) {
  const Options options = options_of(GetParam());
  runtime::run_world(GetParam(), 2, [&](Env& env, const runtime::Kill&) {
    BackgroundEndpoint endpoint(env, options, 0);
    endpoint.register_handler(
        1,
        [](RequestHandle& handle) {
          if (handle.request().empty()) throw Error(ErrorCode::kInternal, "an empty request");
          answer_to(handle, static_cast<std::uint32_t>(handle.request().size()));
        },
        RunIn::kDispatch);
    if (env.node() == 0) {
      const SessionId session = endpoint.connect({1, 0}, kPatience);
      const auto ask = [&](char letter) {
        std::vector<std::string> requests;
        for (std::size_t i = 0; i < 50; ++i) requests.emplace_back(i, letter);
        const auto replies = endpoint.call(session, 1, requests, 64, kPatience);
        ASSERT_EQ(replies.size(), requests.size());
        EXPECT_EQ(replies[0].outcome, Outcome::kFailed);
        for (std::size_t i = 1; i < requests.size(); ++i) {
          EXPECT_EQ(replies[i].outcome, Outcome::kOk);
          ASSERT_EQ(replies[i].data.size(), i);
          EXPECT_EQ(replies[i].data[0], answer_byte(std::as_bytes(std::span(requests[i])), 0));
        }
      };
      const auto other = env.spawn("other", [&] { ask('b'); });
      ask('a');
      other->join();
      endpoint.disconnect(session);
      env.device().rendezvous().publish_value("done", Time{0});
    } else {
      while (!env.device().rendezvous().find("done")) env.sleep_until(env.now() + kMillisecond);
    }
  });
}

// Longer than the time that an endpoint gives a session by itself.
TEST(ErpcBackgroundSim, AConnectLastsAsLongAsItIsTold) {
  runtime::run_world("sim", 2, [&](Env& env, const runtime::Kill&) {
    const Time late = Options().connect_timeout + kSecond;
    if (env.node() == 1) env.sleep_until(env.now() + late);
    BackgroundEndpoint endpoint(env, {}, 0);
    if (env.node() == 0) {
      const auto connect_and_end = [&] {
        endpoint.disconnect(endpoint.connect({1, 0}, late + kSecond));
      };
      EXPECT_NO_THROW(connect_and_end());
      EXPECT_GE(env.now(), late);
      EXPECT_TRUE(refuses(
          [&] {
            endpoint.connect({1, 9}, kSecond);
          },
          ErrorCode::kTimeout, {"1000 ms", "endpoint 9 of node 1"}));
      env.device().rendezvous().publish_value("done", Time{0});
    } else {
      while (!env.device().rendezvous().find("done")) env.sleep_until(env.now() + kMillisecond);
    }
  });
}

}  // namespace

}  // namespace pyrdma::erpc
