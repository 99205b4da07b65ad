// The reader-writer lock of the index. The simulator lets no other thread run while a thread looks
// into the table or changes it, so searches do not miss the lock there. Here the threads sleep
// inside.
#include "systems/loco/kvstore/rw_lock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"

namespace pyrdma::loco {
namespace {

class RwLockSim : public testing::Test {
 protected:
  /// Runs threads that each take the lock ten times, and stay inside for a while.
  void run(std::uint32_t readers, std::uint32_t writers) {
    fabric::sim::SimOptions options;
    options.nodes = 1;
    options.profile = fabric::sim::test_profile();
    fabric::sim::SimCluster cluster(options);
    cluster.run([&](Env& env) {
      RwLock lock(env);
      std::vector<std::unique_ptr<Thread>> threads;
      for (std::uint32_t i = 0; i < readers + writers; ++i) {
        threads.push_back(env.spawn("thread" + std::to_string(i), [&, i] {
          Rng rng(7, i, "lock");
          const auto pause = [&] {
            env.sleep_until(env.now() + 1 + static_cast<Time>(rng.below(kMicrosecond)));
          };
          for (int round = 0; round < 10; ++round) {
            pause();
            if (i < readers) {
              const std::shared_lock held(lock);
              enter(reading, i < readers);
              pause();
              --reading;
            } else {
              const std::lock_guard held(lock);
              enter(writing, i < readers);
              pause();
              --writing;
            }
          }
        }));
      }
      for (const auto& thread : threads) thread->join();
    });
  }

  std::uint32_t reading = 0, writing = 0, most_readers = 0, entered = 0, wrong = 0;

 private:
  void enter(std::uint32_t& inside, bool reads) {
    if (writing != 0 || (!reads && reading != 0)) ++wrong;
    ++inside;
    ++entered;
    most_readers = std::max(most_readers, reading);
  }
};

TEST_F(RwLockSim, AWriterIsAlone) {
  run(3, 2);
  EXPECT_EQ(entered, 50U);
  EXPECT_EQ(wrong, 0U);
}

TEST_F(RwLockSim, WritersExcludeEachOther) {
  run(0, 3);
  EXPECT_EQ(entered, 30U);
  EXPECT_EQ(wrong, 0U);
}

TEST_F(RwLockSim, ReadersShareTheLock) {
  run(3, 0);
  EXPECT_EQ(entered, 30U);
  EXPECT_GE(most_readers, 2U);
}

}  // namespace
}  // namespace pyrdma::loco
