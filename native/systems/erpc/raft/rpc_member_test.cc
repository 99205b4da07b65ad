// Members over RPCs in the simulator: strangers, long snapshots, and a group that changes.
#include "systems/erpc/raft/rpc_member.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error_test.h"
#include "env/storage.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "systems/erpc/raft/kv_client.h"
#include "systems/erpc/raft/peer_sessions.h"

namespace pyrdma::erpc::raft {
namespace {

#define PYRDMA_NEED_MEMBERS() \
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem()

fabric::sim::SimOptions sim_nodes(std::uint32_t nodes) {
  fabric::sim::SimOptions options;
  options.nodes = nodes;
  options.profile = fabric::sim::test_profile();
  options.time_limit = 500 * kSecond;
  return options;
}

/// A client at a node of its own.
class TestClient {
 public:
  TestClient(Env& env, const std::vector<NodeId>& members)
      : endpoint_(env, {}),
        sessions_(endpoint_, members),
        logic_(9, {members, 200 * kMillisecond, 20 * kMillisecond, {}}) {}
  /// Sends a request and waits for its response; empty without one.
  Bytes call(NodeId to, std::uint8_t type, ByteView bytes) {
    std::optional<SessionId> session;
    const Time deadline = endpoint_.env().now() + kSecond;
    endpoint_.run_until([&] { return (session = sessions_.find(to)).has_value(); }, deadline);
    if (!session) return {};
    MsgBuffer* const request = endpoint_.allocate(static_cast<std::uint32_t>(bytes.size()));
    MsgBuffer* const response = endpoint_.allocate(256);
    std::ranges::copy(bytes, request->data());
    int state = 0;
    endpoint_.enqueue_request({*session, type, request, response,
                               [](void* context, std::uint64_t, erpc::Outcome outcome) {
                                 *static_cast<int*>(context) =
                                     outcome == erpc::Outcome::kOk ? 1 : 2;
                               },
                               &state, 0});
    endpoint_.run_until([&] { return state != 0; }, deadline + 10 * kSecond);
    if (state != 1) return {};
    return {response->bytes().begin(), response->bytes().end()};
  }
  bool put(std::uint8_t key, Time limit) {
    Key name{};
    name[0] = std::byte{key};
    const Time end = endpoint_.env().now() + limit;
    logic_.put(endpoint_.env().now(), name, std::array<std::byte, 8>{});
    while (endpoint_.env().now() < end) {
      const auto bytes = logic_.request(endpoint_.env().now());
      if (!bytes) {
        endpoint_.run_until([] { return false; }, std::min(end, logic_.next()));
        continue;
      }
      const Bytes answer = call(logic_.target(), kCommandRequest, *bytes);
      if (answer.empty())
        logic_.failed(endpoint_.env().now());
      else if (logic_.answer(endpoint_.env().now(), answer))
        return true;
    }
    logic_.abandon();
    return false;
  }

 private:
  Endpoint endpoint_;
  PeerSessions sessions_;
  KvClient logic_;
};

// One AppendResult with a term of 2^48 ended the group for good. Now neither a client nor a client
// that takes a member's name is heard.
TEST(ErpcRaftRpc, AClientIsNoMember) {
  PYRDMA_NEED_MEMBERS();
  fabric::sim::SimCluster cluster(sim_nodes(4));
  bool stop = false;
  std::array<std::uint64_t, 3> terms{};
  std::uint64_t strangers = 0;
  cluster.run([&](Env& env) {
    if (env.node() < 3) {
      RpcMemberOptions options;
      options.member.group = {0, 1, 2};
      RpcMember member(env, options);
      member.run_until([&] { return stop; }, env.now() + 60 * kSecond);
      terms[env.node()] = member.member().term();
      strangers += member.links().counters().strangers;
      return;
    }
    TestClient client(env, {0, 1, 2});
    EXPECT_TRUE(client.put(1, 5 * kSecond));
    const Bytes message = encode(AppendResult{kMaxNumber, 0, 0});
    Bytes in_a_name = message;
    for (const NodeId member : {0U, 1U, 2U}) {
      in_a_name.insert(in_a_name.begin(), 4, std::byte{0});
      client.call(member, kMessageRequest, message);
      client.call(member, kMessageRequest, in_a_name);
    }
    EXPECT_TRUE(client.put(2, 5 * kSecond));
    stop = true;
  });
  for (const std::uint64_t term : terms) EXPECT_LT(term, 10u);
  EXPECT_EQ(strangers, 6u);
}

/// A state of a given size.
class LargeState final : public StateMachine {
 public:
  explicit LargeState(std::size_t bytes) : bytes_(bytes) {}
  KvAnswer apply(std::uint64_t, ByteView) override {
    KvAnswer answer;
    answer.status = KvStatus::kDone;
    return answer;
  }
  Bytes snapshot() const override { return Bytes(bytes_, std::byte{5}); }
  bool restore(ByteView bytes) override { return bytes.size() == bytes_; }

 private:
  const std::size_t bytes_;
};

struct Transfer {
  bool installed = false;
  std::uint64_t parts = 0, malformed = 0;
  std::uint64_t joined = 0;
};

// Node 2 comes late, and needs a snapshot of 2 MiB in parts of 128 KiB. Each takes longer than the
// time after which libraft sends the whole anew.
Transfer transfer_snapshot(Bug bug) {
  fabric::sim::SimCluster cluster(sim_nodes(3));
  bool go = false, stop = false;
  Transfer result;
  cluster.run([&](Env& env) {
    while (env.node() == 2 && !go) env.sleep_until(env.now() + kMillisecond);
    LargeState state(2 * kMiB);
    Options endpoint_options;
    endpoint_options.max_message = 2 * kMaxPayload;
    std::unique_ptr<RpcLinks> links;
    Endpoint endpoint(env, endpoint_options, 0);
    std::vector<NodeId> peers{0, 1, 2};
    std::erase(peers, env.node());
    links = std::make_unique<RpcLinks>(endpoint, peers);
    MemberOptions options;
    options.group = {0, 1, 2};
    options.durability = Durability::kMemory;
    options.unit = 10 * kMicrosecond;
    options.heartbeat = 100 * kMicrosecond;
    options.election_timeout = 20 * kMillisecond;
    options.snapshot_threshold = 16;
    options.snapshot_trailing = 4;
    options.snapshot_timeout = 100 * kMicrosecond;
    options.max_message = RpcLinks::max_message(endpoint.options());
    options.bugs = bug;
    auto member = open_member(env, *links, state, options);
    links->connect_to(*member);
    int proposed = 0, done = 0;
    const Bytes command(40, std::byte{1});
    const Time end = env.now() + 40 * kMillisecond;
    while (!stop && env.now() < end) {
      const auto has_work = [&] {
        return stop || links->has_failures() || member->next_turn() <= endpoint.recent();
      };
      endpoint.run_until(has_work, std::min(env.now() + kMillisecond, member->next_turn()));
      if (links->has_failures()) links->turn();
      if (member->next_turn() <= env.now()) member->turn(env.now());
      endpoint.flush();
      if (member->leads() && proposed < 60 && proposed == done) {
        ++proposed;
        member->propose(command, [&](Outcome, const KvAnswer&) { ++done; });
      }
      go = go || done >= 60;
      if (env.node() != 2 || member->counters().snapshots_installed == 0) continue;
      result.installed = stop = true;
    }
    result.parts += links->counters().parts;
    result.malformed += links->counters().malformed;
    member.reset();
    endpoint.close();
  });
  if (cluster.branches().contains("erpc/raft/transfer_goes_on"))
    result.joined = cluster.branches().at("erpc/raft/transfer_goes_on");
  return result;
}

TEST(ErpcRaftRpc, ASnapshotThatIsOnItsWayGoesOn) {
  PYRDMA_NEED_MEMBERS();
  const Transfer transfer = transfer_snapshot(Bug::kNone);
  EXPECT_TRUE(transfer.installed);
  EXPECT_EQ(transfer.malformed, 0u);
  EXPECT_GT(transfer.joined, 0u);
  EXPECT_LE(transfer.parts, 2 * kMiB / (2 * kMaxPayload) + 2);
  EXPECT_FALSE(transfer_snapshot(Bug::kTransferRestarted).installed);
}

/// Steps of a group that replaces node 2, which has lost all.
struct Replacement {
  std::uint32_t life = 0;  // of node 2
  bool removed = false, added = false, is_voter = false, over = false;
};

// Runs one change after the other at whoever leads. A change that is refused is tried again.
void change_group(Env& env, RpcMember& host, Replacement& group) {
  Member& member = host.member();
  bool busy = false;
  Time next = 0;
  const auto end = [&](bool& flag) {
    return [&busy, &flag](Outcome outcome) {
      busy = false;
      flag = flag || outcome == Outcome::kDone;
    };
  };
  while (!group.over) {
    host.run_until([&] { return group.over; }, env.now() + kMillisecond);
    if (!member.leads() || busy || group.life == 0 || env.now() < next) continue;
    next = env.now() + 5 * kMillisecond;
    Outcome begun = Outcome::kInvalid;
    if (!group.removed)
      begun = member.remove(2, end(group.removed));
    else if (group.life == 2 && !group.added)
      begun = member.add(2, end(group.added));
    else if (group.added && !group.is_voter)
      begun = member.assign(2, Role::kVoter, end(group.is_voter));
    busy = begun == Outcome::kAccepted;
  }
}

class ErpcRaftReplacement : public testing::TestWithParam<Durability> {};

// A host loses its power, and with it all that it has in memory; or its store is damaged. README
// and errors say: remove the member, and add it again.
TEST_P(ErpcRaftReplacement, AMemberIsRemovedAndAddedAgain) {
  PYRDMA_NEED_MEMBERS();
  fabric::sim::SimCluster cluster(sim_nodes(5));
  cluster.expect_restart(2);
  Replacement group;
  std::uint64_t applied = 0;
  bool is_refused = false;
  cluster.run([&](Env& env) {
    RpcMemberOptions options;
    options.member.durability = GetParam();
    options.member.snapshot_threshold = 8;
    options.member.snapshot_trailing = 2;
    if (env.node() == 4) {
      env.sleep_until(env.now() + 300 * kMillisecond);
      TestClient client(env, {0, 1, 2});
      for (std::uint8_t i = 0; i < 20; ++i) EXPECT_TRUE(client.put(i, 5 * kSecond));
      cluster.kill(2, fabric::sim::Crash::kHost);
      group.life = 1;
      while (!group.removed) EXPECT_TRUE(client.put(30, 5 * kSecond));
      cluster.restart(2);
      while (!group.is_voter && env.now() < 60 * kSecond) client.put(31, 5 * kSecond);
      EXPECT_TRUE(group.is_voter);
      // The group needs the new member now.
      cluster.kill(1, fabric::sim::Crash::kHost);
      EXPECT_TRUE(client.put(32, 10 * kSecond));
      group.over = true;
      return;
    }
    if (env.node() == 3) return;  // no member, and nobody's
    if (env.node() == 2 && env.incarnation() != 0) {
      const auto damage = [&](const std::string& name) {
        const auto file = env.storage().open(name);
        file->write(0, Bytes(100, std::byte{9}));
        file->sync();
      };
      if (GetParam() == Durability::kDisk) {
        damage("raft.2.state");
        options.member.group = {0, 1, 2};
        is_refused = bool(
            refuses([&] { RpcMember(env, options); }, ErrorCode::kUnavailable, {"raft.2.state"}));
        remove_store(env);
      }
      options.member.group = {};
      options.contacts = {0, 1};
      RpcMember member(env, options);
      group.life = 2;
      member.run_until([&] { return group.over; }, env.now() + 60 * kSecond);
      applied = member.member().applied_index();
      EXPECT_EQ(member.member().servers().size(), 3u);
      return;
    }
    options.member.group = {0, 1, 2};
    RpcMember member(env, options);
    change_group(env, member, group);
  });
  EXPECT_GT(applied, 20u);
  EXPECT_EQ(is_refused, GetParam() == Durability::kDisk);
}

INSTANTIATE_TEST_SUITE_P(Erpc, ErpcRaftReplacement,
                         testing::Values(Durability::kMemory, Durability::kDisk),
                         [](const auto& each) {
                           return each.param == Durability::kDisk ? "disk" : "memory";
                         });

}  // namespace
}  // namespace pyrdma::erpc::raft
