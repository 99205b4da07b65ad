// Senders that are not the peer of a session, although they know all of its names: they neither end
// nor answer nor feed it, and make none in another's name.
#include <functional>
#include <string>
#include <vector>

#include "fabric/sender.h"
#include "systems/erpc/baselines/fasst_rpc.h"
#include "systems/erpc/bugs.h"
#include "systems/erpc/meeting.h"
#include "systems/erpc/raw_peer_test.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {

namespace {

Options small_options() {
  Options options;
  options.packet_bytes = 1024;
  options.retransmission_timeout = kSecond;
  return options;
}

/// Sends every message about a session, from `peer`, in its own name and in that of `owner`.
void send_all_messages(RawPeer& peer, ManagementMessage message, const fabric::QpAddress& owner) {
  for (std::uint32_t kind = 0; kind < kManagementKinds; ++kind) {
    for (const fabric::QpAddress& sender : {peer.address(), owner}) {
      message.kind = static_cast<ManagementKind>(kind);
      message.sender = sender;
      peer.send(message);
    }
  }
}

/// Each node gives out the same numbers of queue pairs, so a stranger on another node has that of
/// the peer. One on the peer's node has another.
fabric::sim::SimOptions of_equal_numbers() {
  fabric::sim::SimOptions options = runtime::sim_options(3);
  options.faults[Fault::number_collision].rate = 1;
  return options;
}

/// The peer of a session, by hand, and what strangers know of it.
struct Scene {
  ManagementMessage session;
  fabric::QpAddress owner;
  bool is_ready = false, is_over = false;
  std::uint32_t strangers = 0;
};

void be_a_stranger(Env& env, Scene& scene, const std::function<void(RawPeer&)>& act) {
  while (!scene.is_ready) env.sleep_until(env.now() + kMicrosecond);
  RawPeer peer(env);
  EXPECT_EQ(peer.address().qp_num == scene.owner.qp_num, env.node() == 2);
  peer.aim_at(0);
  act(peer);
  ++scene.strangers;
}

// Node 0 is a client, node 1 its server by hand, nodes 1 and 2 have strangers.
void attack_client(Bugs bugs, const std::function<void(Endpoint&, SessionId, TestCall&)>& judge) {
  const Options options = small_options();
  fabric::sim::SimCluster cluster(of_equal_numbers());
  Scene scene;
  PacketHeader answer;
  const std::vector<std::byte> wrong(40, std::byte{0x77}), right(40);
  const auto disturb = [&](RawPeer& peer) {
    PacketHeader credit = answer;
    credit.what = PacketHeader::make_what(PacketKind::kCreditReturn, 0, 40, answer.type());
    peer.send(credit);
    peer.send(answer, wrong.data(), wrong.size());
    send_all_messages(peer, scene.session, scene.owner);
  };
  cluster.run([&](Env& env) {
    if (env.node() == 2) return be_a_stranger(env, scene, disturb);
    if (env.node() == 0) {
      Endpoint endpoint(env, options, 0, bugs);
      const SessionId session = connect_to(endpoint, {1, 0});
      TestCall call(endpoint, 32, 40);
      call.send(session);
      endpoint.run_until([&] { return scene.strangers == 2; }, env.now() + 10 * kMillisecond);
      endpoint.run_for(20 * kMicrosecond);
      judge(endpoint, session, call);
      scene.is_over = true;
      return;
    }
    RawPeer peer(env);
    peer.publish(options.name);
    const ManagementMessage message = peer.receive(kSecond)->message();
    scene.owner = peer.address();
    scene.session = answer_message(message, ManagementKind::kConnected, scene.owner);
    peer.aim(message.sender);
    peer.send(scene.session);
    const PacketHeader asked = peer.receive(kSecond)->header;
    answer.what = PacketHeader::make_what(PacketKind::kResponse, 0, 40, asked.type());
    answer.whose = PacketHeader::make_whose(asked.request(), message.client_session,
                                            message.client_generation);
    scene.is_ready = true;
    be_a_stranger(env, scene, disturb);
    while (scene.strangers != 2) env.sleep_until(env.now() + kMicrosecond);
    env.sleep_until(env.now() + 50 * kMicrosecond);
    if (!scene.is_over) peer.send(answer, right.data(), right.size());
    while (!scene.is_over) env.sleep_until(env.now() + kMicrosecond);
  });
}

TEST(ErpcStrangers, NeitherAnswerNorEndASessionOfAClient) {
  attack_client({}, [](Endpoint& endpoint, SessionId session, TestCall& call) {
    EXPECT_TRUE(endpoint.is_connected(session)) << endpoint.why_lost(session);
    EXPECT_EQ(call.ended(), 0U);
    EXPECT_EQ(endpoint.counters().unknown_session, 4U);
    // In the owner's name each is a lie. In the own name a connect, a connected, a disconnect and a
    // ping are answered: there is no such session. The others are dropped.
    EXPECT_EQ(endpoint.counters().bad_management,
              2 * kManagementKinds + 2 * (kManagementKinds - 4));
    ASSERT_TRUE(call.wait());
    EXPECT_EQ(call.outcome(), Outcome::kOk);
    EXPECT_EQ(call.response().data()[0], std::byte{0});
  });
  attack_client(Bug::kSenderNotChecked, [](Endpoint& endpoint, SessionId session, TestCall& call) {
    EXPECT_TRUE(endpoint.is_lost(session));
    EXPECT_EQ(call.ended(), 1U);
  });
}

// Node 0 is a server, node 1 its client by hand, nodes 1 and 2 have strangers.
void attack_server(Bugs bugs, const std::function<void(Endpoint&)>& judge) {
  const Options options = small_options();
  fabric::sim::SimCluster cluster(of_equal_numbers());
  Scene scene;
  PacketHeader next;
  const auto disturb = [&](RawPeer& peer) {
    peer.send(next);
    send_all_messages(peer, scene.session, scene.owner);
  };
  cluster.run([&](Env& env) {
    if (env.node() == 2) return be_a_stranger(env, scene, disturb);
    if (env.node() == 0) {
      Endpoint endpoint(env, options, 0, bugs);
      serve_sized(endpoint);
      endpoint.run_until([&] { return scene.strangers == 2; }, env.now() + 10 * kMillisecond);
      endpoint.run_for(20 * kMicrosecond);
      judge(endpoint);
      scene.is_over = true;
      endpoint.run_for(100 * kMicrosecond);
      return;
    }
    RawPeer peer(env);
    peer.aim_at(0);
    const ManagementMessage message = connect_message(options, peer.address());
    peer.send(message);
    scene.session = peer.receive()->message();
    scene.session.is_for_client = 0;
    scene.owner = peer.address();
    next.what = PacketHeader::make_what(PacketKind::kRequest, 0, 0, 1);
    next.whose = PacketHeader::make_whose(options.slots, scene.session.server_session,
                                          scene.session.server_generation);
    scene.is_ready = true;
    be_a_stranger(env, scene, disturb);
    while (!scene.is_over) env.sleep_until(env.now() + kMicrosecond);
    if (bugs.none()) {
      while (peer.receive(20 * kMicrosecond)) {
      }
      peer.send(next);
      EXPECT_EQ(peer.receive()->header.request(), options.slots) << "its own request is the first";
    }
  });
}

TEST(ErpcStrangers, NeitherFeedNorEndASessionOfAServer) {
  attack_server({}, [](Endpoint& endpoint) {
    EXPECT_EQ(endpoint.counters().handled, 0U);
    EXPECT_EQ(endpoint.counters().unknown_session, 2U);
    EXPECT_EQ(endpoint.counters().resets, 0U);
  });
  attack_server(Bug::kSenderNotChecked,
                [](Endpoint& endpoint) { EXPECT_EQ(endpoint.counters().handled, 1U); });
}

TEST(ErpcStrangers, ConnectInNoOthersName) {
  const Options options = small_options();
  for (const Bug bug : {Bug::kNone, Bug::kSenderNotChecked}) {
    fabric::sim::SimCluster cluster(of_equal_numbers());
    fabric::QpAddress other;
    bool is_ready = false, is_over = false;
    cluster.run([&](Env& env) {
      if (env.node() == 2) {
        RawPeer owner(env);
        other = owner.address();
        is_ready = true;
        EXPECT_EQ(owner.receive(kMillisecond).has_value(), bug != Bug::kNone);
        is_over = true;
        return;
      }
      if (env.node() == 0) {
        Endpoint endpoint(env, options, 0, bug);
        endpoint.run_until([&] { return is_over; }, kPatience);
        EXPECT_EQ(endpoint.server_sessions(), bug == Bug::kNone ? 0U : 1U);
        EXPECT_EQ(endpoint.counters().bad_management, bug == Bug::kNone ? 1U : 0U);
        return;
      }
      while (!is_ready) env.sleep_until(env.now() + kMicrosecond);
      RawPeer peer(env);
      EXPECT_EQ(peer.address().qp_num, other.qp_num) << "the node alone tells them apart";
      peer.aim_at(0);
      peer.send(connect_message(options, other));
      while (!is_over) env.sleep_until(env.now() + kMicrosecond);
    });
  }
}

// A handler knows its client.
TEST(ErpcStrangers, ARequestNamesTheNodeOfItsClient) {
  run_endpoints("sim", 3, {}, [](Endpoint& endpoint) {
    std::vector<NodeId> clients;
    endpoint.register_handler(1, [&](RequestHandle& handle) {
      clients.push_back(handle.client_node());
      handle.respond();
    });
    const NodeId node = endpoint.env().node();
    if (node == 0) {
      endpoint.run_until([&] { return clients.size() == 3; }, kPatience);
      EXPECT_EQ(clients, (std::vector<NodeId>{1, 2, 1}));
      return;
    }
    const SessionId session = connect_to(endpoint, {0, 0});
    for (std::uint32_t i = node; i < 4; i += 2) {
      endpoint.run_for(i * kMillisecond);
      TestCall call(endpoint, 8, 0);
      ASSERT_TRUE(call.send(session).wait());
    }
  });
}

TEST(ErpcStrangers, DoNotAnswerRequestsOfFasst) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_sent = false, is_over = false;
  cluster.run([&](Env& env) {
    const auto no_handler = [](std::span<const std::byte>, std::span<std::byte>) {
      return std::size_t{0};
    };
    FasstRpc rpc(env, {.name = "strangers"}, no_handler);
    rpc.connect(env.now() + kSecond);
    if (env.node() == 0) {
      ASSERT_EQ(rpc.send(0, {}), 0U);
      rpc.flush();
      is_sent = true;
      std::uint32_t answers = 0;
      const auto count = [&](std::uint32_t, std::span<const std::byte>) { ++answers; };
      const auto has_dropped = [&] {
        rpc.poll(count);
        return rpc.dropped() != 0;
      };
      EXPECT_TRUE(env.poll_until(has_dropped, env.now() + kMillisecond));
      EXPECT_EQ(answers, 0U);
      EXPECT_EQ(rpc.in_flight(), 1U);
      is_over = true;
      return;
    }
    while (!is_sent) env.sleep_until(env.now() + kMicrosecond);
    RawPeer peer(env);
    fabric::QpAddress at;
    const auto found = env.device().rendezvous().find("strangers/fasst/0/0");
    std::memcpy(&at, found->data(), sizeof at);
    peer.aim(at);
    const std::uint32_t response[4] = {0, 0, 0, 2};  // of peer 0, to slot 0, without bytes
    peer.send(response, sizeof response);
    while (!is_over) env.sleep_until(env.now() + kMicrosecond);
  });
}

// Headers as a NIC writes them, by hand: 40 bytes over IPv6 and RoCE v1; over IPv4 the last 20.
TEST(ErpcStrangers, TheRoutingHeaderNamesTheSender) {
  const std::uint8_t v6[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 9};
  const std::uint8_t v4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
  std::uint8_t other[16];
  std::byte header[fabric::kGrhBytes] = {};
  const auto put = [&](std::size_t at, const std::uint8_t* bytes, std::size_t count) {
    std::memcpy(header + at, bytes, count);
  };
  EXPECT_FALSE(fabric::names_sender(header, v6));
  EXPECT_FALSE(fabric::names_sender(header, v4));
  header[0] = std::byte{0x60};
  for (const std::uint8_t* gid : {v6, v4}) {
    put(8, gid, 16);
    std::memcpy(other, gid, sizeof other);
    EXPECT_TRUE(fabric::names_sender(header, other));
    for (std::uint32_t i = 0; i < 16; ++i) {
      other[i] ^= 1U;
      EXPECT_FALSE(fabric::names_sender(header, other)) << i;
      other[i] ^= 1U;
    }
  }
  std::memset(header, 0, sizeof header);
  header[20] = std::byte{0x45};
  put(32, v4 + 12, 4);
  put(36, v6 + 12, 4);  // the receiver's address
  EXPECT_TRUE(fabric::names_sender(header, v4));
  EXPECT_FALSE(fabric::names_sender(header, v6));
  std::memcpy(other, v4, sizeof other);
  for (std::uint32_t i = 0; i < 16; ++i) {
    other[i] ^= 1U;
    EXPECT_FALSE(fabric::names_sender(header, other)) << i;
    other[i] ^= 1U;
  }
}

}  // namespace

}  // namespace pyrdma::erpc
