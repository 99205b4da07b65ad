#include "env/thread/thread_env.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <thread>
#include <utility>

#include "base/assert.h"

namespace pyrdma {
namespace {

constexpr std::uint32_t kTurnsPerCheck = 64;  // iterations between checks of clock and host
constexpr std::uint32_t kTurnsPerShortCheck = 8;
// The first iterations spin tightly: a round trip lasts 0.1 us.
constexpr std::uint32_t kTurnsBeforeRelax = 512;
constexpr std::uint32_t kTurnsBeforeYield = 8192;        // some tens of microseconds
constexpr Time kSpinInsteadOfSleep = 60 * kMicrosecond;  // the kernel's timer slack
constexpr Time kLongestSleep = 20 * kMillisecond;        // between two checks for a stop

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Counts the running thread in or out for this scope.
class RunningScope {
 public:
  RunningScope(ThreadHost& host, int change) : host_(host), change_(change) {
    host_.thread_runs(change_);
  }
  ~RunningScope() { host_.thread_runs(-change_); }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  ThreadHost& host_;
  int change_;
};

class RealThread final : public Thread {
 public:
  /// `cores` is called when the thread counts as running, and before it runs.
  RealThread(ThreadHost& host, std::string name, const std::function<cpu_set_t()>& cores,
             std::function<void()> body)
      : host_(host) {
    host_.thread_runs(1);
    thread_ = std::thread([this, name = std::move(name), set = cores(), body = std::move(body)] {
      // The thread does so itself: once it has ended, another's call would bind the caller. A
      // failure is ignored.
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());  // the kernel's limit
      pthread_setaffinity_np(pthread_self(), sizeof set, &set);
      try {
        body();
      } catch (...) {  // NOLINT: join() rethrows it
        error_ = std::current_exception();
      }
      host_.thread_runs(-1);
    });
  }
  ~RealThread() override {
    if (thread_.joinable()) wait();
  }
  void join() override {
    if (thread_.joinable()) wait();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void wait() {
    const RunningScope blocked(host_, -1);
    thread_.join();
  }
  ThreadHost& host_;
  std::thread thread_;
  std::exception_ptr error_;
};

}  // namespace

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

ThreadEnv::ThreadEnv(const ThreadEnvOptions& options, ThreadHost& host)
    : Env(false),
      options_(options),
      host_(host),
      cores_(usable_cores()),
      threads_(options.threads_before),
      trace_(options.node) {}

ThreadEnv::~ThreadEnv() = default;

bool ThreadEnv::poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* /*only*/) {
  // The count starts so that an expired deadline costs few iterations.
  for (std::uint32_t turn = kTurnsPerCheck - kTurnsPerShortCheck;; ++turn) {
    if (ready()) return true;
    if (turn % kTurnsPerCheck == 0) [[unlikely]] {
      host_.on_slow_turn();
      if (deadline != kForever && now() >= deadline) return ready();
      // A long wait yields even on free cores: another program may hold them, and the awaited
      // thread may need this core. Where cores are short, it does after a few looks: each look more
      // is time that the awaited thread does not get.
      if (const bool is_crowded = host_.crowded(); is_crowded || turn > kTurnsBeforeYield) {
        sched_yield();
        if (is_crowded) turn += kTurnsPerCheck - kTurnsPerShortCheck;
      }
    } else if (turn > kTurnsBeforeRelax) {
      relax();
    }
    if (turn == ~0U) turn = kTurnsBeforeYield;
  }
}

void ThreadEnv::notify(Watch& /*watch*/) {}  // pollers see the change in their next iteration

void ThreadEnv::sleep_until(Time t) {
  for (;;) {
    host_.on_slow_turn();
    const Time left = t - now();
    if (left <= 0) return;
    if (left <= kSpinInsteadOfSleep) {
      if (host_.crowded())
        sched_yield();
      else
        relax();
      continue;
    }
    const RunningScope asleep(host_, -1);
    const Time until =
        options_.clock.to_monotonic(now() + std::min(left - kSpinInsteadOfSleep, kLongestSleep));
    const timespec wake{until / kSecond, until % kSecond};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr);
  }
}

void ThreadEnv::work(Time duration) {
  const Time end = now() + duration;
  for (std::uint32_t turn = 1; now() < end; ++turn) {
    if (turn % 4096 == 0) host_.on_slow_turn();
  }
}

std::unique_ptr<Thread> ThreadEnv::spawn_on(std::uint32_t core, std::string name,
                                            std::function<void()> body) {
  const std::uint32_t index =
      core != kNextCore ? core : threads_.fetch_add(1, std::memory_order_relaxed);
  // The thread gets a core such that the nodes' first threads lie on different cores. It gets all
  // cores when cores are short, because the kernel's scheduler then knows better (and a thread
  // inherits the mask of a pinned creator).
  const auto cores = [&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    const std::size_t slot = options_.node + std::size_t{index} * options_.nodes;
    for (std::size_t i = 0; i < cores_.size(); ++i) {
      if (host_.crowded() || i == slot % cores_.size())
        CPU_SET(static_cast<std::size_t>(cores_[i]), &set);
    }
    return set;
  };
  return std::make_unique<RealThread>(host_, std::move(name), cores, std::move(body));
}

Rng ThreadEnv::rng(std::string_view purpose) { return Rng(options_.seed, options_.node, purpose); }

std::uint32_t ThreadEnv::core() { return static_cast<std::uint32_t>(std::max(0, sched_getcpu())); }

fabric::Device& ThreadEnv::device() {
  PYRDMA_ASSERT(device_ != nullptr);
  return *device_;
}

Storage& ThreadEnv::storage() {
  std::call_once(storage_once_, [this] {
    storage_ = std::make_unique<ThreadStorage>(StorageOwner{options_.run, options_.node});
  });
  return *storage_;
}

}  // namespace pyrdma
