// Deterministic virtual time: an event queue, fibers with their own CPU clocks, and the parking of
// polling threads.
//
// A thread runs ahead of global time by the time that it has charged. It catches up (sync) before
// any step whose order other threads can observe: a clock reading, a wait, a sleep. A request to a
// NIC carries the thread's clock as its time. So code between two syncs may see memory that is a
// little old, but never newer than its own clock, and equal seeds give equal runs.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/rng.h"
#include "base/units.h"
#include "env/env.h"
#include "env/sim/event_queue.h"
#include "env/sim/fiber.h"

namespace pyrdma {

/// One core of a simulated node, shared by the threads that are pinned to it.
struct SimCore {
  std::uint32_t threads = 0;
  std::uint32_t waiting = 0;
  Picos free_at = 0;
  const void* last_thread = nullptr;
  Picos next_tick = kNever;  // the next timer interrupt, if the node has them
};

struct SimThread;

/// Timer interrupts of a node's cores. Each takes between half of `mean` and one and a half.
struct TimerTicks {
  Picos period = kNever, mean = 0;
  Rng stream{0};
};

/// The times by which threads begin later than their creator could have them begin.
struct StartOffsets {
  Picos spread = 0;
  Rng stream{0};
  Picos draw() {
    return spread == 0 ? 0
                       : static_cast<Picos>(stream.below(static_cast<std::uint64_t>(spread) + 1));
  }
};

/// The common state of the threads of a node.
struct SimNodeThreads {
  Watch touched;  // wakes polling threads without a Watch of their own
  std::vector<SimCore> cores;
  std::uint32_t next_core = 0;
  Picos context_switch = 0;
  Picos timeslice = kNever;
  std::uint32_t cores_per_socket = ~0U;  // the NIC is at the first socket
  std::uint32_t remote_threads = 0;      // started on other sockets
  std::uint32_t used_cores = 0;          // that have a thread
  std::vector<std::unique_ptr<SimThread>> threads;
  bool killed = false;
  Picos paused_until = 0;        // the threads stop until this time
  std::uint32_t slow_shift = 0;  // CPU work takes 2^slow_shift times as long
  TimerTicks ticks;
  StartOffsets starts;
};

/// Fires at the deadline of a parked thread. At most one is live per thread, however often the
/// thread waits.
struct SimDeadline final : SimEvent {
  explicit SimDeadline(SimThread& owner) : thread(owner) {}
  void fire(Picos now) override;
  SimThread& thread;
  Picos armed_for = kNever;
};

class SimScheduler;
class Timeline;

/// The record of one event. Two runs diverge at the first event whose records differ.
struct SimEventRecord {
  Picos time = 0;
  std::uint64_t fingerprint = 0;  // fingerprint of the run after this event's time and ticket
  std::string what;               // the thread that is due, or empty
};

/// A simulated thread: a fiber with a CPU clock, at or ahead of global time while it runs.
struct SimThread final : SimEvent {
  explicit SimThread(SimScheduler& owner) : SimEvent(Kind::kThread), scheduler(owner) {}
  void fire(Picos) override {}
  void prefetch() const override {
    const char* at = reinterpret_cast<const char*>(this);
    for (std::size_t line = 64; line < sizeof(SimThread); line += 64) __builtin_prefetch(at + line);
    __builtin_prefetch(core);
    fiber.prefetch();
  }

  SimScheduler& scheduler;
  std::string name;
  SimNodeThreads* node =
      nullptr;  // null: the external thread, that is, the caller of the simulation
  SimCore* core = nullptr;
  std::function<void()> body;
  Fiber fiber;
  Picos clock = 0;
  std::uint64_t wake_ticket = 0;  // the valid wake; earlier ones in the queue are stale
  Picos wake_time = kNever;
  std::uint32_t slow_shift = 0;  // copied from the node
  bool held_back = false;        // by a pause of its node
  bool waits_for_core = false;
  bool finished = false;
  bool preempted = false;  // since its poll loop began to wait
  bool unwinding = false;  // killed: blocking calls return at once, so that destructors can run
  bool kill_pending = false;
  std::exception_ptr failure;
  Watch finish_watch;
  // State of a thread that is parked in poll_until.
  Picos grid_start = 0, grid_step = 1, deadline = kNever;
  bool parked = false;
  SimThread* next_watcher = nullptr;
  SimThread** watcher_link = nullptr;  // the pointer that points here; null when on no watch
  SimDeadline deadline_timer{*this};
  // What its core knows of the node's memory.
  bool remote = false;            // its socket is not the NIC's
  std::uint64_t placed_seen = 0;  // bytes that the NIC had placed at its last look
  std::uint64_t own_seen = 0;     // of these, for requests of the node
  double own_share = 0;           // of the bytes between its last two looks
  struct Fetch {
    const void* at = nullptr;
    Picos ready = 0;
  };
  std::array<Fetch, 8> fetches;  // the newest prefetches
  std::uint32_t next_fetch = 0;
};

class SimScheduler {
 public:
  /// `nodes` is a hint for the event queue.
  explicit SimScheduler(std::uint32_t nodes = 1);
  ~SimScheduler();
  SimScheduler(const SimScheduler&) = delete;
  SimScheduler& operator=(const SimScheduler&) = delete;

  /// Returns the running thread's clock; inside an event, the event's time.
  Picos clock() const { return in_event_ ? now_ : current_->clock; }
  void charge(Picos cost) { current_->clock += cost << current_->slow_shift; }
  /// Returns true in the step of a living thread, the external one included.
  bool may_run_ahead() const {
    return !in_event_ && !current_->unwinding && !current_->kill_pending;
  }
  /// Moves the running thread's clock to `when`, unless it is later already.
  void run_ahead_to(Picos when) { current_->clock = std::max(current_->clock, when); }
  /// The running thread; in an event, the one that ran last.
  SimThread& running() { return *current_; }
  /// Runs all events before the running thread's clock.
  void sync();
  void work(Picos duration);
  /// Takes the core from the running thread for `duration`, in the middle of a step. Never throws:
  /// a thread that is killed meanwhile unwinds at its next wait. Returns false, without effect, in
  /// events, outside of simulated threads, and while a thread unwinds.
  bool preempt(Picos duration) noexcept;
  void sleep_until(Picos when);
  /// Implements Env::poll_until. An iteration without a result takes the time that ready()
  /// charged, or `least_turn` if ready() charged none.
  bool poll_until(SimNodeThreads& node, FunctionRef<bool()> ready, Picos deadline, Watch* only,
                  Picos least_turn);

  /// Runs `work` on the stack of the external thread, as a part of the running thread: for code
  /// that cannot run on a fiber, such as an interpreter. The thread runs ahead meanwhile. `work`
  /// throws nothing and must not wait: a call that would wait throws Error(kInvalidArgument).
  void on_external_stack(FunctionRef<void()> work);

  /// Wakes the polling threads of `watch`: each resumes at its first iteration that begins at
  /// clock() or later.
  void notify(Watch& watch);
  /// Wakes the node's polling threads without a watch.
  void touch(SimNodeThreads& node) {
    ++node.touched.notices_;
    if (node.touched.first_ != nullptr) notify(node.touched);
    if (anything_.first_ != nullptr) notify(anything_);
  }

  /// `core` is a number of the node's cores, or Env::kNextCore.
  SimThread* spawn(SimNodeThreads& node, std::string name, std::function<void()> body,
                   std::uint32_t core = Env::kNextCore);
  /// Blocks until `thread` has finished.
  void await_finish(SimThread& thread);
  /// The same for destructors: if the thread is killed while it waits, the next wait throws the
  /// kill.
  void await_finish_unthrown(SimThread& thread) noexcept;
  /// Blocks until all threads have finished, or one of them has failed. `coming` is the number of
  /// threads that will still be added to `threads`.
  void await_all(const std::vector<SimThread*>& threads, const std::uint32_t& coming);
  /// Unwinds all of the node's threads with NodeKilled, at this moment, youngest first.
  void kill(SimNodeThreads& node);
  /// Stops the node's threads until `when`. Work that they have begun in their own time is done.
  void pause(SimNodeThreads& node, Picos when);
  /// Ends a pause.
  void resume(SimNodeThreads& node);
  /// Lets the timer interrupt the node's cores, each at a phase of its own.
  static void start_timers(SimNodeThreads& node, const TimerTicks& ticks);
  void set_slow(SimNodeThreads& node, std::uint32_t shift);
  /// Unwinds all threads of the node and runs until they are gone; the node can then run new
  /// threads.
  void unwind(SimNodeThreads& node);

  void schedule(SimEvent& event, Picos when) { queue_.push(when, &event); }

  /// Ends the running call of the external thread with Error. Any OS thread or a signal handler may
  /// call.
  void request_stop() { stop_.store(true, std::memory_order_relaxed); }
  /// Takes back a request that has ended no call.
  void forget_stop() { stop_.store(false, std::memory_order_relaxed); }
  void set_time_limit(Picos limit) { time_limit_ = limit; }
  Picos time_limit() const { return time_limit_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// Random draws change the fingerprint too: Rng::fold_into.
  std::uint64_t* fingerprint_fold() { return &fingerprint_; }
  std::uint64_t events() const { return events_; }
  /// Adds every further event to `*into`, which outlives them; null stops the recording.
  void record_events(std::vector<SimEventRecord>* into) { recorded_ = into; }
  /// Null when no timeline is recorded.
  Timeline* timeline() const { return timeline_; }
  /// Records all threads from now on. The caller is the external thread.
  void start_timeline(Timeline& timeline);
  void stop_timeline();
  bool is_external() const { return current_ == &external_; }

 private:
  friend struct SimDeadline;
  enum class Interrupt : std::uint8_t { kNone, kDeadlock, kStopped, kTimeLimit };

  void wait_for_wake(SimThread& self);
  void serve_guest();
  void refuse_guest_wait() const {
    if (guest_runs_) [[unlikely]]
      throw_guest_waits();
  }
  [[noreturn, gnu::cold]] static void throw_guest_waits();
  [[noreturn, gnu::cold]] static void unwind_killed(SimThread& self);
  SimThread& next_thread();
  bool take_core(SimThread& thread);
  [[gnu::cold]] static void take_ticks(SimThread& thread, bool busy);
  bool hold_back(SimThread& thread);
  void wake_at(SimThread& thread, Picos when);
  static void watch(SimThread& thread, Watch& watch);
  static void unwatch(SimThread& thread);
  Fiber* thread_main(SimThread& thread);
  [[noreturn, gnu::cold]] void throw_interrupt();
  [[gnu::cold]] void record(const SimEvent& event);

  EventQueue queue_;
  Picos now_ = 0;
  Picos time_limit_ = kNever;
  SimThread external_{*this};
  SimThread* current_ = &external_;
  Fiber* left_ = nullptr;
  Timeline* timeline_ = nullptr;
  bool in_event_ = false;
  // Work of the running thread that the external stack is to run, and whether it runs now.
  const FunctionRef<void()>* guest_ = nullptr;
  bool guest_runs_ = false;
  Interrupt interrupt_ = Interrupt::kNone;
  Watch any_finish_;
  Watch anything_;  // wakes external polling threads: their predicates may read any node
  std::uint64_t fingerprint_ = 0;
  std::uint64_t events_ = 0;
  std::vector<SimEventRecord>* recorded_ = nullptr;
  std::vector<const SimNodeThreads*> nodes_;
  std::atomic<bool> stop_{false};
  bool unwinds_ = false;  // within unwind()
};

}  // namespace pyrdma
