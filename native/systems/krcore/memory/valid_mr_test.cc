// Lookups of remote regions beside a reset of their queue pair (section 4.2).
#include "runtime/node_barrier.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

/// More than a core has places for lookups.
constexpr int kResets = 200;

// A thread resets the queue pair at each moment of the lookup that a post of another thread waits
// for. Each post returns, and the places of all lookups are free again.
TEST(KrcoreValidMrSim, AResetEndsALookupAndItsPlaceComesBack) {
  fabric::sim::SimOptions bounded = runtime::sim_options(2);
  bounded.time_limit = 10 * kSecond;  // a lookup without a place waits for ever
  fabric::sim::SimCluster cluster(bounded);
  fabric::RemoteRegion there;
  bool is_over = false;
  int interrupted = 0;
  cluster.run([&](Env& env) {
    Service service(env, one_core());
    App app(service);
    const Registration own = app.reg_mr(4096);
    if (env.node() == 1) {
      there = {own.addr, own.bytes, own.key, env.node()};
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    while (there.length == 0) env.sleep_until(env.now() + kMillisecond);
    const fabric::Sge sge = piece(own, 0, 8);
    const fabric::WorkRequest read = one_sided(Opcode::kRead, sge, there.addr, there.rkey);
    for (int i = 0; i < kResets; ++i) {
      const Queue queue = app.create_queue();
      app.connect(queue, 1, 7);
      service.forget_regions();
      bool has_returned = false;
      PushResult pushed;
      const auto poster = env.spawn("poster", [&] {
        pushed = service.push(queue, {&read, 1});
        has_returned = true;
      });
      env.sleep_until(env.now() + i % 40 * 100);  // up to 4 us: a lookup takes 3
      service.reset(queue);
      ASSERT_TRUE(env.poll_until([&] { return has_returned; }, env.now() + kSecond)) << i;
      interrupted += pushed.error != fabric::PostError::kNone;
      app.destroy(queue);
    }
    const Queue queue = app.create_queue();
    app.connect(queue, 1, 7);
    service.forget_regions();
    EXPECT_EQ(do_one(app, queue, read).status, Status::kSuccess);
    is_over = true;
  });
  EXPECT_GT(interrupted, kResets / 2);
}

// The next life of a node may give its memory the physical keys of the last one. So what was
// checked of the last life is checked again, however long its lease is.
TEST(KrcoreValidMrSim, ALeaseEndsWithTheLifeOfTheNode) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  constexpr NodeId kOwner = 2, kReader = 1;
  fabric::RemoteRegion first, second;
  bool is_over = false;
  cluster.run([&](Env& env) {
    Options options = one_core();
    options.lease = kSecond;
    Service service(env, options);
    App app(service);
    const Registration own = app.reg_mr(4096);
    const auto await = [&](const fabric::RemoteRegion& region) {
      while (region.length == 0) env.sleep_until(env.now() + 100 * kMicrosecond);
    };
    if (env.node() == kOwner) {
      (env.incarnation() == 0 ? first : second) = {own.addr, own.bytes, own.key, env.node()};
    }
    if (env.node() != kReader) {
      while (!is_over) env.sleep_until(env.now() + kMillisecond);
      return;
    }
    await(first);
    const auto read_by = [&](Queue queue, const fabric::RemoteRegion& region) {
      app.connect(queue, kOwner, 7);
      const fabric::Sge sge = piece(own, 0, 8);
      return do_one(app, queue, one_sided(Opcode::kRead, sge, region.addr, region.rkey)).status;
    };
    const auto read = [&](const fabric::RemoteRegion& region) {
      return read_by(app.create_queue(), region);
    };
    const Queue kept = app.create_queue();
    EXPECT_EQ(read_by(kept, first), Status::kSuccess);
    cluster.kill(kOwner);
    cluster.restart(kOwner);
    await(second);
    // The first request to the next life tells that the last one has ended.
    for (int i = 0; i < 2 && read(second) != Status::kSuccess; ++i) {
    }
    EXPECT_EQ(read(second), Status::kSuccess);
    const std::uint64_t misses = service.counters().region_misses.load();
    EXPECT_EQ(read(first), Status::kRemoteAccess);
    EXPECT_EQ(service.counters().region_misses.load(), misses + 1);
    // Nor does a queue pair use what it has found for its last connection.
    service.reset(kept);
    EXPECT_EQ(read_by(kept, first), Status::kRemoteAccess);
    EXPECT_EQ(service.counters().region_misses.load(), misses + 2);
    is_over = true;
  });
}

}  // namespace
}  // namespace pyrdma::krcore
