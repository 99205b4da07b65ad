// The seam between protocol code and the world (one Env per node). Protocol code asks the Env for
// time, threads, waiting, randomness, storage and the fabric, and nothing else. Where code wants to
// know which world it runs in, a verb is missing here.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/rng.h"
#include "base/units.h"

namespace pyrdma {

namespace fabric {
class Device;
}
class Storage;
class Trace;
struct SimThread;

using NodeId = std::uint32_t;

/// Named CPU costs. The profile gives each one's time; the real world charges nothing, because
/// there the operation itself has taken its time.
enum class Cost : std::uint8_t {
  kClockRead,    // Env::now()
  kLock,         // an uncontended lock or unlock
  kLockHandoff,  // from an unlock to the waiting thread's running on
  kPredicate,    // one turn of a poll loop that tests plain memory
  kHandler,      // dispatch of one message to its handler
  kMemcpyCall,   // fixed part of a copy; the part per byte is charge_copy's
  kSystemCall,   // user to kernel and back
  kCount,
};

/// What poll_until may wait for. Objects that other threads or the NIC change (completion queues,
/// locks) carry one; whoever changes them calls Env::notify. Only the simulated world uses it.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  friend class SimScheduler;
  SimThread* first_ = nullptr;
  std::uint32_t notices_ = 0;  // so that a poller sees what happens during its turn
};

/// Thrown out of every blocking Env call of a killed node, so that its threads unwind. Never catch
/// it.
struct NodeKilled {};

/// A spawned thread. Destroying the handle joins.
class Thread {
 public:
  virtual ~Thread() = default;
  /// Blocks until the thread's function has returned; rethrows what it threw (once).
  virtual void join() = 0;
};

class Env {
 public:
  virtual ~Env() = default;
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

  virtual NodeId node() const = 0;
  virtual NodeId nodes() const = 0;
  /// How often this node has been restarted after a crash.
  virtual std::uint32_t incarnation() const { return 0; }

  /// Nanoseconds since the start of the run: monotonic; virtual in the simulated world, where a
  /// reading costs Cost::kClockRead.
  virtual Time now() = 0;

  /// The only polling loop of system code. Returns true as soon as `ready()` does; false when
  /// `deadline` (absolute) has passed and ready() is still false. In the real world it spins,
  /// relaxes, and yields when cores are short. In the simulated world the thread parks until its
  /// node is touched (a placement, a completion, another thread of the node having run, a timer),
  /// or, with `only`, until that Watch is notified, and then resumes on its poll grid: an empty
  /// turn costs what ready() charged.
  template <class Ready>
  bool poll_until(Ready&& ready, Time deadline, Watch* only = nullptr) {
    return poll_until_ref(FunctionRef<bool()>(ready), deadline, only);
  }
  virtual bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) = 0;

  /// Wakes the pollers of `watch` (all of them). Any thread of the node. Free in the real world.
  virtual void notify(Watch& watch) = 0;

  virtual void sleep_until(Time t) = 0;
  /// Computes for `duration`: burns CPU in the real world, advances this thread's clock in the
  /// simulated.
  virtual void work(Time duration) = 0;
  /// Accounts `count` named operations to this thread's CPU. Free in the real world.
  void charge(Cost cost, std::uint64_t count = 1) {
    if (has_model_) charge_model(cost, count);
  }
  /// Accounts a copy of `bytes` bytes. Free in the real world.
  void charge_copy(std::size_t bytes) {
    if (has_model_) charge_copy_model(bytes);
  }

  /// Starts a thread of this node on the node's next core.
  virtual std::unique_ptr<Thread> spawn(std::string name, std::function<void()> body) = 0;

  /// The seeded random stream of this node for `purpose`; equal calls give equal streams.
  virtual Rng rng(std::string_view purpose) = 0;

  virtual fabric::Device& device() = 0;
  virtual Storage& storage() = 0;
  virtual Trace& trace() = 0;

 protected:
  /// The real world has no model of the CPU: charging costs it a test.
  explicit Env(bool has_model) : has_model_(has_model) {}
  virtual void charge_model(Cost /*cost*/, std::uint64_t /*count*/) {}
  virtual void charge_copy_model(std::size_t /*bytes*/) {}

 private:
  const bool has_model_;
};

}  // namespace pyrdma
