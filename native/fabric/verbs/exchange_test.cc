// The set-up exchange, without any RDMA device.
#include "fabric/verbs/exchange.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

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

TEST_F(VerbsExchange, LengthsThatNoMessageHasEndTheConnection) {
  const auto is_served = [&](std::uint32_t length, std::size_t bytes) {
    const Socket calls = join(0, Channel::kCalls);
    Bytes framed(sizeof length + bytes);
    std::memcpy(framed.data(), &length, sizeof length);
    if (bytes > 0) framed[sizeof length] = static_cast<std::byte>(MessageKind::kGet);
    EXPECT_EQ(::send(calls.descriptor(), framed.data(), framed.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(framed.size()));
    Bytes reply;
    return receive_message(calls, &reply);
  };
  EXPECT_TRUE(is_served(64, 64));
  EXPECT_TRUE(is_served(kMaxMessage, kMaxMessage));
  EXPECT_FALSE(is_served(0, 0));
  EXPECT_FALSE(is_served(kMaxMessage + 1, 0));
  EXPECT_FALSE(is_served(~0U, 64));
}

TEST_F(VerbsExchange, LengthsInsideAMessageAreChecked) {
  const Socket calls = join(0, Channel::kCalls);
  for (const std::uint32_t length : {5U, kMaxMessage, 0x7fffffffU, ~0U}) {
    Writer publish(MessageKind::kPublish);  // a key of four bytes that says it had more
    publish.put(length).put(std::uint32_t{0x6b6b6b6b});
    const Bytes reply = ask(calls, publish.bytes());
    ASSERT_FALSE(reply.empty());
    EXPECT_EQ(static_cast<MessageKind>(reply[0]), MessageKind::kError) << length;
  }
  const Bytes good = ask(calls, Writer(MessageKind::kPublish).put_text("k").put_text("v").bytes());
  ASSERT_FALSE(good.empty());
  EXPECT_EQ(static_cast<MessageKind>(good[0]), MessageKind::kDone) << "and the connection serves";
}

TEST(VerbsStrangers, HaveLittleTimeHoweverBusyTheyLook) {
  SessionOptions options;
  options.greeting_patience = 200 * kMillisecond;
  ExchangeServer server(options);
  Welcome welcome;
  const Socket node = attach(server.name(), 0, 2, server.token(), Channel::kCalls, &welcome);
  const Socket stranger = connect_to(server.name());
  const std::uint32_t length = kMaxMessage;
  ASSERT_EQ(::send(stranger.descriptor(), &length, sizeof length, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof length));
  bool put_off = false;
  for (int turn = 0; turn < 3000 && !put_off; ++turn) {  // a byte every 10 ms, for up to 30 s
    const char byte = 0;
    put_off = ::send(stranger.descriptor(), &byte, 1, MSG_NOSIGNAL) != 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(put_off);
  EXPECT_TRUE(send_message(node, Writer(MessageKind::kGet).put_text("k").bytes()));
  Bytes reply;
  EXPECT_TRUE(receive_message(node, &reply)) << "who has greeted stays";
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
