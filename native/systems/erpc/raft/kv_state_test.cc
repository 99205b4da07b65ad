// The replicated state, its client, and the store of a member, without a group.
#include "systems/erpc/raft/kv_state.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/error_test.h"
#include "systems/erpc/fuzz/raft/invariants.h"
#include "systems/erpc/raft/kv_client.h"
#include "systems/erpc/raft/stable_store.h"
#include "systems/erpc/raft/world_test.h"

namespace pyrdma::erpc::raft {
namespace {

/// One node with a disk.
struct Machine {
  Machine() : env(scheduler, 0, 1, 1, 1, costs, 0, pyrdma::kNever, trace, branches) {}
  SimCpuCosts costs;
  SimScheduler scheduler;
  std::vector<std::string> trace;
  BranchCounts branches;
  SimEnv env;
};

Bytes put_bytes(std::uint64_t client, std::uint64_t sequence, std::uint8_t key,
                std::uint8_t value) {
  KvCommand command;
  command.operation = KvOperation::kPut;
  command.client = client;
  command.sequence = sequence;
  command.key[0] = static_cast<std::byte>(key);
  command.value = Value::of(Bytes(3, static_cast<std::byte>(value)));
  return encode(command);
}

TEST(ErpcRaftState, APutTakesEffectOnceAndASnapshotKeepsThat) {
  Machine machine;
  KvState state(machine.env, {});
  EXPECT_EQ(state.apply(1, put_bytes(1, 1, 5, 9)).version, 1u);
  EXPECT_EQ(state.apply(2, put_bytes(2, 1, 5, 8)).version, 2u);
  EXPECT_EQ(state.apply(3, put_bytes(1, 1, 5, 9)).version, 1u) << "the first result, again";
  EXPECT_EQ(state.apply(4, put_bytes(2, 3, 6, 7)).version, 1u);
  EXPECT_EQ(state.apply(5, put_bytes(2, 2, 6, 7)).status, KvStatus::kStale);
  EXPECT_EQ(state.apply(6, Bytes(7, std::byte{1})).status, KvStatus::kMalformed);
  KvState copy(machine.env, {});
  ASSERT_TRUE(copy.restore(state.snapshot()));
  EXPECT_EQ(copy.snapshot(), state.snapshot());
  EXPECT_EQ(copy.apply(7, put_bytes(2, 3, 6, 7)).version, 1u) << "the session is in the snapshot";
  EXPECT_EQ(copy.keys(), 2u);
  EXPECT_EQ(copy.repeated(), 1u);
}

TEST(ErpcRaftState, ATableOfSessionsThatIsFullRefusesOneMore) {
  Machine machine;
  KvState state(machine.env, {.max_clients = 2, .bugs = {}, .observer = nullptr});
  EXPECT_EQ(state.apply(1, put_bytes(1, 1, 5, 9)).status, KvStatus::kDone);
  EXPECT_EQ(state.apply(2, put_bytes(2, 1, 5, 9)).status, KvStatus::kDone);
  EXPECT_EQ(state.apply(3, put_bytes(3, 1, 5, 9)).status, KvStatus::kTooManyClients);
  EXPECT_EQ(state.apply(4, put_bytes(2, 2, 5, 9)).version, 3u);
}

TEST(ErpcRaftState, ABrokenSnapshotChangesNothing) {
  Machine machine;
  KvState state(machine.env, {});
  for (std::uint8_t i = 0; i < 20; ++i) state.apply(i + 1u, put_bytes(i, 1, i, i));
  const Bytes whole = state.snapshot();
  KvState other(machine.env, {});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(other.restore(ByteView(whole).first(size)));
  Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes = whole;
    bytes[rng.below(bytes.size())] ^= static_cast<std::byte>(1u << rng.below(8));
    KvState target(machine.env, {});
    if (target.restore(bytes)) {
      EXPECT_EQ(target.keys(), 20u);
    } else {
      EXPECT_EQ(target.keys(), 0u);
    }
  }
}

TEST(ErpcRaftClient, ARetryKeepsItsNumberAndFollowsTheHint) {
  KvClient client(9, {.members = {4, 5, 6}, .bugs = {}});
  EXPECT_FALSE(client.request(0));
  client.put(0, Key{}, {});
  EXPECT_TRUE(refuses([&] { client.get(0, Key{}); }, ErrorCode::kInvalidArgument, {"9"}));
  const auto first = client.request(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(client.target(), 4u);
  EXPECT_FALSE(client.request(kMillisecond)) << "the first try is under way";
  KvAnswer refusal;
  refusal.status = KvStatus::kNotLeader;
  refusal.leader = 7;  // node 6
  refusal.sequence = 1;
  EXPECT_FALSE(client.answer(kMillisecond, encode(refusal)));
  EXPECT_EQ(client.request(kMillisecond), first);
  EXPECT_EQ(client.target(), 6u);
  EXPECT_EQ(client.request(kSecond), first) << "after the timeout";
  EXPECT_EQ(client.target(), 4u);
  KvAnswer old;
  old.status = KvStatus::kDone;
  old.sequence = 0;
  EXPECT_FALSE(client.answer(kSecond, encode(old)));
  EXPECT_EQ(client.dropped(), 1u);
  old.sequence = 1;
  EXPECT_TRUE(client.answer(kSecond, encode(old)));
  EXPECT_FALSE(client.busy());
}

TEST(ErpcRaftStore, ATornTailNeverComesBack) {
  // Entries 2 and 3 are written and lost in part; other entries take their places.
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Machine machine;
    FaultOptions options;
    options[Fault::disk_torn].rate = 0.5;
    FaultCounters counters;
    FaultStream faults(options, seed, 0, counters);
    machine.env.disk().set_faults(&faults);
    const Bytes old(700, std::byte{1}), fresh(700, std::byte{2});
    for (int round = 0; round < 3; ++round) {
      StableStore store(machine.env, Durability::kDisk, {});
      store.load();
      if (round == 0) {
        store.write_state(1, 0);
        store.append({1, EntryType::kCommand, old});
        store.sync();
        for (int i = 0; i < 2; ++i) store.append({1, EntryType::kCommand, old});
        const FaultOptions broken = [] {
          FaultOptions all;
          all[Fault::disk_io_error].rate = 1;
          return all;
        }();
        FaultStream failing(broken, seed, 0, counters);
        machine.env.disk().set_faults(&failing);
        EXPECT_THROW(store.sync(), Error);
        machine.env.disk().set_faults(&faults);
        machine.env.disk().crash(true);
        continue;
      }
      ASSERT_GE(store.last_index(), 1u) << "entry 1 was acknowledged";
      if (round == 1) {
        store.truncate(2);
        store.append({2, EntryType::kCommand, fresh});
        store.sync();
        continue;
      }
      ASSERT_EQ(store.last_index(), 2u) << "seed " << seed;
      EXPECT_EQ(store.read(2).payload, fresh);
      EXPECT_EQ(store.read(1).payload, old);
    }
  }
}

TEST(ErpcRaftMember, BadOptionsAreNamed) {
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem();
  WorldOptions options;
  options.member.heartbeat = 80 * kMillisecond;
  EXPECT_TRUE(refuses([&] { World{options}; }, ErrorCode::kInvalidArgument, {"80000000"}));
  options = {};
  options.member.max_message = 10;
  EXPECT_TRUE(refuses([&] { World{options}; }, ErrorCode::kInvalidArgument, {"10"}));
}

}  // namespace
}  // namespace pyrdma::erpc::raft
