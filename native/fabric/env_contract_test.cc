// The promises of Env and env/sync.h, in every world.
#include <atomic>
#include <vector>

#include "base/error.h"
#include "env/storage.h"
#include "env/sync.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {
namespace {

class EnvContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<World> world = make_world(GetParam(), 2);
  Env& env = world->env(0);
};
INSTANTIATE_TEST_SUITE_P(Worlds, EnvContract, and_verbs({"sim", "shm"}),
                         [](const auto& info) { return info.param; });

TEST_P(EnvContract, TimeAdvancesByWorkAndSleep) {
  const Time start = env.now();
  env.work(100 * kMicrosecond);
  const Time worked = env.now();
  EXPECT_GE(worked - start, 100 * kMicrosecond);
  env.sleep_until(worked + kMillisecond);
  EXPECT_GE(env.now(), worked + kMillisecond);
}

TEST_P(EnvContract, PollUntilReturnsWhenReadyOrLate) {
  EXPECT_TRUE(env.poll_until([] { return true; }, 0))
      << "a ready predicate wins over a past deadline";
  const Time deadline = env.now() + 50 * kMicrosecond;
  EXPECT_FALSE(env.poll_until([] { return false; }, deadline));
  EXPECT_GE(env.now(), deadline);
}

// A thread that has charged much time sees what another one has done meanwhile.
TEST(EnvSim, AThreadCatchesUpWithTheOthers) {
  sim::SimOptions options;
  options.nodes = 1;
  options.profile = sim::test_profile();
  sim::SimCluster cluster(options);
  cluster.run([](Env& env) {
    bool is_set = false;
    const auto other = env.spawn("other", [&] {
      env.sleep_until(env.now() + kMicrosecond);
      is_set = true;
    });
    env.charge(Cost::kClockRead, 1000);  // 8 us
    EXPECT_FALSE(is_set);
    env.catch_up();
    EXPECT_TRUE(is_set);
    other->join();
  });
}

TEST_P(EnvContract, MutexExcludesAndEventPublishes) {
  Mutex mutex(env);
  Event go(env);
  long counter = 0;  // guarded by mutex
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < 4; ++t)
    threads.push_back(env.spawn("adder", [&] {
      ASSERT_TRUE(go.wait());
      for (int i = 0; i < 500; ++i) {
        mutex.lock();
        const long seen = counter;
        if (i % 50 == 0) env.work(200);
        counter = seen + 1;
        mutex.unlock();
      }
    }));
  EXPECT_FALSE(go.wait(env.now() + 10 * kMicrosecond));
  go.set();
  for (auto& thread : threads) thread->join();
  EXPECT_EQ(counter, 2000);
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
}

TEST_P(EnvContract, JoinRethrows) {
  auto thread = env.spawn("thrower", [] { throw Error(ErrorCode::kInternal, "on purpose"); });
  EXPECT_THROW(thread->join(), Error);
}

TEST_P(EnvContract, RandomStreamsAreSeparate) {
  Rng a = env.rng("a"), again = env.rng("a"), b = env.rng("b"), other = world->env(1).rng("a");
  const std::uint64_t first = a();
  EXPECT_EQ(first, again());
  EXPECT_NE(first, b());
  EXPECT_NE(first, other());
}

TEST_P(EnvContract, FilesKeepWhatWasWritten) {
  Storage& storage = env.storage();
  EXPECT_FALSE(storage.exists("log"));
  auto file = storage.open("log");
  const std::byte data[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  file->write(5, data);
  file->sync();
  EXPECT_EQ(file->size(), 8u);
  std::byte read[10] = {};
  EXPECT_EQ(storage.open("log")->read(4, read), 4u);
  EXPECT_EQ(read[1], std::byte{1});
  EXPECT_EQ(file->read(8, read), 0u);
  storage.remove("log");
  EXPECT_FALSE(storage.exists("log"));
  for (const char* name : {"../log", "", ".", ".hidden"}) {
    EXPECT_THROW(storage.open(name), Error) << name;
    EXPECT_THROW(storage.exists(name), Error) << name;
    EXPECT_THROW(storage.remove(name), Error) << name;
  }
}

TEST_P(EnvContract, ARenamedFileTakesTheOthersPlace) {
  Storage& storage = env.storage();
  const std::byte old_data[1] = {std::byte{1}}, new_data[2] = {std::byte{2}, std::byte{3}};
  auto opened = storage.open("state");
  opened->write(0, old_data);
  storage.open("state.new")->write(0, new_data);
  storage.rename("state.new", "state");
  storage.sync();
  EXPECT_FALSE(storage.exists("state.new"));
  EXPECT_EQ(storage.open("state")->size(), 2u);
  EXPECT_EQ(opened->size(), 1u) << "an open file keeps the old content";
  storage.rename("state", "state");
  EXPECT_TRUE(storage.exists("state"));
  EXPECT_THROW(storage.rename("absent", "state"), Error);
  EXPECT_THROW(storage.rename("state", "../state"), Error);
  storage.remove("absent");
}

TEST_P(EnvContract, AKilledNodeUnwindsItsThreads) {
  Env& victim = world->env(1);
  bool unwound = false, went_on = false;
  auto thread = victim.spawn("victim", [&] {
    struct Guard {
      bool& flag;
      ~Guard() { flag = true; }
    } guard{unwound};
    victim.poll_until([] { return false; }, kForever);
    went_on = true;
  });
  env.sleep_until(env.now() + kMillisecond);
  world->kill(1);
  thread.reset();
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(went_on);
}

}  // namespace
}  // namespace pyrdma::fabric
