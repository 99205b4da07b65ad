// The set-up exchange under bursts of nodes and floods of strangers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/error_test.h"
#include "fabric/verbs/exchange.h"
#include "fabric/verbs/rendezvous.h"

namespace pyrdma::fabric::verbs {
namespace {

using std::chrono::milliseconds;

SessionOptions session_of(std::uint32_t nodes) {
  SessionOptions options;
  options.nodes = nodes;
  return options;
}

/// Both ends of all connections are in this process.
bool may_open(rlim_t files) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= files) return true;
  limit.rlim_cur = std::min(files, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= files;
}

/// Nodes of a crowd attach all at once, and stay until the crowd is destroyed.
struct Crowd {
  /// Makes one attempt per connection, so that a refusal is seen. `delay` is that of the network.
  void attach_once(const ExchangeServer& server, std::uint32_t nodes, milliseconds delay = {}) {
    start(nodes, [&, nodes, delay](NodeId node, Channel channel) {
      Link link;
      Socket socket = connect_to(server.name());
      std::this_thread::sleep_for(delay);
      link.connect(std::move(socket), server.token());
      Writer hello(MessageKind::kHello);
      hello.put(node).put(nodes).put(channel).put_text("boot");
      std::this_thread::sleep_for(delay);
      Bytes reply;
      if (!link.send(hello.bytes()) || !link.receive(&reply, kSilence) ||
          static_cast<MessageKind>(reply.at(0)) != MessageKind::kWelcome)
        throw Error(ErrorCode::kUnavailable, "refused");
      return link;
    });
  }
  void attach(const ExchangeServer& server, std::uint32_t nodes) {
    start(nodes, [&, nodes](NodeId node, Channel channel) {
      Welcome welcome;
      return verbs::attach(server.name(), node, nodes, server.token(), channel, &welcome);
    });
  }
  template <class Attach>
  void start(std::uint32_t nodes, const Attach& attach_node) {
    links.resize(2 * nodes);
    std::barrier together(nodes);
    std::vector<std::thread> threads;
    for (NodeId node = 0; node < nodes; ++node) {
      threads.emplace_back([&, node] {
        together.arrive_and_wait();
        try {
          links[2 * node] = attach_node(node, Channel::kEvents);
          links[2 * node + 1] = attach_node(node, Channel::kCalls);
        } catch (const Error&) {
          ++refused;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<Link> links;
  std::atomic<int> refused{0};
};

struct Strangers {
  Strangers(const ExchangeServer& server, int count) {
    for (int i = 0; i < count; ++i) sockets.push_back(connect_to(server.name()));
  }
  /// Reads the opening, and waits up to `limit` for the end of the connection.
  static bool is_hung_up(const Socket& socket, milliseconds limit) {
    for (;;) {
      pollfd query{socket.descriptor(), POLLIN, 0};
      if (::poll(&query, 1, static_cast<int>(limit.count())) <= 0) return false;
      std::byte bytes[256];
      const ssize_t got = ::recv(socket.descriptor(), bytes, sizeof bytes, 0);
      if (got <= 0) return got == 0 || errno == ECONNRESET;
    }
  }
  std::vector<Socket> sockets;
};

TEST(VerbsCrowd, AThousandNodesGetInAtOnce) {
  constexpr std::uint32_t kNodes = 1000;
  if (!may_open(4 * kNodes + 1000))
    GTEST_SKIP() << "SKIPPED: this process may not open " << 4 * kNodes + 1000 << " files";
  ExchangeServer server(session_of(kNodes));
  Crowd crowd;
  crowd.attach_once(server, kNodes);
  EXPECT_EQ(crowd.refused, 0);
  EXPECT_TRUE(server.all_attached());
  server.request_stop();
  for (NodeId node = 0; node < kNodes; node += 111) {
    Bytes message;
    ASSERT_TRUE(crowd.links[2 * node].receive(&message, kSilence)) << node;
    EXPECT_EQ(static_cast<MessageKind>(message.at(0)), MessageKind::kStop);
  }
}

TEST(VerbsCrowd, ASlowNetworkRefusesNobody) {
  ExchangeServer server(session_of(100));
  Crowd crowd;
  crowd.attach_once(server, 100, milliseconds(50));
  EXPECT_EQ(crowd.refused, 0);
  EXPECT_TRUE(server.all_attached());
}

TEST(VerbsCrowd, TheOldestSilentStrangerMakesRoom) {
  ExchangeServer server(session_of(8));
  const Strangers early(server, 100), late(server, 250);  // more than there is room for
  Crowd crowd;
  crowd.attach_once(server, 8);
  EXPECT_EQ(crowd.refused, 0);
  EXPECT_TRUE(server.all_attached());
  EXPECT_TRUE(Strangers::is_hung_up(early.sockets.front(), milliseconds(5000)));
  EXPECT_FALSE(Strangers::is_hung_up(late.sockets.back(), milliseconds(1)));
}

TEST(VerbsCrowd, StrangersThatComeAgainAndAgainKeepNobodyOut) {
  ExchangeServer server(session_of(64));
  std::atomic<bool> done{false};
  std::atomic<int> connected{0};
  std::thread rude([&] {
    Strangers strangers(server, 200);
    for (std::size_t at = 0; !done; at = (at + 1) % strangers.sockets.size()) {
      try {
        strangers.sockets[at] = connect_to(server.name());
        // Closed ports do not stay reserved.
        constexpr linger kAtOnce{1, 0};
        ::setsockopt(strangers.sockets[at].descriptor(), SOL_SOCKET, SO_LINGER, &kAtOnce,
                     sizeof kAtOnce);
        ++connected;
      } catch (const Error&) {  // the ports of this machine are used up for a moment
      }
    }
  });
  while (connected < 500) std::this_thread::yield();
  Crowd crowd;
  crowd.attach(server, 64);
  EXPECT_EQ(crowd.refused, 0);
  EXPECT_TRUE(server.all_attached());
  done = true;
  rude.join();
}

/// Hangs up on the first connections, then connects the others with a server.
struct Gatekeeper {
  Gatekeeper(const ExchangeServer& server, int refusals) : listener(listen_on("127.0.0.1", &name)) {
    ::fcntl(listener.descriptor(), F_SETFL, 0);
    thread = std::thread([this, &server, refusals] {
      for (int i = 0; i < refusals; ++i) {
        if (!accept_from(listener).is_open()) --i;
      }
      const Socket client = accept_from(listener);
      const Socket inside = connect_to(server.name());
      pollfd ends[2] = {{client.descriptor(), POLLIN, 0}, {inside.descriptor(), POLLIN, 0}};
      for (;;) {
        ::poll(ends, 2, -1);
        for (int from : {0, 1}) {
          std::byte bytes[512];
          if (ends[from].revents == 0) continue;
          const ssize_t got = ::recv(ends[from].fd, bytes, sizeof bytes, 0);
          if (got <= 0) return;
          ::send(ends[1 - from].fd, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL);
        }
      }
    });
  }
  ~Gatekeeper() { thread.join(); }
  std::string name;
  Socket listener;
  std::thread thread;
};

TEST(VerbsCrowd, ANodeThatIsHungUpOnTriesAgain) {
  ExchangeServer server(session_of(1));
  Gatekeeper crowded(server, 3);
  Welcome welcome;
  const Link link = attach(crowded.name, 0, 1, server.token(), Channel::kEvents, &welcome);
  EXPECT_TRUE(server.all_attached());
}

TEST(VerbsCrowd, ANodeDoesNotTryForeverNorWithAWrongToken) {
  Welcome welcome;
  const auto try_to_attach = [&welcome](const std::string& name, Time timeout) {
    attach(name, 0, 1, "guess", Channel::kEvents, &welcome, timeout);
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(refuses([&] { try_to_attach("127.0.0.1:1", kSecond / 5); }, ErrorCode::kUnavailable,
                      {"127.0.0.1:1", "200"}));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(200));
  const ExchangeServer server(session_of(1));
  EXPECT_TRUE(refuses([&] { try_to_attach(server.name(), kAttachTimeout); },
                      ErrorCode::kInvalidArgument, {"token", server.name()}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(VerbsCrowd, TheLimitOfOpenFilesIsRaisedOrNamed) {
  const pid_t child = ::fork();  // a process cannot take back its hard limit
  if (child == 0) {
    rlimit limit{100, 3000};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
    { const ExchangeServer server(session_of(1000)); }
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur <= 2000) ::_exit(2);
    limit = {100, 1500};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const bool refused = bool{refuses([] { const ExchangeServer server(session_of(1000)); },
                                      ErrorCode::kExhausted, {"1000", "2000", "1500"})};
    ::_exit(refused ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(VerbsCrowd, TheTableIsBoundedInBytes) {
  SessionOptions options = session_of(1);
  options.table_bytes = 200'000;
  ExchangeServer server(options);
  Welcome welcome;
  Link calls = attach(server.name(), 0, 1, server.token(), Channel::kCalls, &welcome);
  const auto ask = [&calls](const Writer& request) {
    Bytes reply;
    EXPECT_TRUE(calls.send(request.bytes()) && calls.receive(&reply, kSilence));
    return reply;
  };
  const auto publish = [&ask](const std::string& key, std::size_t bytes) {
    const Bytes reply = ask(Writer(MessageKind::kPublish).put_text(key).put_bytes(Bytes(bytes)));
    return static_cast<MessageKind>(reply.at(0)) == MessageKind::kDone;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(publish("large" + std::to_string(i), 60'000));
  EXPECT_FALSE(publish("one too many", 60'000));
  const Bytes got = ask(Writer(MessageKind::kGet).put_text("one too many"));
  EXPECT_EQ(static_cast<MessageKind>(got.at(0)), MessageKind::kNothing) << "it is not stored";
  EXPECT_TRUE(publish("large0", 60'000)) << "the same again";
  EXPECT_TRUE(publish("small", 1000));
  int keys = 0;  // keys cost memory, too
  while (keys < 1000 && publish(std::string(120, 'k') + std::to_string(keys), 0)) ++keys;
  EXPECT_LT(keys, 100);
}

TEST(VerbsCrowd, AnUnprovenPeerMaySendAShortGreetingOnly) {
  const ExchangeServer server(session_of(1));
  Strangers strangers(server, 1);
  const Socket& stranger = strangers.sockets[0];
  Opening opening;
  const std::uint32_t length = kMaxMessage;
  ASSERT_EQ(::send(stranger.descriptor(), &opening, sizeof opening, MSG_NOSIGNAL), 40);
  ASSERT_EQ(::send(stranger.descriptor(), &length, sizeof length, MSG_NOSIGNAL), 4);
  EXPECT_TRUE(Strangers::is_hung_up(stranger, milliseconds(5000)));
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
