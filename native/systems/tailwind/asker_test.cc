// A request counts if whoever sends it may send it: a client can neither speak for the coordinator
// nor for a server.
#include <string>
#include <vector>

#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::SimCluster;

constexpr int kAskedKeys = 100;
constexpr NodeId kAskedFor = 0;

std::string asked_key(int key) { return "key " + std::to_string(key); }

/// What a client that sends a request to all servers but the primary has for an answer, and what is
/// left of the objects of the primary after its death.
struct LeftAfter {
  std::size_t answered = 0;  // bytes
  int readable = 0;
};

LeftAfter after(Opcode opcode, Bugs bugs = {}) {
  Options options = small_options("sim", Replication::kTailwind);
  options.servers = options.coordinator = 5;
  options.replicas = 3;
  SimCluster cluster(runtime::sim_options(options.servers + 3));
  LeftAfter left;
  bool is_stored = false, is_asked = false;
  const auto ask = [&](Env& env, OpenStore& store) {
    Transport transport(env, options, ServerId::of_client(env.node(), 0, 0), 64);
    std::vector<std::unique_ptr<Incoming>> none;
    std::uint32_t under_way = 0;
    const auto turn = [&] {
      transport.poll(none);
      transport.keep_time();
      env.sleep_until(env.now() + 10 * kMicrosecond);
    };
    while (!is_stored) turn();
    Bytes payload;
    ByteWriter out(payload);
    if (opcode == Opcode::kUpdate) {  // a view in which the primary is gone
      ClusterView view = store.coordinator->view();
      view.epoch += 100;
      std::erase_if(view.servers, [](const auto& each) { return each.id.node == kAskedFor; });
      view.put(out);
    } else {
      out.put(store.servers[kAskedFor]->id().number());
    }
    for (NodeId node = 1; node < options.servers; ++node) {
      ++under_way;
      transport.call(store.servers[node]->id(), opcode, payload, env.now() + 5 * kMillisecond,
                     [&](CallEnd, ByteView answer) {
                       left.answered += answer.size();
                       --under_way;
                     });
    }
    while (under_way != 0) turn();
    is_asked = true;
  };
  run_store(
      cluster, options, 100 * kMillisecond,
      [&](Env&, Client& client, OpenStore&) {
        const std::uint64_t table = client.create_table("first", {kAskedFor});
        for (int key = 0; key < kAskedKeys; ++key)
          client.write(table, bytes_of(asked_key(key)), bytes_of(std::string(2000, 'v')));
        is_stored = true;
        client.run_until([&] { return is_asked; }, kForever);
        try {
          client.write(table, bytes_of(asked_key(0)), bytes_of(std::string(2000, 'v')));
          cluster.kill(kAskedFor);
          for (int key = 0; key < kAskedKeys; ++key)
            left.readable +=
                client.read(table, bytes_of(asked_key(key))).status == StoreStatus::kOk;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kTimeout);
        }
      },
      bugs, ask);
  return left;
}

class TailwindAskerSim : public testing::TestWithParam<Opcode> {};

TEST_P(TailwindAskerSim, AClientCannotSpeakForTheCoordinator) {
  const LeftAfter left = after(GetParam());
  EXPECT_EQ(left.answered, 0U);
  EXPECT_EQ(left.readable, kAskedKeys);
}

TEST_P(TailwindAskerSim, WhoeverIsBelievedHarmsTheStore) {
  EXPECT_LT(after(GetParam(), Bug::kSendersUnchecked).readable, kAskedKeys);
}

INSTANTIATE_TEST_SUITE_P(All, TailwindAskerSim,
                         testing::Values(Opcode::kForget, Opcode::kStartReading, Opcode::kUpdate),
                         [](const auto& each) {
                           std::string name = to_string(each.param);
                           std::erase(name, ' ');
                           return name;
                         });

// Every request has somebody who may send it, and those that free or reveal what a backup has are
// not for all.
TEST(TailwindAsker, OnlyClientsRequestsAreForAll) {
  const std::vector<Opcode> of_all{Opcode::kPing, Opcode::kRead, Opcode::kWrite, Opcode::kRemove,
                                   // Those to the coordinator, which looks at their senders itself.
                                   Opcode::kEnlist, Opcode::kRenew, Opcode::kSuspect,
                                   Opcode::kRaiseVersion, Opcode::kCreateTable, Opcode::kLocate};
  for (std::uint8_t number = 0; number < static_cast<std::uint8_t>(Opcode::kCount); ++number) {
    const auto opcode = static_cast<Opcode>(number);
    EXPECT_EQ(asker_of(opcode) == Asker::kAnyone, std::ranges::find(of_all, opcode) != of_all.end())
        << to_string(opcode);
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
