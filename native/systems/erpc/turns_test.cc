// The requests of a session take turns at its credits.
#include <memory>
#include <vector>

#include "systems/erpc/bugs.h"
#include "systems/erpc/meeting.h"
#include "systems/erpc/raw_peer_test.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

/// Runs `client` on node 0 with a session to node 1, whose handler answers by serve_sized().
void run_session(const Options& options, Bugs bugs,
                 const std::function<void(Endpoint&, SessionId)>& client) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Endpoint endpoint(env, options, 0, bugs);
    Meeting meeting(env, "turns");
    serve_sized(endpoint);
    if (env.node() == 0) {
      const SessionId session = connect_to(endpoint, {1, 0});
      client(endpoint, session);
    }
    meeting.wait(endpoint, kPatience);
  });
}

Time duration(Endpoint& endpoint, TestCall& call) {
  const Time begin = endpoint.env().now();
  EXPECT_TRUE(call.wait(kSecond)) << endpoint.describe_pending();
  EXPECT_TRUE(call.is_right());
  return endpoint.env().now() - begin;
}

// Behind a long request, and behind a long response, whose pieces the client asks for.
TEST(ErpcTurns, AShortRequestDoesNotWaitForTheEndOfALongOne) {
  constexpr std::uint32_t kShort = 32, kLong = 4 << 20;
  for (const bool is_response : {false, true}) {
    for (const Bug bug : {Bug::kNone, Bug::kOwnSlotFirst}) {
      run_session({}, bug, [&](Endpoint& endpoint, SessionId session) {
        TestCall before(endpoint, kShort, kShort), first(endpoint, kLong, kLong);
        before.send(session).wait();  // the server's buffers are made
        ASSERT_TRUE(first.send(session).wait());
        TestCall large(endpoint, is_response ? kShort : kLong, is_response ? kLong : kShort);
        TestCall small(endpoint, kShort, kShort);
        large.send(session);
        endpoint.run_for(100 * kMicrosecond);
        small.send(session);
        const Time of_small = duration(endpoint, small), rest_of_large = duration(endpoint, large);
        if (bug == Bug::kNone) {
          EXPECT_LT(of_small, 40 * kMicrosecond) << "the credits' packets before it take 20 us";
          EXPECT_GT(rest_of_large, 200 * kMicrosecond);
        } else {
          EXPECT_GT(of_small, 200 * kMicrosecond);
        }
      });
    }
  }
}

/// Short requests without a pause: each continuation begins the next one.
struct Stream {
  Endpoint& endpoint;
  SessionId session;
  MsgBuffer *request, *response;
  bool is_over = false;
  void send() { endpoint.enqueue_request({session, 1, request, response, &Stream::end, this, 0}); }
  static void end(void* context, std::uint64_t, Outcome) {
    auto* stream = static_cast<Stream*>(context);
    if (!stream->is_over) stream->send();
  }
};

TEST(ErpcTurns, ALongRequestDoesNotWaitForShortOnesWithoutEnd) {
  for (const Bug bug : {Bug::kNone, Bug::kOwnSlotFirst}) {
    Options options;
    options.credits = 4;
    run_session(options, bug, [&](Endpoint& endpoint, SessionId session) {
      std::vector<std::unique_ptr<Stream>> streams;
      for (std::uint32_t i = 0; i < 6; ++i) {
        streams.push_back(std::make_unique<Stream>(
            Stream{endpoint, session, endpoint.allocate(0), endpoint.allocate(0)}));
        streams.back()->send();
      }
      TestCall large(endpoint, 100'000, 32);
      large.send(session);
      EXPECT_EQ(large.wait(kMillisecond), bug == Bug::kNone);
      for (const auto& stream : streams) stream->is_over = true;
      EXPECT_TRUE(large.wait());
      EXPECT_TRUE(large.is_right());
      EXPECT_TRUE(endpoint.run_until([&] { return endpoint.active_requests() == 0; }, kPatience));
      EXPECT_EQ(endpoint.credits_of(session), 4U);
    });
  }
}

// A client with 2 credits, and a server by hand, which sees and answers packet by packet.
TEST(ErpcTurns, ARequestGetsACreditInEachRound) {
  Options options;
  options.credits = 2;
  options.slots = 4;
  options.packet_bytes = 1024;
  options.retransmission_timeout = kSecond;
  options.first_request = 0;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    if (env.node() == 0) {
      Endpoint endpoint(env, options);
      const SessionId session = connect_to(endpoint, {1, 0});
      std::vector<std::unique_ptr<TestCall>> calls;
      for (const std::uint32_t bytes : {4000U, 2500U, 32U, 1500U}) {
        calls.push_back(std::make_unique<TestCall>(endpoint, bytes, 0));
        calls.back()->send(session);
      }
      for (const auto& call : calls) ASSERT_TRUE(call->wait(10 * kMillisecond));
      EXPECT_EQ(endpoint.credits_of(session), 2U);
      return;
    }
    RawPeer peer(env);
    peer.publish(options.name);
    const ManagementMessage message = peer.receive(kSecond)->message();
    const std::uint64_t whose =
        PacketHeader::make_whose(0, message.client_session, message.client_generation);
    peer.aim(message.sender);
    peer.send(answer_message(message, ManagementKind::kConnected, peer.address()));
    // "1.0" is packet 0 of the request in slot 1.
    std::string seen;
    std::deque<PacketHeader> under_way;
    const auto hear = [&] {
      while (const auto packet = peer.receive(20 * kMicrosecond)) {
        under_way.push_back(packet->header);
        seen += std::to_string(packet->header.request() % options.slots) + "." +
                std::to_string(packet->header.packet()) + " ";
      }
    };
    hear();
    EXPECT_EQ(seen, "0.0 0.1 ");
    while (!under_way.empty()) {
      const PacketHeader asked = under_way.front();
      under_way.pop_front();
      const std::uint32_t packets = (asked.size() + 999) / 1000;
      const bool is_last = asked.packet() + 1 == packets;
      PacketHeader answer;
      answer.what =
          PacketHeader::make_what(is_last ? PacketKind::kResponse : PacketKind::kCreditReturn,
                                  asked.packet(), is_last ? 0 : asked.size(), asked.type());
      answer.whose = whose | asked.request();
      peer.send(answer);
      hear();
    }
    EXPECT_EQ(seen, "0.0 0.1 1.0 2.0 3.0 0.2 1.1 3.1 0.3 1.2 ");
  });
}

}  // namespace

}  // namespace pyrdma::erpc
