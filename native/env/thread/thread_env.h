// ThreadEnv is the Env of the real world: threads of the operating system, the machine's clock and
// files.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "env/env.h"
#include "env/thread/clock.h"
#include "env/thread/small_process.h"
#include "env/thread/thread_storage.h"
#include "env/thread/thread_trace.h"

namespace pyrdma {

/// The fabric provider that owns a ThreadEnv implements ThreadHost. Any thread may call its
/// functions.
class ThreadHost {
 public:
  virtual ~ThreadHost() = default;
  /// Waiting threads call it periodically. Throws Error("stopped") or NodeKilled out of their
  /// blocking call.
  virtual void on_slow_turn() = 0;
  /// Says that more threads of the run want a core than there are cores; pollers then yield.
  virtual bool crowded() const = 0;
  /// Notes that a thread of the run starts (+1) or stops (-1) wanting a core.
  virtual void thread_runs(int change) = 0;
};

struct ThreadEnvOptions {
  NodeId node = 0;
  NodeId nodes = 1;
  std::uint32_t incarnation = 0;
  std::uint64_t seed = 1;
  std::uint64_t run = 0;  // see StorageOwner
  Clock clock;
  /// Threads of this node that exist already; the choice of cores counts them.
  std::uint32_t threads_before = 0;
};

class ThreadEnv final : public Env {
 public:
  ThreadEnv(const ThreadEnvOptions& options, ThreadHost& host);
  ~ThreadEnv() override;
  /// Must precede the first device(). `device` must outlive this.
  void attach(fabric::Device& device) { device_ = &device; }

  NodeId node() const override { return options_.node; }
  NodeId nodes() const override { return options_.nodes; }
  std::uint32_t incarnation() const override { return options_.incarnation; }
  Time now() override { return options_.clock.now(); }
  bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) override;
  void notify(Watch& watch) override;
  void sleep_until(Time t) override;
  void work(Time duration) override;
  void start_process() override { run_small_process(); }
  Rng rng(std::string_view purpose) override;
  std::uint32_t core() override;
  fabric::Device& device() override;
  Storage& storage() override;
  Trace& trace() override { return trace_; }

 protected:
  std::unique_ptr<Thread> spawn_on(std::uint32_t core, std::string name,
                                   std::function<void()> body) override;

 private:
  ThreadEnvOptions options_;
  ThreadHost& host_;
  fabric::Device* device_ = nullptr;
  std::vector<int> cores_;  // this process may use them
  std::atomic<std::uint32_t> threads_;
  std::once_flag storage_once_;
  std::unique_ptr<ThreadStorage> storage_;
  ThreadTrace trace_;
};

/// Returns the cores that this process may use.
std::vector<int> usable_cores();

}  // namespace pyrdma
