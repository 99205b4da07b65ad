// A request counts if whoever sends it may send it: a client can neither speak for the coordinator
// nor for a server.
#include <functional>
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

/// What a request of a client leads to: its answers, and what the store then says.
struct AskedFor {
  std::vector<Bytes> answers;
  std::uint64_t refused = 0;  // requests that servers took for a stranger's
  std::vector<RecoveryReport> reports;
  ClusterView view;
};

/// A client sends a request to all servers, or to the coordinator, and waits for the answers.
AskedFor asked(Opcode opcode, const std::function<Bytes(OpenStore&)>& payload_of, bool is_to_server,
               Bugs bugs = {}) {
  const Options options = small_options("sim", Replication::kTailwind);
  SimCluster cluster(runtime::sim_options(options.servers + 3));
  AskedFor result;
  bool is_stored = false, is_asked = false;
  const auto ask = [&](Env& env, OpenStore& store) {
    Transport transport(env, options, ServerId::of_client(env.node(), 0, 0), 64);
    std::vector<std::unique_ptr<Incoming>> none;
    const auto turn = [&] {
      transport.poll(none);
      transport.keep_time();
      env.sleep_until(env.now() + 10 * kMicrosecond);
    };
    while (!is_stored) turn();
    std::vector<ServerId> to{{options.coordinator, Transport::kNewest}};
    if (is_to_server) {
      to.clear();
      for (const Server* server : store.servers) to.push_back(server->id());
    }
    const Bytes payload = payload_of(store);
    std::size_t under_way = to.size();
    for (const ServerId each : to)
      transport.call(each, opcode, payload, env.now() + 5 * kMillisecond,
                     [&](CallEnd end, ByteView answer) {
                       EXPECT_EQ(end, CallEnd::kAnswered);
                       result.answers.emplace_back(answer.begin(), answer.end());
                       --under_way;
                     });
    while (under_way != 0) turn();
    for (const Time until = env.now() + 5 * kMillisecond; env.now() < until;) turn();
    is_asked = true;
  };
  run_store(
      cluster, options, 100 * kMillisecond,
      [&](Env&, Client& client, OpenStore& store) {
        const std::uint64_t table = client.create_table("first", {kAskedFor});
        client.write(table, bytes_of(asked_key(0)), bytes_of(std::string(2000, 'v')));
        is_stored = true;
        client.run_until([&] { return is_asked; }, kForever);
        result.reports = store.coordinator->recoveries();
        result.view = store.coordinator->view();
      },
      bugs, ask);
  const BranchCounts& branches = cluster.branches();
  if (const auto at = branches.find("tailwind/asker_refused"); at != branches.end())
    result.refused = at->second;
  return result;
}

/// A request that a server would answer. Backups have segment 1 of the primary's log open.
Bytes request_of(Opcode opcode, OpenStore& store) {
  const ServerId primary = store.servers[kAskedFor]->id();
  const ReplicaName name{1, 1};
  switch (opcode) {
    case Opcode::kOpen:
      return encoded_bytes(OpenRequest{name, 0, false, true, bytes_of("first bytes")});
    case Opcode::kBackupWrite:
      return encoded_bytes(BackupWriteRequest{name, 0, bytes_of("more")});
    case Opcode::kSetVersion:
      return encoded_bytes(SetVersionRequest{name, 1});
    case Opcode::kClose:
      return encoded_bytes(CloseRequest{name, 4, 0, 0});
    case Opcode::kReadReplica:
      return encoded_bytes(
          ReadReplicaRequest{primary, 1, 2000, 0, store.coordinator->view().tablets});
    case Opcode::kRecover:
      return encoded_bytes(RecoverRequest{primary, store.coordinator->view().tablets, {}});
    case Opcode::kAskWhole:
      return {};
    default:
      return encoded_bytes(name);
  }
}

class TailwindStrangerSim : public testing::TestWithParam<Opcode> {};

TEST_P(TailwindStrangerSim, AClientCannotSpeakForAServer) {
  const auto request = [](OpenStore& store) { return request_of(GetParam(), store); };
  const AskedFor refused = asked(GetParam(), request, true);
  EXPECT_EQ(refused.refused, refused.answers.size());
  for (const Bytes& answer : refused.answers) EXPECT_TRUE(answer.empty());
  const AskedFor believed = asked(GetParam(), request, true, Bug::kSendersUnchecked);
  EXPECT_EQ(believed.refused, 0U);
  // A report of damage has no answer.
  if (GetParam() == Opcode::kDamaged) return;
  for (const Bytes& answer : believed.answers) EXPECT_FALSE(answer.empty());
}

INSTANTIATE_TEST_SUITE_P(All, TailwindStrangerSim,
                         testing::Values(Opcode::kOpen, Opcode::kBackupWrite, Opcode::kSetVersion,
                                         Opcode::kClose, Opcode::kFree, Opcode::kReadReplica,
                                         Opcode::kAskWhole, Opcode::kDamaged, Opcode::kRecover),
                         [](const auto& each) {
                           std::string name = to_string(each.param);
                           std::erase(name, ' ');
                           return name;
                         });

// Neither names a server in place of another, nor suspects one, nor changes what a log needs.
TEST(TailwindStrangerSim, TheCoordinatorDoesNotTakeAClientForAServer) {
  const auto name = [](OpenStore& store) {
    Bytes payload;
    ByteWriter(payload).put(store.servers[kAskedFor]->id().number());
    return payload;
  };
  const AskedFor suspected = asked(Opcode::kSuspect, name, false);
  EXPECT_TRUE(suspected.reports.empty());
  const auto next_life = [](OpenStore& store) {
    Bytes payload;
    ServerId next = store.servers[kAskedFor]->id();
    ++next.life;
    ByteWriter(payload).put(next.number());
    return payload;
  };
  const AskedFor enlisted = asked(Opcode::kEnlist, next_life, false);
  ASSERT_EQ(enlisted.answers.size(), 1U);
  EXPECT_TRUE(enlisted.answers[0].empty());
  EXPECT_EQ(enlisted.view.servers.size(), 4U);
  const AskedFor leased = asked(
      Opcode::kRenew, [](OpenStore&) { return Bytes(); }, false);
  ASSERT_EQ(leased.answers.size(), 1U);
  EXPECT_EQ(leased.answers[0], Bytes{std::byte{0}});
  const auto version = [](OpenStore&) {
    Bytes payload;
    ByteWriter out(payload);
    out.put(std::uint64_t{1});
    out.put(std::uint64_t{1});
    return payload;
  };
  const AskedFor raised = asked(Opcode::kRaiseVersion, version, false);
  ASSERT_EQ(raised.answers.size(), 1U);
  EXPECT_EQ(raised.answers[0], Bytes{std::byte{0}});
}

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
