// The set-up exchange, without any RDMA device.
#include "fabric/verbs/exchange.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "fabric/verbs/rendezvous.h"

namespace pyrdma::fabric::verbs {
namespace {

struct VerbsExchange : testing::Test {
  ExchangeServer server{SessionOptions{2, 7, "127.0.0.1"}};
  Welcome welcome;
  Link join(NodeId node, Channel channel = Channel::kEvents, std::uint32_t nodes = 2) {
    return attach(server.name(), node, nodes, server.token(), channel, &welcome);
  }
  static Bytes ask(Link& link, const Bytes& request) {
    Bytes reply;
    EXPECT_TRUE(link.send(request));
    EXPECT_TRUE(link.receive(&reply));
    return reply;
  }
  static bool is_hung_up(const Socket& socket) {
    std::byte bytes[256];
    ssize_t got = 1;
    while (got > 0) got = ::recv(socket.descriptor(), bytes, sizeof bytes, 0);
    return got == 0 || errno == ECONNRESET;
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
  const Link a = join(0);
  EXPECT_EQ(welcome.seed, 7u);
  EXPECT_EQ(welcome.neighbours, 1u);
  EXPECT_GT(welcome.clock.now(), 0);
  EXPECT_FALSE(server.all_attached());
  const Link b = join(1);
  EXPECT_TRUE(server.all_attached());
}

TEST_F(VerbsExchange, StrangersAreRefused) {
  EXPECT_THROW(attach(server.name(), 0, 2, "guess", Channel::kEvents, &welcome), Error);
  EXPECT_THROW(join(2), Error);
  EXPECT_THROW(join(0, Channel::kEvents, 3), Error);
  const Link first = join(0);
  EXPECT_THROW(join(0), Error) << "a node attaches once";
  EXPECT_THROW(connect_to("127.0.0.1"), Error);
  EXPECT_THROW(connect_to("127.0.0.1:1"), Error);
}

TEST_F(VerbsExchange, NonsenseEndsOneConnectionOnly) {
  {
    const Socket rude = connect_to(server.name());
    const Bytes nonsense(100, std::byte{0xff});
    ASSERT_EQ(::send(rude.descriptor(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 100);
    EXPECT_TRUE(is_hung_up(rude));
  }
  Link calls = join(0, Channel::kCalls);
  const Bytes truncated = {static_cast<std::byte>(MessageKind::kPublish), std::byte{200}};
  ask(calls, truncated);
  EXPECT_FALSE(server.all_attached());
}

TEST_F(VerbsExchange, LengthsThatNoMessageHasEndTheConnection) {
  const auto is_served = [&](std::size_t bytes) {
    Link calls = join(0, Channel::kCalls);
    Bytes message(bytes);
    if (bytes > 0) message[0] = static_cast<std::byte>(MessageKind::kGet);
    EXPECT_TRUE(calls.send(message));
    Bytes reply;
    return calls.receive(&reply);
  };
  EXPECT_TRUE(is_served(64));
  EXPECT_TRUE(is_served(kMaxMessage));
  EXPECT_FALSE(is_served(0));
  EXPECT_FALSE(is_served(kMaxMessage + 1));
}

TEST_F(VerbsExchange, LengthsInsideAMessageAreChecked) {
  Link calls = join(0, Channel::kCalls);
  for (const std::uint32_t length : {5U, kMaxMessage, 0x7fffffffU, ~0U}) {
    Writer publish(MessageKind::kPublish);  // a key of four bytes, with a larger length
    publish.put(length).put(std::uint32_t{0x6b6b6b6b});
    const Bytes reply = ask(calls, publish.bytes());
    ASSERT_FALSE(reply.empty());
    EXPECT_EQ(static_cast<MessageKind>(reply[0]), MessageKind::kError) << length;
  }
  const Bytes good = ask(calls, Writer(MessageKind::kPublish).put_text("k").put_text("v").bytes());
  ASSERT_FALSE(good.empty());
  EXPECT_EQ(static_cast<MessageKind>(good[0]), MessageKind::kDone) << "and the connection serves";
}

/// Carries the messages between the two ends of a link, and may change them.
struct Between {
  explicit Between(const std::string& name) : server(connect_to(name)) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    client = Socket(ends[0]);
    ours = Socket(ends[1]);
  }
  static Bytes read(const Socket& from, std::size_t bytes) {
    Bytes data(bytes);
    EXPECT_EQ(::recv(from.descriptor(), data.data(), bytes, MSG_WAITALL),
              static_cast<ssize_t>(bytes));
    return data;
  }
  static void write(const Socket& to, const Bytes& data) {
    EXPECT_EQ(::send(to.descriptor(), data.data(), data.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(data.size()));
  }
  static Bytes read_message(const Socket& from) {
    Bytes framed = read(from, 4);
    std::uint32_t length = 0;
    std::memcpy(&length, framed.data(), sizeof length);
    const Bytes rest = read(from, length + sizeof(Digest));
    framed.insert(framed.end(), rest.begin(), rest.end());
    return framed;
  }
  Socket server, client, ours;
};

TEST_F(VerbsExchange, WhatIsAlteredOrRepeatedOnTheWayEndsTheConnection) {
  const Bytes get = Writer(MessageKind::kGet).put_text("k").bytes();
  enum class Way { kAsItIs, kAltered, kRepeated, kReflected };
  for (const Way way : {Way::kAsItIs, Way::kAltered, Way::kRepeated, Way::kReflected}) {
    Between wire(server.name());
    std::string seen;  // all bytes on the wire
    Link calls;
    std::thread carrier([&] {
      const auto carry = [&](const Socket& to, const Bytes& data) {
        seen.append(reinterpret_cast<const char*>(data.data()), data.size());
        Between::write(to, data);
      };
      carry(wire.ours, Between::read(wire.server, 40));
      carry(wire.server, Between::read(wire.ours, 40));
      carry(wire.server, Between::read_message(wire.ours));  // the greeting
      carry(wire.ours, Between::read_message(wire.server));  // the welcome
      Bytes request = Between::read_message(wire.ours);
      if (way == Way::kAltered) request[4 + 1] ^= std::byte{1};
      if (way == Way::kReflected) {
        Between::write(wire.ours, request);
        return;
      }
      carry(wire.server, request);
      if (way == Way::kAltered) {
        EXPECT_TRUE(is_hung_up(wire.server));
        wire.ours.close();
        return;
      }
      carry(wire.ours, Between::read_message(wire.server));
      if (way == Way::kRepeated) {
        Between::write(wire.server, request);
        EXPECT_TRUE(is_hung_up(wire.server));
      }
    });
    calls.connect(std::move(wire.client), server.token());
    Writer hello(MessageKind::kHello);
    hello.put(NodeId{0}).put(std::uint32_t{2}).put(Channel::kCalls).put_text("boot");
    ask(calls, hello.bytes());
    EXPECT_TRUE(calls.send(get));
    Bytes reply;
    EXPECT_EQ(calls.receive(&reply), way == Way::kAsItIs || way == Way::kRepeated);
    carrier.join();
    EXPECT_EQ(seen.find(server.token()), std::string::npos) << "the token never goes over it";
  }
}

TEST_F(VerbsExchange, AControllerThatStandsStillIsNotWaitedForLongerThanAsked) {
  Link calls = join(0, Channel::kCalls);
  Bytes reply;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(calls.receive(&reply, 50 * kMillisecond));
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, std::chrono::milliseconds(50));
  EXPECT_LT(took, std::chrono::seconds(5));
}

TEST(VerbsStrangers, HaveLittleTimeHoweverBusyTheyLook) {
  SessionOptions options;
  options.greeting_timeout = 200 * kMillisecond;
  ExchangeServer server(options);
  Welcome welcome;
  Link node = attach(server.name(), 0, 2, server.token(), Channel::kCalls, &welcome);
  const Socket stranger = connect_to(server.name());
  struct {
    Opening opening;
    std::uint32_t length = 200;
  } greeting;
  ASSERT_EQ(::send(stranger.descriptor(), &greeting, 44, MSG_NOSIGNAL), 44);
  bool put_off = false;
  for (int turn = 0; turn < 3000 && !put_off; ++turn) {  // a byte every 10 ms, for up to 30 s
    const char byte = 0;
    put_off = ::send(stranger.descriptor(), &byte, 1, MSG_NOSIGNAL) != 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(put_off);
  EXPECT_TRUE(node.send(Writer(MessageKind::kGet).put_text("k").bytes()));
  Bytes reply;
  EXPECT_TRUE(node.receive(&reply)) << "a node that has greeted stays";
}

TEST_F(VerbsExchange, AnEndWithoutFarewellIsADeath) {
  {
    const Link events = join(0);
    Link calls = join(0, Channel::kCalls);
  }
  EXPECT_TRUE(dies(0));
}

TEST_F(VerbsExchange, AfterADeathThePlaceIsFreeAgain) {
  { const Link events = join(0); }
  ASSERT_TRUE(dies(0));
  EXPECT_EQ(server.incarnation(0), 0u);
  const Link again = join(0);
  EXPECT_EQ(welcome.incarnation, 1u);
  EXPECT_EQ(server.incarnation(0), 1u);
  EXPECT_TRUE(server.dead_nodes().empty());
}

TEST_F(VerbsExchange, WhoAsksOnTheChannelOfEventsIsHungUpOn) {
  Link events = join(0);
  EXPECT_TRUE(events.send(Writer(MessageKind::kGet).put_text("k").bytes()));
  Bytes reply;
  EXPECT_FALSE(events.receive(&reply));
  EXPECT_TRUE(dies(0));
}

TEST_F(VerbsExchange, AFarewellIsNone) {
  Link events = join(0);
  Link calls = join(0, Channel::kCalls);
  ask(calls, Writer(MessageKind::kLeave).bytes());
  events.close();
  { const Link other = join(1); }
  EXPECT_TRUE(dies(1)) << "and node 0 is not among them";
}

TEST_F(VerbsExchange, AStopReachesAllNodes) {
  Link a = join(0), b = join(1);
  server.request_stop();
  for (Link* link : {&a, &b}) {
    Bytes message;
    ASSERT_TRUE(link->receive(&message));
    EXPECT_EQ(static_cast<MessageKind>(message[0]), MessageKind::kStop);
  }
}

TEST_F(VerbsExchange, SessionsCheckTheirArguments) {
  EXPECT_THROW(ExchangeServer({0, 1, "127.0.0.1"}), Error);
  EXPECT_THROW(ExchangeServer({kMaxNodes + 1, 1, "127.0.0.1"}), Error);
  EXPECT_THROW(ExchangeServer({2, 1, "203.0.113.1"}), Error) << "no address of this machine";
  for (const char* all : {"0.0.0.0", "::"})
    EXPECT_THROW(ExchangeServer({2, 1, all}), Error) << "every network";
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
