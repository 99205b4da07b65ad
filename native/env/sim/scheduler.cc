#include "env/sim/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "env/sim/timeline.h"

namespace pyrdma {

SimScheduler::SimScheduler(std::uint32_t nodes) : queue_(nodes) { external_.name = "external"; }
SimScheduler::~SimScheduler() = default;

void SimDeadline::fire(Picos now) {
  if (armed_for != now) return;  // superseded by an earlier deadline
  armed_for = kNever;
  if (!thread.parked) return;
  if (thread.deadline <= now) {
    thread.scheduler.wake_at(thread, now);
  } else if (thread.deadline != kNever) {
    armed_for = thread.deadline;
    thread.scheduler.schedule(*this, armed_for);
  }
}

// ---- the event loop ----

// Runs events, on the stack that calls it, until a thread is due; returns that thread.
SimThread& SimScheduler::next_thread() {
  if (timeline_ != nullptr) [[unlikely]]
    timeline_->waits(*current_);
  in_event_ = true;
  for (;;) {
    if (queue_.empty()) {
      interrupt_ = Interrupt::kDeadlock;
      break;
    }
    if ((++events_ & 1023) == 0) {
      if (stop_.load(std::memory_order_relaxed) && !unwinds_) {
        interrupt_ = Interrupt::kStopped;
        break;
      }
      if (now_ > time_limit_) {
        interrupt_ = Interrupt::kTimeLimit;
        break;
      }
    }
    const EventQueue::Entry entry = queue_.pop();
    now_ = entry.time;
    fingerprint_ =
        (fingerprint_ ^ static_cast<std::uint64_t>(now_)) * 0x9e3779b97f4a7c15ULL + entry.ticket;
    if (recorded_ != nullptr) [[unlikely]]
      record(*entry.event);
    if (entry.event->kind() == SimEvent::Kind::kThread) {
      auto& thread = static_cast<SimThread&>(*entry.event);
      if (entry.ticket == thread.wake_ticket && !hold_back(thread) && take_core(thread)) {
        thread.wake_time = kNever;
        thread.clock = std::max(thread.clock, now_);
        if (thread.core != nullptr && thread.core->next_tick <= thread.clock) [[unlikely]]
          take_ticks(thread, false);
        in_event_ = false;
        if (timeline_ != nullptr) [[unlikely]]
          timeline_->resumes(thread);
        return thread;
      }
    } else {
      entry.event->fire(now_);
    }
  }
  in_event_ = false;
  external_.wake_time = kNever;
  external_.wake_ticket = 0;
  external_.clock = std::max(external_.clock, now_);
  if (timeline_ != nullptr) [[unlikely]]
    timeline_->resumes(external_);
  return external_;
}

void SimScheduler::record(const SimEvent& event) {
  const bool is_thread = event.kind() == SimEvent::Kind::kThread;
  recorded_->push_back(
      {now_, fingerprint_, is_thread ? static_cast<const SimThread&>(event).name : std::string()});
}

void SimScheduler::wait_for_wake(SimThread& self) {
  PYRDMA_ASSERT(!guest_runs_);
  if (self.kill_pending) unwind_killed(self);  // killed in preempt()
  if (self.core != nullptr) self.core->free_at = std::max(self.core->free_at, self.clock);
  SimThread& due = next_thread();
  if (&due != &self) {
    current_ = &due;
    Fiber::switch_between(self.fiber, due.fiber, left_);
    while (guest_ != nullptr) serve_guest();  // only the external thread is given any
  }
  current_ = &self;
  if (interrupt_ != Interrupt::kNone && &self == &external_) throw_interrupt();
  if (self.kill_pending) unwind_killed(self);
}

void SimScheduler::unwind_killed(SimThread& self) {
  self.kill_pending = false;
  self.unwinding = true;
  self.wake_ticket = 0;  // a wake that it has scheduled for itself is void
  self.wake_time = kNever;
  throw NodeKilled{};
}

void SimScheduler::throw_interrupt() {
  const Interrupt cause = interrupt_;
  interrupt_ = Interrupt::kNone;
  if (cause == Interrupt::kStopped) {
    stop_.store(false, std::memory_order_relaxed);
    throw Error(ErrorCode::kTimeout, "the simulation was stopped on request", false);
  }
  std::string waiting;
  for (const SimNodeThreads* node : nodes_)
    for (const auto& thread : node->threads)
      if (!thread->finished && waiting.size() < 400) waiting += " " + thread->name;
  if (cause == Interrupt::kTimeLimit)
    throw Error(ErrorCode::kTimeout,
                "the simulation exceeded its limit of virtual time (" +
                    std::to_string(time_limit_ / 1000) + " ns); threads still running:" + waiting,
                false);
  throw Error(ErrorCode::kInternal,
              "deadlock: no event is left, and these threads wait without a deadline:" + waiting,
              false);
}

// Returns true while the thread's node is paused: the thread is due after the pause.
bool SimScheduler::hold_back(SimThread& thread) {
  thread.held_back = false;
  if (thread.node == nullptr || thread.node->paused_until <= now_ || thread.kill_pending) [[likely]]
    return false;
  thread.held_back = true;
  thread.wake_time = thread.node->paused_until;
  thread.wake_ticket = queue_.push(thread.wake_time, &thread);
  return true;
}

void SimScheduler::pause(SimNodeThreads& node, Picos when) {
  node.paused_until = std::max(node.paused_until, when);
}

void SimScheduler::resume(SimNodeThreads& node) {
  node.paused_until = 0;
  for (const auto& thread : node.threads)
    if (thread->held_back) wake_at(*thread, clock());
}

void SimScheduler::set_slow(SimNodeThreads& node, std::uint32_t shift) {
  node.slow_shift = shift;
  for (const auto& thread : node.threads) thread->slow_shift = shift;
}

// Returns true when the thread may run on its core now; otherwise the scheduler has queued it for
// later.
bool SimScheduler::take_core(SimThread& thread) {
  SimCore* core = thread.core;
  if (core == nullptr || core->threads <= 1) return true;
  Picos start = std::max(now_, core->free_at);
  if (start <= now_ && core->last_thread != &thread) {
    start = now_ + thread.node->context_switch;
    core->last_thread = &thread;
    core->free_at = start;
  }
  if (start <= now_) {
    core->waiting -= thread.waits_for_core;
    thread.waits_for_core = false;
    return true;
  }
  core->waiting += !thread.waits_for_core;
  thread.waits_for_core = true;
  thread.wake_time = start;
  thread.wake_ticket = queue_.push(start, &thread);
  return false;
}

void SimScheduler::start_timers(SimNodeThreads& node, const TimerTicks& ticks) {
  node.ticks = ticks;
  for (SimCore& core : node.cores)
    core.next_tick =
        static_cast<Picos>(node.ticks.stream.below(static_cast<std::uint64_t>(ticks.period)));
}

// A busy thread loses the time of each tick since its last wait. A thread that waited loses what is
// left of a tick under way.
void SimScheduler::take_ticks(SimThread& thread, bool busy) {
  TimerTicks& ticks = thread.node->ticks;
  Picos& next = thread.core->next_tick;
  if (!busy) next += (thread.clock - next) / ticks.period * ticks.period;
  for (; next <= thread.clock; next += ticks.period) {
    const Picos taken =
        ticks.mean / 2 +
        static_cast<Picos>(ticks.stream.below(static_cast<std::uint64_t>(ticks.mean) + 1));
    thread.clock = std::max(thread.clock, (busy ? thread.clock : next) + taken);
  }
}

void SimScheduler::wake_at(SimThread& thread, Picos when) {
  if (thread.wake_time <= when || thread.finished) return;
  // The threads of a killed node unwind in the order of kill(), whose caller may be ahead in time.
  if (thread.kill_pending && thread.wake_time != kNever) return;
  thread.wake_time = when;
  thread.wake_ticket = queue_.push(when, &thread);
}

// ---- calls of a thread ----

void SimScheduler::sync() {
  SimThread& self = *current_;
  if (self.unwinding || guest_runs_) return;
  if (self.core != nullptr && self.core->next_tick <= self.clock) [[unlikely]]
    take_ticks(self, true);
  if (!queue_.has_before(self.clock)) {
    now_ = std::max(now_, self.clock);
    return;
  }
  wake_at(self, self.clock);
  wait_for_wake(self);
}

void SimScheduler::work(Picos duration) {
  SimThread& self = *current_;
  duration <<= self.slow_shift;
  while (self.core != nullptr && self.core->threads > 1 && duration > 0 && !self.unwinding &&
         !guest_runs_) {
    const Picos slice = std::min(duration, self.node->timeslice);
    self.clock += slice;
    duration -= slice;
    sync();
    if (duration > 0 &&
        self.core->waiting > 0) {  // the slice is over: the thread goes to the end of the queue
      self.core->last_thread = nullptr;
      wake_at(self, self.clock);
      wait_for_wake(self);
    }
  }
  self.clock += duration;
}

bool SimScheduler::preempt(Picos duration) noexcept {
  if (in_event_ || is_external() || guest_runs_ || current_->unwinding || current_->kill_pending)
    return false;
  current_->preempted = true;
  try {
    wake_at(*current_, current_->clock + duration);
    wait_for_wake(*current_);
  } catch (const NodeKilled&) {
    // The caller may be a destructor. The thread unwinds at its next wait, before other threads of
    // its node do.
    current_->unwinding = false;
    current_->kill_pending = true;
  }
  return true;
}

void SimScheduler::sleep_until(Picos when) {
  SimThread& self = *current_;
  if (self.unwinding) return;
  if (when <= self.clock) return sync();
  refuse_guest_wait();
  wake_at(self, when);  // its core is free meanwhile
  wait_for_wake(self);
}

bool SimScheduler::poll_until(SimNodeThreads& node, FunctionRef<bool()> ready, Picos deadline,
                              Watch* only, Picos least_turn) {
  SimThread& self = *current_;
  Watch& target = only != nullptr ? *only : is_external() ? anything_ : node.touched;
  for (bool first = true;; first = false) {
    const Picos start = self.clock;
    const std::uint32_t notices = target.notices_;
    if (ready()) return true;
    const bool missed = target.notices_ != notices;
    if (self.unwinding || self.clock >= deadline) return false;
    refuse_guest_wait();
    if (self.clock == start) self.clock += least_turn;
    // Other threads may wait for an effect of this thread. A preempted thread has its effects after
    // they have looked.
    if ((first || std::exchange(self.preempted, false)) && self.node != nullptr) touch(*self.node);
    self.grid_start = self.clock;
    self.grid_step = self.clock - start;
    self.deadline = deadline;
    if (deadline != kNever && self.deadline_timer.armed_for > deadline) {
      self.deadline_timer.armed_for = deadline;
      schedule(self.deadline_timer, deadline);
    }
    watch(self, target);
    if (missed) wake_at(self, self.clock);
    self.parked = true;
    struct Unpark {
      SimThread& thread;
      ~Unpark() {
        thread.parked = false;
        unwatch(thread);
      }
    } unpark{self};
    wait_for_wake(self);
  }
}

void SimScheduler::watch(SimThread& thread, Watch& watch) {
  SimThread* first = watch.first_;
  thread.next_watcher = first;
  thread.watcher_link = &watch.first_;
  if (first != nullptr) first->watcher_link = &thread.next_watcher;
  watch.first_ = &thread;
}

void SimScheduler::unwatch(SimThread& thread) {
  if (thread.watcher_link == nullptr) return;
  *thread.watcher_link = thread.next_watcher;
  if (thread.next_watcher != nullptr) thread.next_watcher->watcher_link = thread.watcher_link;
  thread.watcher_link = nullptr;
}

void SimScheduler::notify(Watch& watch) {
  const Picos when = clock();
  ++watch.notices_;
  while (watch.first_ != nullptr) {
    SimThread& thread = *watch.first_;
    unwatch(thread);
    Picos turn = thread.grid_start;
    if (when > turn)
      turn += (when - turn + thread.grid_step - 1) / thread.grid_step * thread.grid_step;
    wake_at(thread, turn);
  }
}

// ---- threads ----

SimThread* SimScheduler::spawn(SimNodeThreads& node, std::string name, std::function<void()> body,
                               std::uint32_t on_core) {
  if (std::find(nodes_.begin(), nodes_.end(), &node) == nodes_.end()) nodes_.push_back(&node);
  auto owned = std::make_unique<SimThread>(*this);
  SimThread& thread = *owned;
  thread.name = std::move(name);
  thread.node = &node;
  thread.slow_shift = node.slow_shift;
  thread.body = std::move(body);
  thread.clock = clock() + node.starts.draw();
  thread.kill_pending = node.killed;  // its creator was killed in preempt() and has not unwound yet
  if (!node.cores.empty()) {
    const std::size_t core =
        on_core != Env::kNextCore ? on_core : node.next_core++ % node.cores.size();
    thread.core = &node.cores[core];
    node.used_cores += thread.core->threads++ == 0;
    thread.remote = core >= node.cores_per_socket;
    node.remote_threads += thread.remote;
  }
  thread.fiber.create([this, &thread] { return thread_main(thread); }, left_);
  node.threads.push_back(std::move(owned));
  wake_at(thread, thread.clock);
  return &thread;
}

Fiber* SimScheduler::thread_main(SimThread& thread) {
  current_ = &thread;
  try {
    if (!thread.kill_pending) {
      thread.body();
      sync();  // it ends when its last work does
    }
  } catch (const NodeKilled&) {
    // The node has lost its power: nothing of the thread remains.
  } catch (...) {
    thread.failure = std::current_exception();
  }
  thread.body = nullptr;
  thread.finished = true;
  if (thread.core != nullptr) {
    thread.node->used_cores -= --thread.core->threads == 0;
    thread.core->free_at = std::max(thread.core->free_at, thread.clock);
  }
  notify(thread.finish_watch);
  notify(any_finish_);
  touch(*thread.node);
  SimThread& next = next_thread();
  current_ = &next;
  return &next.fiber;
}

void SimScheduler::await_finish(SimThread& thread) {
  if (thread.finished || current_->unwinding) return;
  poll_until(
      *thread.node, [&thread] { return thread.finished; }, kNever, &thread.finish_watch, 1000);
}

void SimScheduler::await_finish_unthrown(SimThread& thread) noexcept {
  try {
    await_finish(thread);
  } catch (const NodeKilled&) {
    // A destructor must not throw. A `thread` that was killed together with this thread and was
    // spawned later has unwound by now; this thread unwinds at its next wait.
    current_->unwinding = false;
    current_->kill_pending = true;
  }
}

void SimScheduler::await_all(const std::vector<SimThread*>& threads, const std::uint32_t& coming) {
  if (threads.empty()) return;
  poll_until(
      *threads.front()->node,
      [&threads, &coming] {
        bool all = coming == 0;
        for (const SimThread* thread : threads) {
          if (thread->failure) return true;
          all = all && thread->finished;
        }
        return all;
      },
      kNever, &any_finish_, 1000);
}

void SimScheduler::kill(SimNodeThreads& node) {
  node.killed = true;
  bool self = false;
  for (auto it = node.threads.rbegin(); it != node.threads.rend(); ++it) {
    SimThread& thread = **it;
    if (thread.finished || thread.unwinding) continue;
    if (&thread == current_ && !in_event_) {
      self = true;
      continue;
    }
    thread.kill_pending = true;
    if (thread.core != nullptr) thread.node->used_cores -= --thread.core->threads == 0;
    thread.core = nullptr;  // a dead thread needs no core to unwind on
    thread.wake_time = kNever;
    wake_at(thread, clock());
  }
  if (self && guest_runs_) {
    current_->kill_pending = true;  // it unwinds when it waits
  } else if (self) {
    current_->unwinding = true;
    throw NodeKilled{};
  }
}

void SimScheduler::unwind(SimNodeThreads& node) {
  PYRDMA_ASSERT(is_external());
  const bool was_killed = node.killed;
  kill(node);
  unwinds_ = true;  // no request to stop ends it early, or threads would stay behind
  for (const auto& thread : node.threads) await_finish(*thread);
  unwinds_ = false;
  node.killed = was_killed;
}

}  // namespace pyrdma
