// How connections begin and end: knocks of strangers, a device without room, and peers that have
// gone.
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "systems/tailwind/cluster_test.h"
#include "systems/tailwind/fuzz/stranger.h"

namespace pyrdma::tailwind {
namespace {

using scenario::Stranger;

/// Takes what comes until `is_over`, and answers each request with its opcode.
template <class Flag>
void answer_until(Env& env, Transport& transport, const Flag& is_over) {
  std::vector<std::unique_ptr<Incoming>> requests;
  while (!is_over) {
    transport.keep_time();
    env.poll_until([&] { return transport.poll(requests); }, env.now() + 10 * kMicrosecond);
    for (auto& request : requests) {
      const auto opcode = request->opcode;
      transport.answer(std::move(request), std::as_bytes(std::span(&opcode, 1)));
    }
    requests.clear();
  }
}

constexpr Time kTimeToEnd = 5 * kMillisecond;  // of a queue pair whose connection has ended

/// How a request to node 0 ends.
CallEnd call(Env& env, Transport& transport, Time patience = 10 * kMillisecond) {
  std::optional<CallEnd> end;
  transport.call({0, 0}, Opcode::kRead, {}, env.now() + patience,
                 [&](CallEnd how, ByteView) { end = how; });
  std::vector<std::unique_ptr<Incoming>> requests;
  while (!end) {
    transport.keep_time();
    env.poll_until([&] { return transport.poll(requests); }, env.now() + 10 * kMicrosecond);
  }
  return *end;
}

/// Node 0 takes requests. `with` runs on the other nodes, with what node 0 has.
void beside_a_transport(const fabric::sim::SimOptions& simulation, const Options& options,
                        Bugs bugs, const std::function<void(Env&, Transport&)>& with) {
  fabric::sim::SimCluster cluster(simulation);
  Transport* taking = nullptr;
  std::uint32_t ended = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() == 0) {
      Transport transport(env, options, {0, 0}, 64, bugs);
      taking = &transport;
      return answer_until(env, transport, is_over);
    }
    while (taking == nullptr) env.sleep_until(env.now() + kMicrosecond);
    with(env, *taking);
    is_over = ++ended == env.nodes() - 1;
    while (!is_over) env.sleep_until(env.now() + kMicrosecond);
  });
}

Options quick() { return small_options("sim", Replication::kTailwind); }

// The addresses of the datagrams name a device that the node does not have.
TEST(TailwindConnectionsSim, AKnockThatTheDeviceRefusesHasNoAnswer) {
  const Options options = quick();
  const auto knock = [&](Bugs bugs) {
    beside_a_transport(runtime::sim_options(2), options, bugs, [&](Env& env, Transport& taking) {
      Stranger stranger(env, options.name);
      const ServerId self{1, 0};
      Hello hello = stranger.knock(self, {0, 0});
      hello.address.lid = 9;
      stranger.send({0, 0}, hello);
      hello = stranger.knock(self, {0, 0});
      hello.port.lid = 9;
      stranger.send({0, 0}, hello);
      hello.is_log = 1;
      stranger.send({0, 0}, hello);
      hello = stranger.knock(self, {0, 0});
      ++hello.magic;  // of another version
      stranger.send({0, 0}, hello);
      env.sleep_until(env.now() + kMillisecond);
      EXPECT_EQ(taking.connections(), 0U);
      EXPECT_EQ(taking.counters().malformed, 3U);
      Transport transport(env, options, self, 64);
      EXPECT_EQ(call(env, transport), CallEnd::kAnswered);
    });
  };
  knock({});
  EXPECT_THROW(knock(Bug::kFailedKnockEndsNode), Error) << "the bug is not found";
}

// Node 2 knocks in node 1's name.
TEST(TailwindConnectionsSim, NobodyKnocksInAnotherNodesName) {
  const auto connections_after = [&](Bugs bugs) {
    const Options options = quick();
    std::uint32_t after = 0;
    beside_a_transport(runtime::sim_options(3), options, bugs, [&](Env& env, Transport& taking) {
      if (env.node() == 1) {
        Transport transport(env, options, {1, 0}, 64);
        for (int i = 0; i < 20; ++i) EXPECT_EQ(call(env, transport), CallEnd::kAnswered);
        EXPECT_EQ(transport.counters().broken, 0U);
        return;
      }
      env.sleep_until(env.now() + 100 * kMicrosecond);
      Stranger stranger(env, options.name);
      for (const std::uint64_t is_log : {0U, 1U}) {
        for (const bool has_own_address : {true, false}) {
          Hello hello = stranger.knock({1, 0}, {0, 0});
          hello.nonce = ~std::uint64_t{5};
          hello.is_log = is_log;
          if (!has_own_address) hello.address.node = hello.port.node = 1;
          stranger.send({0, 0}, hello);
        }
      }
      env.sleep_until(env.now() + kMillisecond);
      after = taking.connections();
      EXPECT_EQ(taking.counters().broken, 0U);
    });
    return after;
  };
  EXPECT_EQ(connections_after({}), 1U);
  EXPECT_GT(connections_after(Bug::kSendersUnchecked), 1U) << "the bug is not found";
}

// Node 0 does not answer; node 2 refuses in its name.
TEST(TailwindConnectionsSim, NobodyAnswersInAnotherNodesName) {
  const auto end_of_call = [](Bugs bugs) {
    const Options options = quick();
    fabric::sim::SimCluster cluster(runtime::sim_options(3));
    std::uint64_t nonce = 0;
    CallEnd end = CallEnd::kAnswered;
    cluster.run([&](Env& env) {
      if (env.node() == 2) {
        while (nonce == 0) env.sleep_until(env.now() + kMicrosecond);
        env.sleep_until(env.now() + kMillisecond);
        Stranger stranger(env, options.name);
        Hello hello = stranger.knock({0, 0}, {1, 0});
        hello.kind = Hello::Kind::kRefuse;
        hello.nonce = nonce;
        stranger.send({1, 0}, hello);
        return env.sleep_until(env.now() + kMillisecond);
      }
      Transport transport(env, options, {env.node(), 0}, 64, bugs);
      if (env.node() == 0) return env.sleep_until(env.now() + 20 * kMillisecond);
      env.sleep_until(env.now() + kMillisecond);
      nonce = env.rng("tailwind/nonce/0")() + 1;
      end = call(env, transport);
    });
    return end;
  };
  EXPECT_EQ(end_of_call({}), CallEnd::kTimedOut);
  EXPECT_EQ(end_of_call(Bug::kSendersUnchecked), CallEnd::kRefused) << "the bug is not found";
}

// What a node has said of itself before does not stand in its way: its numbers may begin anywhere,
// and go round.
TEST(TailwindConnectionsSim, AnEarlierKnockDoesNotStandInTheWay) {
  const auto ends = [](Bugs bugs) {
    Options options = quick();
    options.call_timeout = kSecond;  // a probe comes too late to end them
    std::pair<CallEnd, bool> found{CallEnd::kAnswered, false};
    beside_a_transport(runtime::sim_options(2), options, bugs, [&](Env& env, Transport& taking) {
      Stranger stranger(env, options.name);
      for (const std::uint64_t is_log : {0U, 1U}) {
        Hello hello = stranger.knock({1, 0}, {0, 0});
        hello.nonce = ~std::uint64_t{5};
        hello.is_log = is_log;
        stranger.send({0, 0}, hello);
      }
      env.sleep_until(env.now() + kMillisecond);
      EXPECT_EQ(taking.connections(), 2U);
      Transport transport(env, options, {1, 0}, 64);
      transport.connect_log({0, 0}, stranger.knock({1, 0}, {0, 0}).address,
                            env.now() + 10 * kMillisecond,
                            [&](auto address) { found.second = address.has_value(); });
      found.first = call(env, transport, kMillisecond);
      env.sleep_until(env.now() + kTimeToEnd);
      EXPECT_EQ(taking.connections(), 2U) << "they were replaced";
    });
    return found;
  };
  EXPECT_EQ(ends({}), std::pair(CallEnd::kAnswered, true));
  EXPECT_EQ(ends(Bug::kKnocksOrderedByNonce), std::pair(CallEnd::kTimedOut, false))
      << "the bug is not found";
}

// A late copy of an earlier knock replaces nothing.
TEST(TailwindConnectionsSim, ALateKnockReplacesNothing) {
  const Options options = quick();
  beside_a_transport(runtime::sim_options(2), options, {}, [&](Env& env, Transport& taking) {
    Stranger stranger(env, options.name);
    const Hello early = stranger.knock({1, 0}, {0, 0});
    stranger.send({0, 0}, early);
    env.sleep_until(env.now() + kMillisecond);
    Transport transport(env, options, {1, 0}, 64);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(call(env, transport), CallEnd::kAnswered);
      stranger.send({0, 0}, early);
      env.sleep_until(env.now() + 100 * kMicrosecond);
    }
    EXPECT_EQ(transport.counters().broken, 0U);
    env.sleep_until(env.now() + kTimeToEnd);
    EXPECT_EQ(taking.connections(), 1U);
  });
}

TEST(TailwindConnectionsSim, WrongDatagramsDoNoHarm) {
  const Options options = quick();
  beside_a_transport(runtime::sim_options(3), options, {}, [&](Env& env, Transport& taking) {
    if (env.node() == 1) {
      Transport transport(env, options, {1, 0}, 64);
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(call(env, transport), CallEnd::kAnswered);
        env.sleep_until(env.now() + 10 * kMicrosecond);
      }
      return;
    }
    Stranger stranger(env, options.name);
    Rng rng(1);
    for (int i = 0; i < 2000; ++i) {
      const ServerId to{static_cast<NodeId>(i % 2), 0};
      stranger.send(to, stranger.draw(rng, options, to));
      env.sleep_until(env.now() + kMicrosecond);
    }
    EXPECT_GT(taking.counters().malformed, 100U);
  });
}

/// How many connections node 0 has when 20 clients of node 1 have gone, and one lives that does not
/// poll. It waits for one until `patience` is over.
std::uint32_t connections_left(const std::string& world, Bugs bugs, Time patience) {
  Options options = small_options(world, Replication::kTailwind);
  options.call_timeout = 20 * kMillisecond;
  std::atomic<bool> is_over{false};
  std::atomic<Transport*> taking{nullptr};
  std::uint32_t left = 0;
  runtime::run_world(world, 2, [&](Env& env, const runtime::Kill&) {
    if (env.node() == 0) {
      Transport transport(env, options, {0, 0}, 64, bugs);
      taking.store(&transport);
      return answer_until(env, transport, is_over);
    }
    while (taking.load() == nullptr) env.sleep_until(env.now() + kMillisecond);
    Transport living(env, options, ServerId::of_client(1, 0, 0), 64);
    EXPECT_EQ(call(env, living, tailwind::patience(world)), CallEnd::kAnswered);
    for (std::uint32_t number = 1; number <= 20; ++number) {
      Transport transport(env, options, ServerId::of_client(1, 0, number), 64);
      EXPECT_EQ(call(env, transport, tailwind::patience(world)), CallEnd::kAnswered);
    }
    const Time end = env.now() + patience;
    while (env.now() < end && taking.load()->connections() != 1)
      env.sleep_until(env.now() + 10 * kMillisecond);
    env.sleep_until(env.now() + 10 * options.call_timeout);
    left = taking.load()->connections();
    EXPECT_EQ(call(env, living, tailwind::patience(world)), CallEnd::kAnswered);
    EXPECT_EQ(living.counters().broken, 0U);
    is_over.store(true);
  });
  return left;
}

class TailwindConnections : public testing::TestWithParam<std::string> {};

TEST_P(TailwindConnections, OfPeersThatHaveGoneEnd) {
  EXPECT_EQ(connections_left(GetParam(), {}, 10 * kSecond), 1U);
  EXPECT_EQ(connections_left(GetParam(), Bug::kIdleUnprobed, 200 * kMillisecond), 21U)
      << "the bug is not found";
}

INSTANTIATE_TEST_SUITE_P(Worlds, TailwindConnections, testing::Values("sim", "shm"),
                         [](const auto& param_info) { return param_info.param; });

TEST(TailwindConnectionsSim, OfAnEarlierLifeEndWithTheNextOne) {
  Options options = quick();
  options.call_timeout = kSecond;  // a probe comes too late to end them
  beside_a_transport(runtime::sim_options(2), options, {}, [&](Env& env, Transport& taking) {
    const Stranger other(env, options.name);
    const fabric::QpAddress address = other.knock({1, 0}, {0, 0}).address;
    const auto connect = [&](ServerId self, bool has_log) {
      Transport transport(env, options, self, 64);
      bool is_connected = !has_log;
      if (has_log)
        transport.connect_log({0, 0}, address, env.now() + 10 * kMillisecond,
                              [&](auto end) { is_connected = end.has_value(); });
      EXPECT_EQ(call(env, transport), CallEnd::kAnswered);
      EXPECT_TRUE(is_connected);
      env.sleep_until(env.now() + kTimeToEnd);
      return taking.connections();
    };
    EXPECT_EQ(connect(ServerId::of_server(1, 0, 0), true), 2U);
    EXPECT_EQ(connect(ServerId::of_client(1, 0, 0), false), 3U) << "a client beside it";
    EXPECT_EQ(connect(ServerId::of_server(1, 0, 1), true), 3U);
    EXPECT_EQ(connect(ServerId::of_client(1, 1, 0), false), 1U) << "of the next incarnation";
  });
}

TEST(TailwindConnectionsSim, ClosedOnesEndByThemselves) {
  const Options options = quick();
  beside_a_transport(runtime::sim_options(2), options, {}, [&](Env& env, Transport& taking) {
    Transport transport(env, options, {1, 0}, 64);
    EXPECT_EQ(call(env, transport), CallEnd::kAnswered);
    taking.close({1, 0});
    env.sleep_until(env.now() + kTimeToEnd);
    EXPECT_EQ(taking.connections(), 0U);
    EXPECT_TRUE(taking.is_quiet({1, 0}));
  });
}

// Eight clients are within long requests when they begin their next lives. Node 0 keeps all its
// receives: as many requests may wait there as before.
TEST(TailwindConnectionsSim, LivesThatEndTakeNoReceivesAlong) {
  constexpr std::uint32_t kReceives = 64, kLives = 6, kClients = 8;
  const Options options = quick();
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  bool is_over = false;
  std::size_t waiting = 0;
  cluster.run([&](Env& env) {
    std::vector<std::unique_ptr<Incoming>> requests;
    if (env.node() == 0) {
      Transport transport(env, options, {0, 0}, 2 * kReceives);  // half of them for clients
      answer_until(env, transport, is_over);
      env.poll_until([&] { return transport.poll(requests) && requests.size() == kReceives; },
                     env.now() + 20 * kMillisecond);
      waiting = requests.size();
      return;
    }
    const auto transport_of = [&](std::uint32_t life, std::uint32_t number) {
      return std::make_unique<Transport>(env, options, ServerId::of_client(1, life, number), 16);
    };
    std::vector<std::vector<std::unique_ptr<Transport>>> lives(kLives);
    for (std::uint32_t life = 0; life < kLives; ++life)
      for (std::uint32_t number = 0; number < kClients; ++number)
        lives[life].push_back(transport_of(life, number));
    const auto ignore = [](CallEnd, ByteView) {};
    std::uint32_t answered = 0;
    const auto poll_until = [&](Time end) {
      while (answered != kClients && env.now() < end) {
        for (const auto& life : lives)
          for (const auto& each : life) each->keep_time(), each->poll(requests);
      }
    };
    const Bytes request(1U << 20);
    for (std::uint32_t life = 0; life < kLives; ++life) {
      answered = 0;
      for (std::uint32_t number = 0; life != 0 && number < kClients; ++number)
        lives[life - 1][number]->call({0, 0}, Opcode::kRead, request, env.now() + kSecond, ignore);
      poll_until(env.now() + 20 * kMicrosecond);
      for (const auto& each : lives[life])
        each->call({0, 0}, Opcode::kRead, {}, env.now() + kSecond,
                   [&](CallEnd end, ByteView) { answered += end == CallEnd::kAnswered; });
      poll_until(env.now() + 50 * kMillisecond);
      EXPECT_EQ(answered, kClients) << life;
    }
    answered = 0;
    is_over = true;
    poll_until(env.now() + 2 * kMillisecond);
    for (std::uint32_t i = 0; i < kReceives; ++i)
      lives.back().front()->call({0, 0}, Opcode::kRead, {}, env.now() + kSecond, ignore);
    poll_until(env.now() + 20 * kMillisecond);
  });
  EXPECT_EQ(waiting, kReceives);
}

TEST(TailwindConnectionsSim, ClientsThatHaveGoneLeaveNoneAtServers) {
  const Options options = quick();
  const auto connections_of = [&](int clients) {
    std::uint32_t most = 0;
    run_store(
        "sim", 1, options,
        [&](Env& env, Client&, const runtime::Kill&) {
          for (int number = 1; number <= clients; ++number) {
            Client client(env, options, static_cast<std::uint32_t>(number), kSecond);
            const std::uint64_t table = client.create_table("first");
            client.connect(table);
          }
          env.sleep_until(env.now() + 3 * options.call_timeout);
        },
        [&](Server& server) { most = std::max(most, server.transport().connections()); });
    return most;
  };
  EXPECT_EQ(connections_of(30), connections_of(0));
}

TEST(TailwindConnectionsSim, ADeviceWithoutRoomDelaysConnections) {
  fabric::sim::SimOptions simulation = runtime::sim_options(2);
  simulation.faults = FaultOptions::from_values({{"memory_pressure", 0.5}});
  simulation.faults.at_once = false;
  const Options options = quick();
  fabric::sim::SimCluster cluster(simulation);
  bool is_over = false;
  int refused_here = 0;
  cluster.run([&](Env& env) {
    if (env.node() == 0) {
      Transport transport(env, options, {0, 0}, 64);
      return answer_until(env, transport, is_over);
    }
    std::vector<std::unique_ptr<Transport>> peers;
    for (std::uint32_t number = 0; number < 40; ++number)
      peers.push_back(
          std::make_unique<Transport>(env, options, ServerId::of_client(1, 0, number), 64));
    cluster.begin_faults();
    for (const auto& peer : peers) {
      for (int tries = 0; call(env, *peer) != CallEnd::kAnswered; ++tries) {
        ++refused_here;
        ASSERT_LT(tries, 100);
      }
    }
    is_over = true;
  });
  EXPECT_GT(refused_here, 0);
  EXPECT_GT(cluster.branches().at("tailwind/knock_failed"), 0U);
}

// Connections break, and most attempts to make one fail at first.
TEST(TailwindConnectionsSim, AStoreServesWhileItsDevicesLackRoom) {
  for (const Replication replication : {Replication::kRamcloud, Replication::kTailwind}) {
    Options options = small_options("sim", replication);
    options.segment_bytes = 64U << 10;
    options.pings = 1000;  // nobody is taken for dead
    options.lease = 50 * kMillisecond;
    fabric::sim::SimOptions simulation = runtime::sim_options(options.servers + 2);
    simulation.faults = FaultOptions::from_values({{"memory_pressure", 0.6}, {"qp_error", 0.003}});
    simulation.faults.at_once = false;
    fabric::sim::SimCluster cluster(simulation);
    run_store(cluster, options, kSecond, [&](Env&, Client& client) {
      const std::uint64_t table = client.create_table("first");
      cluster.begin_faults();
      const std::string value(5000, 'v');
      for (std::uint64_t number = 0; number < 300; ++number) {
        const Bytes key = key_of(number % 50, 30);
        EXPECT_EQ(client.write(table, key, bytes_of(value)).status, StoreStatus::kOk);
        EXPECT_EQ(text_of(client.read(table, key).value), value);
      }
      cluster.heal();
    });
    EXPECT_GT(cluster.branches().at("tailwind/no_queue_pair"), 0U);
    EXPECT_GT(cluster.branches().at("tailwind/knock_failed"), 0U);
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
