#include "systems/krcore/baselines/metadata_rpc.h"

#include <array>
#include <cstring>
#include <vector>

#include "runtime/node_barrier.h"
#include "systems/krcore/control/stranger_test.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

class KrcoreMetadataRpc : public KrcoreWorlds {
 protected:
  static Options rpc_options() {
    Options result = options();
    result.metadata = Metadata::kRpc;
    result.dc_cache = false;
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreMetadataRpc, krcore_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(KrcoreMetadataRpc, ConnectsWithoutAReadOfAMetaServer) {
  run(3, rpc_options(), [&](Service& service, const Kill&) {
    if (!service.env().device().capabilities().dc) return;
    App app(service);
    const NodeId self = service.env().node();
    if (self != 0) {
      const std::uint64_t before = service.metadata_requests();
      for (int i = 0; i < 20; ++i) {
        const Queue queue = app.create_queue();
        app.connect(queue, i % 2 == 0 ? 0 : 3 - self, 7);
        app.destroy(queue);
      }
      EXPECT_GE(service.metadata_requests() - before, 20u);
      EXPECT_EQ(service.meta_reads(), 0u);
    }
    runtime::node_barrier(service.env(), "done", 600 * kSecond);
  });
}

// Many threads of a node ask at once, and each gets the answer to its own question.
TEST_P(KrcoreMetadataRpc, AnswersBelongToTheirRequests) {
  runtime::run_world(GetParam(), 2, [&](Env& env, const Kill&) {
    env.device().open();
    const auto domain = env.device().create_protection_domain();
    constexpr std::uint32_t kNodes = 200;
    if (env.node() == 0) {
      MetaServer tables(env.device(), *domain, kNodes);
      for (std::uint32_t node = 0; node < kNodes; ++node)
        ASSERT_TRUE(tables.add(node, {node + 7, 3 * node, 0}, {}));
      Mutex mutex(env);
      Failure failure(env);
      MetadataServer server(env, *domain, tables, mutex, failure);
      env.device().rendezvous().publish_value("server", server.address());
      runtime::node_barrier(env, "done", 600 * kSecond);
      return;
    }
    const auto server = env.device().rendezvous().await_value<fabric::QpAddress>(
        "server", env.now() + runtime::kSetupTimeout);
    MetadataClient client(env, *domain);
    DctMeta none;
    EXPECT_EQ(client.target_of(1, none), MetaClient::Answer::kNoServer);
    client.use(server);
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::uint32_t thread = 0; thread < 4; ++thread) {
      threads.push_back(env.spawn("asks/" + std::to_string(thread), [&, thread] {
        for (std::uint32_t i = 0; i < 100; ++i) {
          const std::uint32_t node = (i * 4 + thread) % (kNodes + 10);
          DctMeta meta;
          MetaClient::Answer answer = MetaClient::Answer::kNoServer;
          // On an emulated machine the server may be silent for longer than a client waits.
          for (int turn = 0; turn < (GetParam() == "verbs" ? 20 : 1); ++turn) {
            answer = client.target_of(node, meta);
            if (answer != MetaClient::Answer::kNoServer) break;
          }
          if (node >= kNodes) {
            EXPECT_EQ(answer, MetaClient::Answer::kUnknown);
          } else {
            EXPECT_EQ(answer, MetaClient::Answer::kFound);
            EXPECT_EQ(meta, (DctMeta{node + 7, 3 * node, 0}));
          }
        }
      }));
    }
    for (const auto& thread : threads) thread->join();
    runtime::node_barrier(env, "done", 600 * kSecond);
  });
}

/// Node 0 has a server that knows nodes 0 to 99, and the others clients of it.
void with_client(const fabric::sim::SimOptions& options,
                 const std::function<void(Env&, fabric::sim::SimCluster&, MetadataClient&,
                                          const fabric::QpAddress&)>& use) {
  fabric::sim::SimCluster cluster(options);
  cluster.run([&](Env& env) {
    env.device().open();
    const auto domain = env.device().create_protection_domain();
    if (env.node() == 0) {
      MetaServer tables(env.device(), *domain, 100);
      for (std::uint32_t node = 0; node < 100; ++node) tables.add(node, {node + 7, node, 0}, {});
      Mutex mutex(env);
      Failure failure(env);
      MetadataServer server(env, *domain, tables, mutex, failure);
      env.device().rendezvous().publish_value("server", server.address());
      runtime::node_barrier(env, "done", 600 * kSecond);
      return failure.check();
    }
    const auto server = env.device().rendezvous().await_value<fabric::QpAddress>(
        "server", env.now() + runtime::kSetupTimeout);
    MetadataClient client(env, *domain);
    client.use(server);
    use(env, cluster, client, server);
    runtime::node_barrier(env, "done", 600 * kSecond);
  });
}

// A client asks again, and takes no damaged or old answer.
TEST(KrcoreMetadataFaults, ALostDatagramIsSentAgain) {
  fabric::sim::SimOptions options = runtime::sim_options(2);
  options.faults =
      FaultOptions::from_values({{"loss", 0.1}, {"duplicate", 0.2}, {"corruption", 0.1}});
  with_client(options, [](Env&, auto&, MetadataClient& client, auto&) {
    for (std::uint32_t node = 0; node < 100; ++node) {
      DctMeta meta;
      EXPECT_EQ(client.target_of(node, meta), MetaClient::Answer::kFound) << node;
      EXPECT_EQ(meta, (DctMeta{node + 7, node, 0}));
    }
    EXPECT_GT(client.repeated(), 0u);
  });
}

// A request may ask for an answer to a port that does not exist, or is another node's.
TEST(KrcoreMetadataFaults, ABadRequestEndsAlone) {
  with_client(runtime::sim_options(3),
              [](Env& env, auto&, MetadataClient& client, const fabric::QpAddress& server) {
                if (env.node() == 1) {
                  Stranger stranger(env);
                  for (const NodeId named : {1U, 2U}) {
                    MetadataRequest request;
                    request.about = 5;
                    request.from = stranger.port();
                    request.from.node = named;
                    request.from.lid = 77;  // no device
                    seal_metadata(request);
                    EXPECT_TRUE(stranger.send(server, std::as_bytes(std::span(&request, 1))));
                  }
                }
                runtime::node_barrier(env, "sent", kSecond, std::vector<NodeId>{1, 2});
                DctMeta meta;
                EXPECT_EQ(client.target_of(5, meta), MetaClient::Answer::kFound);
                EXPECT_EQ(client.repeated(), 0u);
              });
}

TEST(KrcoreMetadataFaults, AServerThatWasSilentIsAskedAgain) {
  with_client(runtime::sim_options(2), [](Env& env, auto& cluster, MetadataClient& client, auto&) {
    DctMeta meta;
    cluster.block(0, 1, 100 * kMillisecond);
    EXPECT_EQ(client.target_of(5, meta), MetaClient::Answer::kNoServer);
    const Time begin = env.now();
    EXPECT_EQ(client.target_of(5, meta), MetaClient::Answer::kNoServer);
    EXPECT_LT(env.now() - begin, kMillisecond) << "it rests";
    env.sleep_until(env.now() + 2 * kSecond);
    EXPECT_EQ(client.target_of(5, meta), MetaClient::Answer::kFound);
    EXPECT_EQ(meta, (DctMeta{12, 5, 0}));
  });
}

// A datagram that is too long for a receive ends the server's queue pair.
TEST(KrcoreMetadataFaults, ATooLongDatagramEndsNoServer) {
  with_client(runtime::sim_options(2),
              [](Env& env, auto&, MetadataClient& client, const fabric::QpAddress& server) {
                Stranger stranger(env);
                for (int i = 0; i < 3; ++i) {
                  const std::array<std::byte, 500> datagram{};
                  EXPECT_TRUE(stranger.send(server, datagram));
                  DctMeta meta;
                  EXPECT_EQ(client.target_of(5, meta), MetaClient::Answer::kFound) << i;
                }
              });
}

TEST(KrcoreMetadataFaults, AQueuePairThatFailsBeginsAnew) {
  fabric::sim::SimOptions options = runtime::sim_options(2);
  options.faults = FaultOptions::from_values({{"qp_error", 0.02}});
  std::uint64_t failed = 0;
  with_client(options, [&](Env& env, auto& cluster, MetadataClient& client, auto&) {
    for (std::uint32_t node = 0; node < 100; ++node) {
      DctMeta meta;
      MetaClient::Answer answer = MetaClient::Answer::kNoServer;
      for (int turn = 0; turn < 5 && answer == MetaClient::Answer::kNoServer; ++turn) {
        answer = client.target_of(node, meta);
        if (answer == MetaClient::Answer::kNoServer)
          env.sleep_until(env.now() + kSecond + kMillisecond);
      }
      EXPECT_EQ(answer, MetaClient::Answer::kFound) << node;
    }
    failed = cluster.fault_counters().reached[static_cast<std::size_t>(Fault::qp_error)];
  });
  EXPECT_GT(failed, 3u);
}

TEST(KrcoreMetadataMessages, ADamagedMessageIsRefused) {
  MetadataResponse response;
  response.ticket = 5;
  response.is_known = 1;
  seal_metadata(response);
  std::array<std::byte, sizeof response> bytes;
  std::memcpy(bytes.data(), &response, sizeof response);
  ASSERT_TRUE(parse_metadata<MetadataResponse>(bytes.data(), bytes.size()));
  EXPECT_FALSE(parse_metadata<MetadataResponse>(bytes.data(), bytes.size() - 1));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{4};
    EXPECT_FALSE(parse_metadata<MetadataResponse>(bytes.data(), bytes.size())) << i;
    bytes[i] ^= std::byte{4};
  }
}

}  // namespace
}  // namespace pyrdma::krcore
