// Posts that meet a change of the queue pair (algorithm 2, section 4.6).
#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

// A list finds no free rows, so its post polls. The completions end a transfer to another core
// before the list has rows. Its requests go out on the new core without another call.
TEST(KrcorePushSim, AListFollowsTheTransferThatItsPollEnds) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    Options options;
    options.cores = 2;
    options.arena_bytes = 1 << 20;
    options.rc_policy = RcPolicy::kNever;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    const std::string key = "region";
    fabric::Rendezvous& rendezvous = env.device().rendezvous();
    if (env.node() == 1) {
      rendezvous.publish_value(key, fabric::RemoteRegion{own.addr, own.bytes, own.key, env.node()});
    } else {
      const auto there =
          rendezvous.await_value<fabric::RemoteRegion>(key, env.now() + runtime::kSetupTimeout);
      VqpOptions small;
      small.send_entries = 4;
      const Queue queue = app.create_queue(small);
      app.connect(queue, 1, 7);
      const fabric::Sge sge = piece(own, 0, 8);
      std::vector<fabric::WorkRequest> list(4,
                                            one_sided(Opcode::kRead, sge, there.addr, there.rkey));
      for (fabric::WorkRequest& each : list) each.flags = 0;
      ASSERT_EQ(app.push(queue, list).accepted, 4u);
      service.start_transfer(queue, (env.core() + 1) % 2);
      env.sleep_until(env.now() + 50 * kMicrosecond);
      fabric::WorkRequest last = one_sided(Opcode::kRead, sge, there.addr, there.rkey, 5);
      ASSERT_EQ(app.push(queue, {&last, 1}).accepted, 1u);
      EXPECT_EQ(service.counters().transfers.load(), 1u);
      fabric::Completion done;
      std::size_t taken = 0;
      for (const Time end = env.now() + kMillisecond; taken == 0 && env.now() < end;) {
        env.sleep_until(env.now() + 10 * kMicrosecond);
        service.poll_physical({&queue, 1});
        taken = service.take(queue, {&done, 1});
      }
      ASSERT_EQ(taken, 1u);
      EXPECT_EQ(done.wr_id, 5u);
      EXPECT_EQ(done.status, Status::kSuccess);
    }
    runtime::node_barrier(env, "done");
  });
}

// A list needs room, and polls. The queue pair fails by what its poll finds, and its next physical
// one has room at once. Nothing of the list is posted behind what has failed.
TEST(KrcorePushSim, AListLooksAgainAfterThePollThatMakesItsRoom) {
  constexpr int kRounds = 40;  // the service itself polls in some
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Registration words;
  int failed = 0;
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.send_entries = 4;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    if (env.node() == 1) words = own;
    runtime::node_barrier(env, "up");
    for (int round = 0; env.node() == 0 && round < kRounds; ++round) {
      const Queue queue = app.create_queue();
      app.connect(queue, 1, 7);
      const fabric::Sge sge = piece(own, 0, 8);
      const auto request = [&](Opcode opcode, std::uint64_t word) {
        return one_sided(opcode, sge, words.addr + 8 * word, words.key);
      };
      EXPECT_EQ(do_one(app, queue, request(Opcode::kRead, 0)).status, Status::kSuccess);
      const fabric::WorkRequest first[] = {request(Opcode::kRead, 0), request(Opcode::kWrite, 1),
                                           request(Opcode::kWrite, 1), request(Opcode::kWrite, 1)};
      EXPECT_EQ(app.push(queue, first).accepted, 4u);
      EXPECT_TRUE(service.break_physical(queue, Service::Break::kUnderRequests));
      env.sleep_until(env.now() + (1 + round) * kMicrosecond);
      std::memset(own.data, 9, 8);
      const fabric::WorkRequest second[] = {request(Opcode::kWrite, 2), request(Opcode::kWrite, 2)};
      EXPECT_EQ(app.push(queue, second).accepted, 2u);
      fabric::Completion done[6];
      EXPECT_EQ(app.wait(queue, done, env.now() + kSecond), 6u);
      std::memset(own.data, 0, 8);
      failed += done[3].status != Status::kSuccess;
      EXPECT_EQ(words.data[16] == std::byte{9}, done[3].status == Status::kSuccess) << round;
      words.data[16] = std::byte{0};
      app.destroy(queue);
      env.sleep_until(env.now() + kMillisecond);  // both queue pairs of the pool serve again
    }
    runtime::node_barrier(env, "done");
  });
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace pyrdma::krcore
