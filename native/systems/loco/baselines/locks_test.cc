// The locks of the baselines exclude too.
#include <cstdlib>

#include "systems/loco/barrier.h"
#include "systems/loco/baselines/mpi_windows.h"
#include "systems/loco/baselines/test_and_set_lock.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

TEST_P(LocoWorlds, MpiWindowsExcludeAndRegisterEachPart) {
  ManagerOptions manager_options;
  manager_options.callers = 2;
  for (const bool merged : {false, true}) {
    run(
        2,
        [&](Manager& manager) {
          MpiWindows windows(manager, "mpi", {3, 2, 16, merged});
          Barrier barrier(manager, "bar");
          manager.wait_for_ready();
          windows.open(manager.caller(0));
          // Parts with registrations of their own lie on pages of their own.
          EXPECT_EQ(std::abs(windows.local(2, 1) - windows.local(2, 0)) < 4096, merged);
          const auto body = [&](Caller& me) {
            for (int i = 0; i < 30; ++i) {
              windows.lock(me, 2, 3);
              MemRef word = me.block(8);
              EXPECT_EQ(windows.get(me, 2, 3, 8, word).wait(), fabric::Status::kSuccess);
              ++*word.as<std::uint64_t>();
              windows.unlock(me, 2, 3, windows.put(me, 2, 3, 8, word));
            }
          };
          {
            const auto second = manager.env().spawn("second", [&] { body(manager.caller(1)); });
            body(manager.caller(0));
          }
          Caller& me = manager.caller(0);
          barrier.wait(me);
          MemRef word = me.block(8);
          EXPECT_EQ(windows.get(me, 2, 3, 8, word).wait(), fabric::Status::kSuccess);
          EXPECT_EQ(*word.as<std::uint64_t>(), 120U);
          barrier.wait(me);
        },
        manager_options);
  }
}

TEST_P(LocoWorlds, TestAndSetLocksExclude) {
  run(3, [](Manager& manager) {
    TestAndSetLocks locks(manager, "locks", 5);
    SharedRegion region(manager, "data", 8, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    const NodeId host = locks.host_of(4);
    MemRef word = me.block(8);
    for (int i = 0; i < 30; ++i) {
      locks.acquire(me, 4);
      EXPECT_EQ(region.read(me, host, 0, word.sge(8)).wait(), fabric::Status::kSuccess);
      ++*word.as<std::uint64_t>();
      fabric::WorkRequest write;
      const fabric::Sge from = word.sge(8);
      write.sges = &from;
      write.sge_count = 1;
      write.remote_addr = region.at(host).addr;
      write.rkey = region.at(host).rkey;
      EXPECT_EQ(locks.release(me, 4, {&write, 1}).wait(), fabric::Status::kSuccess);
    }
    barrier.wait(me);
    EXPECT_EQ(region.read(me, host, 0, word.sge(8)).wait(), fabric::Status::kSuccess);
    EXPECT_EQ(*word.as<std::uint64_t>(), 90U);
    barrier.wait(me);
  });
}

}  // namespace
}  // namespace pyrdma::loco
