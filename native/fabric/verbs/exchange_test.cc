// The set-up exchange, without any RDMA device.
#include "fabric/verbs/exchange.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "fabric/verbs/rendezvous.h"

namespace pyrdma::fabric::verbs {
namespace {

struct VerbsExchange : testing::Test {
  ExchangeServer server{SessionOptions{2, 7, "127.0.0.1"}};
  Welcome welcome;
  Socket join(NodeId node, Channel channel = Channel::kEvents, std::uint32_t nodes = 2) {
    return attach(server.name(), node, nodes, server.token(), channel, &welcome);
  }
  static Bytes ask(const Socket& socket, const Bytes& request) {
    Bytes reply;
    EXPECT_TRUE(send_message(socket, request));
    EXPECT_TRUE(receive_message(socket, &reply));
    return reply;
  }
  bool dies(NodeId node) {
    for (int turn = 0; turn < 2000; ++turn) {
      if (server.dead_nodes() == std::vector<NodeId>{node}) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};

TEST_F(VerbsExchange, NodesLearnSeedAndClock) {
  const Socket a = join(0);
  EXPECT_EQ(welcome.seed, 7u);
  EXPECT_EQ(welcome.neighbours, 1u);
  EXPECT_GT(welcome.clock.now(), 0);
  EXPECT_FALSE(server.all_attached());
  const Socket b = join(1);
  EXPECT_TRUE(server.all_attached());
}

TEST_F(VerbsExchange, StrangersAreRefused) {
  EXPECT_THROW(attach(server.name(), 0, 2, "guess", Channel::kEvents, &welcome), Error);
  EXPECT_THROW(join(2), Error);
  EXPECT_THROW(join(0, Channel::kEvents, 3), Error);
  const Socket first = join(0);
  EXPECT_THROW(join(0), Error) << "a node attaches once";
  EXPECT_THROW(connect_to("127.0.0.1"), Error);
  EXPECT_THROW(connect_to("127.0.0.1:1"), Error);
}

TEST_F(VerbsExchange, NonsenseEndsOneConnectionOnly) {
  {
    const Socket rude = connect_to(server.name());
    Bytes nonsense(100, std::byte{0xff});
    ASSERT_TRUE(send_message(rude, nonsense));
    Bytes reply;
    receive_message(rude, &reply);
    EXPECT_FALSE(receive_message(rude, &reply));
  }
  const Socket calls = join(0, Channel::kCalls);
  const Bytes truncated = {static_cast<std::byte>(MessageKind::kPublish), std::byte{200}};
  ask(calls, truncated);
  EXPECT_FALSE(server.all_attached());
}

TEST_F(VerbsExchange, AnEndWithoutFarewellIsADeath) {
  {
    const Socket events = join(0);
    const Socket calls = join(0, Channel::kCalls);
  }
  EXPECT_TRUE(dies(0));
}

TEST_F(VerbsExchange, AfterADeathThePlaceIsFreeAgain) {
  { const Socket events = join(0); }
  ASSERT_TRUE(dies(0));
  EXPECT_EQ(server.incarnation(0), 0u);
  const Socket again = join(0);
  EXPECT_EQ(welcome.incarnation, 1u);
  EXPECT_EQ(server.incarnation(0), 1u);
  EXPECT_TRUE(server.dead_nodes().empty());
}

TEST_F(VerbsExchange, AFarewellIsNone) {
  Socket events = join(0);
  const Socket calls = join(0, Channel::kCalls);
  ask(calls, Writer(MessageKind::kLeave).bytes());
  events.close();
  { const Socket other = join(1); }
  EXPECT_TRUE(dies(1)) << "and node 0 is not among them";
}

TEST_F(VerbsExchange, AStopReachesAllNodes) {
  const Socket a = join(0), b = join(1);
  server.request_stop();
  for (const Socket* socket : {&a, &b}) {
    Bytes message;
    ASSERT_TRUE(receive_message(*socket, &message));
    EXPECT_EQ(static_cast<MessageKind>(message[0]), MessageKind::kStop);
  }
}

TEST_F(VerbsExchange, SessionsCheckTheirArguments) {
  EXPECT_THROW(ExchangeServer({0, 1, "127.0.0.1"}), Error);
  EXPECT_THROW(ExchangeServer({kMaxNodes + 1, 1, "127.0.0.1"}), Error);
  EXPECT_THROW(ExchangeServer({2, 1, "203.0.113.1"}), Error) << "no address of this machine";
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
