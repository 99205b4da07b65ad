// The packets of an RPC, one by one (eRPC, figure 3). A server by hand answers when the test says
// so, and writes down what the client sends.
#include <map>
#include <set>

#include "systems/erpc/raw_peer_test.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

// REQ and CR carry the number of a piece of the request; RFR and RESP go on behind the last one.
std::string name_of_packet(const PacketHeader& header) {
  constexpr const char* kNames[] = {"REQ", "RFR", "CR", "RESP", "MGMT"};
  return kNames[static_cast<int>(header.kind())] + std::to_string(header.packet());
}

class HandServer {
 public:
  HandServer(Env& env, const Options& options) : peer_(env), options_(options) {
    peer_.publish(options.name);
  }
  void connect() {
    const auto packet = peer_.receive(kSecond);
    ASSERT_TRUE(packet.has_value());
    const ManagementMessage message = packet->message();
    ASSERT_EQ(message.kind, ManagementKind::kConnect);
    EXPECT_EQ(message.credits, options_.credits);
    EXPECT_EQ(message.server_token, 0U);
    whose_ = PacketHeader::make_whose(0, message.client_session, message.client_generation);
    peer_.aim(message.sender);
    connected_ = answer_message(message, ManagementKind::kConnected, peer_.address());
    peer_.send(connected_);
  }
  /// Says that a session of the client has ended: its own session after changes by `change`.
  void reset(const std::function<void(ManagementMessage&)>& change) {
    ManagementMessage message = connected_;
    message.kind = ManagementKind::kReset;
    change(message);
    peer_.send(message);
  }
  /// Returns the names of the packets that have come, in their order.
  std::string heard() {
    std::string names;
    while (const auto packet = peer_.receive(20 * kMicrosecond)) {
      if (packet->header.kind() == PacketKind::kManagement) continue;
      last_ = packet->header;
      names += (names.empty() ? "" : " ") + name_of_packet(packet->header);
    }
    return names;
  }
  void answer(PacketKind kind, std::uint32_t number, std::uint32_t size, std::uint32_t bytes) {
    PacketHeader header;
    header.what = PacketHeader::make_what(kind, number, size, last_.type());
    header.whose = whose_ | last_.request();
    const std::vector<std::byte> data(bytes);
    peer_.send(header, data.data(), bytes);
  }

 private:
  RawPeer peer_;
  Options options_;
  std::uint64_t whose_ = 0;
  ManagementMessage connected_;
  PacketHeader last_;
};

class ErpcPackets : public testing::Test {
 protected:
  /// Runs a client with 2 credits beside a server by hand.
  void run(std::uint32_t request, std::uint32_t response,
           const std::function<void(HandServer&, std::uint32_t)>& server) {
    Options options;
    options.credits = 2;
    options.packet_bytes = 1024;
    options.retransmission_timeout = 10 * kMillisecond;
    options.connect_interval = kMillisecond;
    fabric::sim::SimCluster cluster(runtime::sim_options(2));
    cluster.run([&](Env& env) {
      if (env.node() == 1) {
        HandServer by_hand(env, options);
        by_hand.connect();
        server(by_hand, options.packet_bytes - kHeaderRoom);
        return;
      }
      Endpoint endpoint(env, options);
      const SessionId session = connect_to(endpoint, {1, 0});
      TestCall call(endpoint, request, response);
      ASSERT_TRUE(call.send(session).wait(5 * kMillisecond)) << endpoint.describe_pending();
      EXPECT_EQ(call.outcome(), Outcome::kOk);
      EXPECT_EQ(call.response().size(), response);
      EXPECT_EQ(endpoint.credits_of(session), 2U);
      EXPECT_EQ(endpoint.counters().retransmissions, 0U);
      EXPECT_EQ(endpoint.counters().lies, 0U);
    });
  }
};

TEST_F(ErpcPackets, ARequestOfOnePacketTakesTwo) {
  run(32, 40, [](HandServer& server, std::uint32_t) {
    EXPECT_EQ(server.heard(), "REQ0");
    server.answer(PacketKind::kResponse, 0, 40, 40);
    EXPECT_EQ(server.heard(), "");
  });
}

TEST_F(ErpcPackets, AResetOfAnotherSessionEndsNothing) {
  run(32, 40, [](HandServer& server, std::uint32_t) {
    EXPECT_EQ(server.heard(), "REQ0");
    server.reset([](ManagementMessage& message) { ++message.client_token; });
    server.reset([](ManagementMessage& message) { ++message.client_generation; });
    server.reset([](ManagementMessage& message) { ++message.client_session; });
    server.reset([](ManagementMessage& message) { ++message.server_token; });
    server.reset([](ManagementMessage& message) { ++message.server_generation; });
    server.reset([](ManagementMessage& message) { ++message.server_session; });
    server.answer(PacketKind::kResponse, 0, 40, 40);
    EXPECT_EQ(server.heard(), "");
  });
}

TEST_F(ErpcPackets, ThreeAndThreePacketsUseTwoCredits) {
  run(2500, 2500, [](HandServer& server, std::uint32_t payload) {
    EXPECT_EQ(server.heard(), "REQ0 REQ1");
    server.answer(PacketKind::kCreditReturn, 0, 2500, 0);
    EXPECT_EQ(server.heard(), "REQ2");
    server.answer(PacketKind::kCreditReturn, 1, 2500, 0);
    EXPECT_EQ(server.heard(), "") << "the number of the response's packets is not known yet";
    server.answer(PacketKind::kResponse, 2, 2500, payload);
    EXPECT_EQ(server.heard(), "RFR3 RFR4");
    server.answer(PacketKind::kResponse, 3, 2500, payload);
    EXPECT_EQ(server.heard(), "");
    server.answer(PacketKind::kResponse, 4, 2500, 2500 - 2 * payload);
    EXPECT_EQ(server.heard(), "");
  });
}

/// The life of a server that is sent packets by hand; `check` looks at it at the end.
template <class Check>
void serve_by_hand(Env& env, const Options& options, const bool& is_over, Check check) {
  Endpoint endpoint(env, options);
  serve_sized(endpoint);
  EXPECT_TRUE(endpoint.run_until([&] { return is_over; }, kPatience));
  check(endpoint);
}

// The same seen from the other side: what a server sends for each packet.
TEST_F(ErpcPackets, AServerAnswersEachPacketOnce) {
  Options options;
  options.packet_bytes = 1024;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      return serve_by_hand(env, options, is_over, [](Endpoint& endpoint) {
        EXPECT_EQ(endpoint.counters().handled, 1U);
        EXPECT_EQ(endpoint.server_sessions(), 1U) << "a repeated request to connect makes no other";
      });
    }
    RawPeer peer(env);
    peer.aim_at(1);
    const ManagementMessage message = connect_message(options, peer.address());
    peer.send(message);
    peer.send(message);
    const ManagementMessage first = peer.receive()->message(), again = peer.receive()->message();
    EXPECT_EQ(first.kind, ManagementKind::kConnected);
    EXPECT_EQ(first.server_session, again.server_session);
    EXPECT_EQ(first.server_generation, again.server_generation);
    const std::uint64_t whose =
        PacketHeader::make_whose(options.slots, first.server_session, first.server_generation);
    std::vector<std::byte> data(2500);
    const std::uint32_t bytes = 2500;
    std::memcpy(data.data(), &bytes, sizeof bytes);
    const auto sends = [&](PacketKind kind, std::uint32_t number) -> std::string {
      PacketHeader header;
      header.what = PacketHeader::make_what(kind, number, bytes, 1);
      header.whose = whose;
      if (kind == PacketKind::kRequest) {
        peer.send(header, data.data() + number * 1000, number == 2 ? 500 : 1000);
      } else {
        peer.send(header);
      }
      const auto answer = peer.receive(20 * kMicrosecond);
      return answer ? name_of_packet(answer->header) : "";
    };
    EXPECT_EQ(sends(PacketKind::kRequest, 1), "") << "out of order";
    EXPECT_EQ(sends(PacketKind::kRequest, 0), "CR0");
    EXPECT_EQ(sends(PacketKind::kRequest, 2), "") << "out of order";
    EXPECT_EQ(sends(PacketKind::kRequest, 1), "CR1");
    EXPECT_EQ(sends(PacketKind::kRequest, 1), "CR1") << "again";
    EXPECT_EQ(sends(PacketKind::kResponseRequest, 3), "") << "there is no response yet";
    EXPECT_EQ(sends(PacketKind::kRequest, 2), "RESP2");
    EXPECT_EQ(sends(PacketKind::kRequest, 2), "RESP2") << "again, and the handler does not run";
    EXPECT_EQ(sends(PacketKind::kResponseRequest, 4), "") << "out of order";
    EXPECT_EQ(sends(PacketKind::kResponseRequest, 3), "RESP3");
    EXPECT_EQ(sends(PacketKind::kResponseRequest, 4), "RESP4");
    EXPECT_EQ(sends(PacketKind::kResponseRequest, 5), "") << "there is no such piece";
    is_over = true;
  });
}

// A late packet has a number that its slot has left behind, also behind the last number.
TEST_F(ErpcPackets, AServerTellsALatePacketWhenTheNumbersGoRound) {
  Options options;
  options.packet_bytes = 1024;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      return serve_by_hand(env, options, is_over, [](Endpoint& endpoint) {
        EXPECT_EQ(endpoint.counters().handled, 3U);
        EXPECT_EQ(endpoint.counters().stale, 5U);
      });
    }
    RawPeer peer(env);
    peer.aim_at(1);
    ManagementMessage message = connect_message(options, peer.address());
    constexpr std::uint64_t kEnd = PacketHeader::kMaxRequest + 1;
    message.first_request = kEnd - 16;
    peer.send(message);
    const ManagementMessage session = peer.receive()->message();
    const auto is_answered = [&](std::uint64_t request) {
      PacketHeader header;
      header.what = PacketHeader::make_what(PacketKind::kRequest, 0, 0, 1);
      header.whose =
          PacketHeader::make_whose(request, session.server_session, session.server_generation);
      peer.send(header);
      const auto answer = peer.receive(20 * kMicrosecond);
      return answer && answer->header.request() == request;
    };
    EXPECT_TRUE(is_answered(kEnd - 8));
    EXPECT_TRUE(is_answered(0)) << "the next number of slot 0";
    EXPECT_FALSE(is_answered(kEnd - 8));
    EXPECT_TRUE(is_answered(0)) << "again, and the handler does not run";
    EXPECT_FALSE(is_answered(kEnd - 16));
    EXPECT_FALSE(is_answered(16)) << "a later number than the next one";
    EXPECT_TRUE(is_answered(8));
    EXPECT_FALSE(is_answered(0));
    is_over = true;
  });
}

// The generations of a place go round after 4,096 sessions, which takes some milliseconds: a late
// packet may have the generation of a later session.
TEST_F(ErpcPackets, SessionsOfEqualNamesHaveOtherNumbers) {
  constexpr std::uint32_t kSessions = PacketHeader::kGenerations + 20;
  Options options;
  options.packet_bytes = 1024;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 0) {
      Endpoint endpoint(env, options);
      for (std::uint32_t i = 0; i < kSessions; ++i) {
        const SessionId session = connect_to(endpoint, {1, 0});
        endpoint.destroy_session(session);
        endpoint.run_until([&] { return endpoint.client_sessions() == 0; }, kForever);
      }
      is_over = true;
      return;
    }
    RawPeer peer(env);
    peer.publish(options.name);
    std::map<std::uint32_t, std::set<std::uint64_t>> numbers;  // by generation
    while (!is_over) {
      const auto packet = peer.receive(20 * kMicrosecond);
      if (!packet) continue;
      const ManagementMessage message = packet->message();
      EXPECT_EQ(message.client_session, 0U);
      EXPECT_EQ(message.first_request % options.slots, 0U);
      numbers[message.client_generation].insert(message.first_request);
      peer.aim(message.sender);
      peer.send(answer_message(message,
                               message.kind == ManagementKind::kConnect
                                   ? ManagementKind::kConnected
                                   : ManagementKind::kDisconnected,
                               peer.address()));
    }
    EXPECT_EQ(numbers.size(), PacketHeader::kGenerations);
    std::uint32_t twice = 0;
    for (const auto& [generation, of_sessions] : numbers) twice += of_sessions.size() == 2;
    EXPECT_EQ(twice, kSessions - PacketHeader::kGenerations);
  });
}

// Every generation of the client's place has been used since, and its last disconnect was lost.
TEST_F(ErpcPackets, AConnectOfAnEqualNameEndsTheOldSession) {
  Options options;
  options.packet_bytes = 1024;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      Endpoint endpoint(env, options);
      while (!is_over) endpoint.run_for(20 * kMicrosecond);
      EXPECT_EQ(endpoint.server_sessions(), 1U);
      return;
    }
    RawPeer peer(env);
    peer.aim_at(1);
    ManagementMessage message = connect_message(options, peer.address());
    peer.send(message);
    const ManagementMessage first = peer.receive()->message();
    message.first_request = 800;
    peer.send(message);
    const ManagementMessage second = peer.receive()->message();
    EXPECT_EQ(second.kind, ManagementKind::kConnected);
    EXPECT_EQ(second.first_request, 800U);
    EXPECT_NE(second.server_generation, first.server_generation);
    is_over = true;
  });
}

// An ended session keeps its place while its handler runs. A header has no number for one more.
TEST_F(ErpcPackets, AServerWithoutPlacesRefuses) {
  constexpr std::uint32_t kPlaces = 1U << 16U;
  Options options;
  options.packet_bytes = 1024;
  options.slots = options.credits = 1;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      std::vector<RequestHandle> handles;
      Endpoint endpoint(env, options);
      endpoint.register_handler(1, [&](RequestHandle& handle) { handles.push_back(handle); });
      while (!is_over) endpoint.run_for(20 * kMicrosecond);
      EXPECT_EQ(handles.size(), kPlaces);
      EXPECT_EQ(endpoint.server_sessions(), 0U);
      return;
    }
    RawPeer peer(env);
    peer.aim_at(1);
    ManagementMessage message = connect_message(options, peer.address());
    for (std::uint32_t i = 0; i < kPlaces; ++i) {
      message.client_token = i + 1;
      peer.send(message);
      ManagementMessage session = peer.receive()->message();
      ASSERT_EQ(session.kind, ManagementKind::kConnected);
      ASSERT_EQ(session.server_session, i);
      PacketHeader header;
      header.what = PacketHeader::make_what(PacketKind::kRequest, 0, 0, 1);
      header.whose = PacketHeader::make_whose(1, i, session.server_generation);
      peer.send(header);
      session.kind = ManagementKind::kDisconnect;
      session.is_for_client = 0;
      session.sender = peer.address();
      peer.send(session);
      ASSERT_EQ(peer.receive()->message().kind, ManagementKind::kDisconnected);
    }
    message.client_token = kPlaces + 1;
    peer.send(message);
    const ManagementMessage refused = peer.receive()->message();
    EXPECT_EQ(refused.kind, ManagementKind::kRefused);
    EXPECT_EQ(refused.reason, Refusal::kNoSessions);
    is_over = true;
  });
}

// No device can be reached at such an address. The endpoint goes on.
TEST_F(ErpcPackets, AWrongAddressIsCounted) {
  Options options;
  options.packet_bytes = 4096;
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      Endpoint endpoint(env, options);
      endpoint.run_for(200 * kMicrosecond);
      EXPECT_EQ(endpoint.counters().bad_management, 3U);
      EXPECT_EQ(endpoint.server_sessions(), 0U);
      return;
    }
    RawPeer peer(env);
    peer.aim_at(1);
    ManagementMessage message = connect_message(options, peer.address());
    message.sender.lid = 9;
    peer.send(message);
    message.sender.node = 2;
    peer.send(message);
    message.sender.node = ~0U;
    peer.send(message);
  });
}

}  // namespace

}  // namespace pyrdma::erpc
