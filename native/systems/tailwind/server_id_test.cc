#include "systems/tailwind/server_id.h"

#include <array>

#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

// The last name of an incarnation stands before the first one of the next.
TEST(TailwindServerId, NamesOfAnIncarnationAreApart) {
  const std::array ids{ServerId::of_server(3, 0, 0),
                       ServerId::of_server(3, 0, ServerId::kServers - 1),
                       ServerId::of_client(3, 0, 0),
                       ServerId::of_client(3, 0, ServerId::kClients - 1),
                       ServerId::of_server(3, 1, 0),
                       ServerId::of_client(3, ServerId::kIncarnations - 1, ServerId::kClients - 1)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i != 0) {
      EXPECT_LT(ids[i - 1].life, ids[i].life);
    }
    EXPECT_EQ(ids[i].is_server(), i < 2 || i == 4);
    EXPECT_EQ(ServerId::of(ids[i].number()), ids[i]);
  }
  EXPECT_EQ(ids[3].incarnation(), 0U);
  EXPECT_EQ(ids[4].incarnation(), 1U);
}

TEST(TailwindServerId, ANameBeyondItsPartIsRefused) {
  const auto code = ErrorCode::kInvalidArgument;
  EXPECT_TRUE(refuses([] { ServerId::of_server(3, 0, 32768); }, code, {"3", "32768"}));
  EXPECT_TRUE(refuses([] { ServerId::of_client(3, 0, 40000); }, code, {"3", "40000", "32768"}));
  EXPECT_TRUE(refuses([] { ServerId::of_client(3, 0, ~0U); }, code, {"4294967295", "32768"}));
  EXPECT_TRUE(refuses([] { ServerId::of_server(3, 65536, 0); }, code, {"3", "65536"}));
  EXPECT_TRUE(refuses([] { ServerId::of_client(3, 65536, 0); }, code, {"3", "65536"}));
}

TEST(TailwindServerId, ALaterLifeReplacesAnEarlierOne) {
  const ServerId first = ServerId::of_server(3, 1, 0), second = ServerId::of_server(3, 1, 1);
  const ServerId client = ServerId::of_client(3, 1, 0), other = ServerId::of_client(3, 1, 7);
  const ServerId next = ServerId::of_server(3, 2, 0), client_of_next = ServerId::of_client(3, 2, 0);
  EXPECT_TRUE(second.replaces(first));
  EXPECT_FALSE(first.replaces(second));
  EXPECT_FALSE(first.replaces(first));
  EXPECT_FALSE(client.replaces(first));
  EXPECT_FALSE(other.replaces(client));
  for (const ServerId earlier : {first, second, client, other}) {
    EXPECT_TRUE(next.replaces(earlier));
    EXPECT_TRUE(client_of_next.replaces(earlier));
    EXPECT_FALSE(earlier.replaces(next));
    EXPECT_FALSE(ServerId::of_server(4, 2, 0).replaces(earlier)) << "of another node";
  }
}

// Its name is the last one before that of the coordinator's next incarnation.
TEST(TailwindServerIdSim, TheLastClientOfTheCoordinatorsNodeHidesNothing) {
  const Options options = small_options("sim", Replication::kTailwind);
  fabric::sim::SimOptions simulation = runtime::sim_options(options.servers + 2);
  simulation.time_limit = kSecond;
  fabric::sim::SimCluster cluster(simulation);
  bool is_there = false, is_over = false;
  const auto refused = [](Env& env, const Options& options) {
    EXPECT_TRUE(refuses([&] { const Client client(env, options, ServerId::kClients, kSecond); },
                        ErrorCode::kInvalidArgument, {"32768"}));
  };
  cluster.run([&](Env& env) {
    if (env.node() < options.servers) {
      EXPECT_TRUE(refuses([&] { const Server server(env, options, ServerId::kServers); },
                          ErrorCode::kInvalidArgument, {"32768"}));
      Server(env, options).run([&] { return is_over; });
    } else if (env.node() == options.coordinator) {
      Coordinator coordinator(env, options);
      const auto beside = env.spawn("client", [&] {
        refused(env, options);
        Client client(env, options, ServerId::kClients - 1, kSecond);
        is_there = true;
        client.run_until([&] { return is_over; }, kForever);
      });
      coordinator.run([&] { return is_over; });
    } else {
      while (!is_there) env.sleep_until(env.now() + kMillisecond);
      Client client(env, options, 0, 20 * kMillisecond);
      client.await_servers(options.servers);
      is_over = true;
    }
  });
}

}  // namespace
}  // namespace pyrdma::tailwind
