#include "env/thread/thread_env.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "env/sync.h"

namespace pyrdma {
namespace {

class Host final : public ThreadHost {
 public:
  void on_slow_turn() override {
    if (stopped) throw Error(ErrorCode::kUnavailable, "stopped");
  }
  bool crowded() const override { return is_crowded; }
  void thread_runs(int change) override { running += change; }
  std::atomic<bool> stopped{false};
  bool is_crowded = false;
  std::atomic<int> running{0};
};

struct World {
  World() : env(options(), host) {}
  static ThreadEnvOptions options() {
    ThreadEnvOptions options;
    options.clock = Clock::calibrate();
    return options;
  }
  Host host;
  ThreadEnv env;
};

Time monotonic() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{now.tv_sec} * kSecond + now.tv_nsec;
}

TEST(ThreadEnv, AnAdjustedClockReadsOnTheOtherScale) {
  const Clock clock = Clock::calibrate();
  constexpr Time kAt = kSecond, kOffset = 3600 * kSecond;
  for (const double drift : {0.0, 5e-5, -5e-5}) {
    const Clock other = clock.adjusted(kAt, kOffset, drift);
    const Time before = clock.now(), read = other.now(), after = clock.now();
    const auto scaled = [&](Time t) {
      return t + kOffset + static_cast<Time>(drift * static_cast<double>(t - kAt));
    };
    // The fixed point of the rate costs 1e-12 of an hour; a clock that is no counter has no drift.
    const Time slack = 100 + static_cast<Time>(5e-5 * static_cast<double>(kAt));
    EXPECT_GE(read, scaled(before) - slack);
    EXPECT_LE(read, scaled(after) + slack);
    EXPECT_NEAR(static_cast<double>(other.to_monotonic(kOffset)),
                static_cast<double>(clock.to_monotonic(0)), 1.0);
    const Clock copy = Clock::from_parts(other.parts());
    EXPECT_NEAR(static_cast<double>(copy.now()), static_cast<double>(other.now()), 1e6);
  }
}

TEST(ThreadEnv, ClockAgreesWithTheSystems) {
  World world;
  const Time ours = world.env.now();
  const Time system = monotonic();
  usleep(100000);
  const Time our_span = world.env.now() - ours;
  const Time system_span = monotonic() - system;
  EXPECT_NEAR(static_cast<double>(our_span), static_cast<double>(system_span),
              1e-3 * static_cast<double>(system_span));
}

TEST(ThreadEnv, PollUntilKeepsItsDeadline) {
  World world;
  for (const bool crowded : {false, true}) {
    world.host.is_crowded = crowded;
    const Time start = world.env.now();
    EXPECT_FALSE(world.env.poll_until([] { return false; }, start + 2 * kMillisecond));
    EXPECT_GE(world.env.now(), start + 2 * kMillisecond);
    EXPECT_TRUE(world.env.poll_until([] { return true; }, start));
    EXPECT_FALSE(world.env.poll_until([] { return false; }, start));
  }
}

TEST(ThreadEnv, StopEndsEveryBlockingCall) {
  World world;
  world.host.stopped = true;
  EXPECT_THROW(world.env.poll_until([] { return false; }, kForever), Error);
  EXPECT_THROW(world.env.sleep_until(world.env.now() + 100 * kSecond), Error);
}

// A process is really started, has ended when the call returns, and leaves nothing behind.
TEST(ThreadEnv, StartsAProcess) {
  World world;
  rusage before{}, after{};
  getrusage(RUSAGE_CHILDREN, &before);
  for (int i = 0; i < 3; ++i) world.env.start_process();
  getrusage(RUSAGE_CHILDREN, &after);
  EXPECT_GT(after.ru_minflt, before.ru_minflt);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
  const char* const path = std::getenv("PATH");
  const std::string kept = path == nullptr ? "" : path;
  setenv("PATH", "/nowhere", 1);
  EXPECT_THROW(world.env.start_process(), Error);
  setenv("PATH", kept.c_str(), 1);
}

TEST(ThreadEnv, SleepAndWorkLastAsLongAsAsked) {
  World world;
  const Time start = world.env.now();
  world.env.sleep_until(start + 3 * kMillisecond);
  EXPECT_GE(world.env.now(), start + 3 * kMillisecond);
  const Time before = world.env.now();
  world.env.work(kMillisecond);
  EXPECT_GE(world.env.now(), before + kMillisecond);
}

TEST(ThreadEnv, ThreadsRunAndRethrowOnce) {
  World world;
  int value = 0;
  auto good = world.env.spawn("good", [&] { value = 7; });
  good->join();
  EXPECT_EQ(value, 7);
  auto bad =
      world.env.spawn("a name longer than the kernel's", [] { throw std::runtime_error("mine"); });
  EXPECT_THROW(bad->join(), std::runtime_error);
  bad->join();
  EXPECT_EQ(world.host.running, 0);
}

TEST(ThreadEnv, AThreadThatEndsAtOnceDoesNotBindItsCreator) {
  World world;
  const std::vector<int> before = usable_cores();
  for (int i = 0; i < 5000; ++i) {
    world.env.spawn("brief", [] {})->join();
    ASSERT_EQ(usable_cores(), before) << "after " << i << " threads";
  }
}

TEST(ThreadEnv, RandomStreamsAreTheirPurposes) {
  World world;
  EXPECT_EQ(world.env.rng("a")(), world.env.rng("a")());
  EXPECT_NE(world.env.rng("a")(), world.env.rng("b")());
}

TEST(ThreadStorage, KeepsFilesInAPrivateFolderAndRemovesIt) {
  std::string folder;
  {
    ThreadStorage storage;
    folder = storage.folder();
    struct stat info {};
    ASSERT_EQ(stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U);
    auto file = storage.open("log");
    const std::byte data[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
    file->write(5, data);
    file->sync();
    EXPECT_EQ(file->size(), 8U);
    std::byte back[16] = {};
    EXPECT_EQ(storage.open("log")->read(4, back), 4U);
    EXPECT_EQ(back[3], std::byte{3});
    EXPECT_TRUE(storage.exists("log"));
    storage.remove("log");
    storage.remove("log");
    EXPECT_FALSE(storage.exists("log"));
    for (const char* name : {"", "..", "../x", "/etc/passwd", "a/b", ".hidden"}) {
      EXPECT_THROW(storage.open(name), Error) << name;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(ThreadEnv, AnEndedNodeWaitsForALock) {
  World w;
  Mutex mutex(w.env);
  mutex.lock();
  w.host.stopped = true;
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    mutex.unlock();
  });
  EXPECT_NO_THROW(mutex.lock());
  mutex.unlock();
  holder.join();
}

TEST(ThreadStorage, FullDiskSaysSoAndKeepsWhatWasThere) {
  ThreadStorage storage;
  auto file = storage.open("big");
  const std::byte one[1] = {std::byte{9}};
  file->write(0, one);
  // A limit of the file size imitates a full disk.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4096, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<std::byte> much(10000);
  EXPECT_THROW(file->write(1, much), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  std::byte back[1] = {};
  EXPECT_EQ(file->read(0, back), 1U);
  EXPECT_EQ(back[0], std::byte{9});
}

}  // namespace
}  // namespace pyrdma
