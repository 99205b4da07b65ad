// Env is the interface between protocol code and the world; each node has one. Protocol code asks
// the Env for time, threads, waiting, randomness, storage and the fabric, and uses nothing else of
// the world. If code needs to know its world, this interface lacks a function.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"
#include "base/rng.h"
#include "base/units.h"

namespace pyrdma {

namespace fabric {
class Device;
}
struct CpuScope;
class Footprint;
class Storage;
class Trace;
struct SimThread;

using NodeId = std::uint32_t;

/// Cost names CPU work that instructions and cache lines do not measure; a Scope (scope.h) charges
/// these. The profile gives the time of each kind. The real world charges nothing, because the work
/// itself takes time there.
enum class Cost : std::uint8_t {
  kClockRead,     // Env::now()
  kSystemCall,    // from user mode to the kernel and back
  kAtomic,        // a read-modify-write of a word in the own cache
  kLineTransfer,  // a line that another core has written comes to this core
  kProcessStart,  // the node's system starts a process
  kCount,
};

/// poll_until may wait for a Watch. Each object that other threads or the NIC change (a completion
/// queue, a lock) carries one. The thread that changes the object calls Env::notify. Only the
/// simulated world uses it.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  friend class SimScheduler;
  SimThread* first_ = nullptr;
  std::uint32_t notices_ = 0;  // lets a poller see a change during its iteration
};

/// Every blocking Env call of a killed node throws NodeKilled, so that the node's threads unwind.
/// Never catch NodeKilled.
struct NodeKilled {};

/// Thread is the handle of a spawned thread. Its destructor joins the thread.
class Thread {
 public:
  virtual ~Thread() = default;
  /// Blocks until the thread's function has returned; rethrows its exception (once).
  virtual void join() = 0;
};

/// How often a run has taken each rare branch of its protocols, by name.
using BranchCounts = std::map<std::string_view, std::uint64_t>;

class Env {
 public:
  virtual ~Env() = default;
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

  bool is_simulated() const { return has_model_; }
  virtual NodeId node() const = 0;
  virtual NodeId nodes() const = 0;
  /// Counts the restarts of this node after crashes.
  virtual std::uint32_t incarnation() const { return 0; }

  /// Returns the nanoseconds since the start of the run; monotonic. In the simulated world the time
  /// is virtual and a reading costs Cost::kClockRead.
  virtual Time now() = 0;

  /// This is the only polling loop of system code. It returns true as soon as `ready()` does, and
  /// false when `deadline` (absolute) has passed and ready() is still false. In the real world the
  /// thread spins, relaxes, and yields when cores are short. In the simulated world the thread
  /// parks until its node is touched (a placement, a completion, an iteration of another
  /// thread of the node, a timer). With `only` it parks until that Watch is notified. It then
  /// resumes on its poll grid: an iteration without a result costs what ready() charged, or a
  /// bare turn (env/poll_turn) if it charged nothing.
  template <class Ready>
  bool poll_until(Ready&& ready, Time deadline, Watch* only = nullptr) {
    return poll_until_ref(FunctionRef<bool()>(ready), deadline, only);
  }
  virtual bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) = 0;

  /// Wakes all pollers of `watch`. Any thread of the node may call it. Free in the real world.
  virtual void notify(Watch& watch) = 0;

  virtual void sleep_until(Time t) = 0;
  /// Computes for `duration`: burns CPU in the real world, advances the clock of this thread in the
  /// simulated world.
  virtual void work(Time duration) = 0;
  /// Lets every thread that is behind this one in virtual time run first. Code calls it before it
  /// reads, without a wait, what another thread of the node changes. Free in the real world.
  void catch_up() {
    if (has_model_) catch_up_model();
  }
  /// Charges `count` operations of kind `cost` to the CPU of this thread. Free in the real world.
  void charge(Cost cost, std::uint64_t count = 1) {
    if (has_model_) charge_model(cost, count);
  }
  /// Charges a copy of `bytes` bytes to the CPU of this thread: one end is of the footprint `of`,
  /// or both are in the core's own cache if it is null. Free in the real world.
  void charge_copy(std::size_t bytes, const Footprint* of = nullptr) {
    if (has_model_) charge_copy_model(bytes, of);
  }
  /// Charges the access to one cache line of `of`, which holds `at`. Free in the real world.
  void charge_walk(const Footprint& of, const void* at) {
    if (has_model_) charge_walk_model(of, at);
  }
  /// Starts to fetch the line of `at`. A walk to the same `at` then waits only for the rest of the
  /// time that the fetch takes.
  void prefetch(const Footprint& of, const void* at) {
    __builtin_prefetch(at);
    if (has_model_) prefetch_model(of, at);
  }

  /// Number of cores of this node, which spawn() can name; 0 where it may name any.
  virtual std::uint32_t cores() const { return 0; }
  /// The core that this thread runs on, below cores() where that is not 0. Real threads may move to
  /// another core at any time.
  virtual std::uint32_t core() { return 0; }
  static constexpr std::uint32_t kNextCore = ~0U;
  /// Starts a thread of this node on core `core` of the node, which other threads may have too, or
  /// on the node's next core. Cores are counted from 0; the simulated world throws
  /// Error(kInvalidArgument) for a core that the node lacks. Real nodes share the cores that this
  /// process may use: the same number of two nodes means different ones, as long as there are
  /// enough, and none in particular while the run has more threads than cores.
  std::unique_ptr<Thread> spawn(std::string name, std::function<void()> body,
                                std::uint32_t core = kNextCore) {
    return spawn_on(core, std::move(name), std::move(body));
  }

  /// Starts a process of the node's operating system, and returns when it runs. The real world
  /// really starts one, which does nothing; what a started process does, the caller does after it.
  /// The simulated world charges Cost::kProcessStart. Throws Error(kUnavailable) when the system
  /// starts none.
  virtual void start_process() { charge(Cost::kProcessStart); }

  /// Returns the seeded random stream of this node for `purpose`; equal calls give equal streams.
  virtual Rng rng(std::string_view purpose) = 0;

  virtual fabric::Device& device() = 0;  // the node's first RDMA device
  /// Number of RDMA devices of this node. Only simulated nodes have several.
  virtual std::uint32_t devices() const { return 1; }
  /// Returns a device by its number; device() is number 0. Requires `number` < devices().
  virtual fabric::Device& device_at(std::uint32_t /*number*/) { return device(); }
  virtual Storage& storage() = 0;
  virtual Trace& trace() = 0;

  /// Counts that a protocol has taken a rare branch, such as "ring/wrap". `branch` is a literal. A
  /// scenario lists its branches, and tests expect that random runs take each of them. Free in the
  /// real world.
  void reached(const char* branch) {
    if (branches_ != nullptr) [[unlikely]]
      ++(*branches_)[branch];
  }

 protected:
  /// The real world has no model of the CPU, so a charge costs only one test.
  explicit Env(bool has_model) : has_model_(has_model) {}
  virtual std::unique_ptr<Thread> spawn_on(std::uint32_t core, std::string name,
                                           std::function<void()> body) = 0;
  virtual void catch_up_model() {}
  virtual void charge_model(Cost /*cost*/, std::uint64_t /*count*/) {}
  virtual void charge_copy_model(std::size_t /*bytes*/, const Footprint* /*of*/) {}
  virtual void charge_walk_model(const Footprint& /*of*/, const void* /*at*/) {}
  virtual void prefetch_model(const Footprint& /*of*/, const void* /*at*/) {}
  /// Charges one pass through the step. Returns the Env that wants to know its end, or null.
  virtual Env* enter_model(const CpuScope& /*step*/) { return nullptr; }
  virtual void leave_model(const CpuScope& /*step*/) {}
  /// A footprint begins to exist, or ends.
  virtual void footprint_model(const void* /*data*/, std::uint64_t /*bytes*/, bool /*exists*/) {}
  void count_branches(BranchCounts* into) { branches_ = into; }

 private:
  friend class Scope;
  friend class Footprint;
  friend class EnvDecorator;
  const bool has_model_;
  BranchCounts* branches_ = nullptr;
};

}  // namespace pyrdma
