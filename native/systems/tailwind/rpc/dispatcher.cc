#include "systems/tailwind/rpc/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "systems/tailwind/rpc/background.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

namespace {

Error out_of_memory() {
  return Error(ErrorCode::kExhausted,
               "a server has no memory left; give fewer servers or a smaller log_bytes");
}

}  // namespace

bool Worker::wait_for(FunctionRef<bool()> ready, Time deadline, Watch* only) {
  Env& env = dispatcher_.env_;
  if (!is_dispatch_) return env.poll_until_ref(ready, deadline, only);
  const std::uint32_t level = level_;
  bool is_ready = ready();
  while (!is_ready && env.now() < deadline) {
    const auto moves = [&] { return dispatcher_.turn(level) || ready(); };
    env.poll_until(moves, std::min(deadline, dispatcher_.next_tick_));
    dispatcher_.transport_.expect_completions();
    is_ready = ready();
  }
  level_ = level;  // requests that ran meanwhile have set theirs
  return is_ready;
}

// A ping waits for a small part of its timeout. A tick is the longest time between two turns.
Dispatcher::Dispatcher(Transport& transport, std::uint32_t workers, Serve serve,
                       ServeTogether serve_together, Bytes refusal)
    : transport_(transport),
      env_(transport.env()),
      count_(workers),
      idle_after_(transport.options().idle_after),
      idle_sleep_(std::max<Time>(std::min({transport.options().idle_sleep,
                                           transport.options().ping_timeout / 8, transport.tick()}),
                                 1)),
      serve_(std::move(serve)),
      serve_together_(std::move(serve_together)),
      refusal_(std::move(refusal)),
      failure_mutex_(env_) {
  for (std::uint32_t i = 0; i < count_; ++i)
    workers_.push_back(std::unique_ptr<Worker>(new Worker(*this, false)));
  if (count_ == 0) workers_.push_back(std::unique_ptr<Worker>(new Worker(*this, true)));
  for (std::uint32_t i = 0; i < count_; ++i) {
    Worker& worker = *workers_[i];
    worker.thread_ = env_.spawn(
        "tailwind/worker/" + std::to_string(i), [this, &worker, i] { work(worker, i); },
        core_beside(env_, i));
  }
}

Dispatcher::~Dispatcher() {
  is_stopping_.store(true, std::memory_order_release);
  for (const auto& worker : workers_) env_.notify(worker->watch_);
  for (const auto& worker : workers_) worker->thread_.reset();
}

CpuTimes Dispatcher::times() const {
  return {dispatch_time_.load(), worker_time_.load(), replicating_.load(), requests_.load()};
}

CpuTimes Dispatcher::load_times() const {
  return {after_load_.dispatch - before_load_.dispatch, after_load_.workers - before_load_.workers,
          after_load_.replicating - before_load_.replicating,
          after_load_.requests - before_load_.requests};
}

void Dispatcher::begin_load() {
  if (load_began_ != 0) return;
  load_began_ = env_.now();
  before_load_ = times();
}

void Dispatcher::end_load() {
  load_ended_ = env_.now();
  after_load_ = times();
}

void Dispatcher::run(FunctionRef<bool()> is_over) {
  const auto ends = [&] { return is_over() || has_failed(); };
  const auto moves = [&] {
    if (turn(kNoLevel) || ends()) return true;
    if (is_idle_.load(std::memory_order_relaxed)) env_.sleep_until(env_.now() + idle_sleep_);
    return false;
  };
  try {
    while (!ends()) {
      env_.poll_until(moves, next_tick_, &transport_.watch());
      transport_.expect_completions();
    }
  } catch (const Error& error) {
    fail(error);
  } catch (const std::bad_alloc&) {
    fail(out_of_memory());
  }
  is_over();
  while (busy_ != 0) env_.poll_until([&] { return turn(0); }, next_tick_, &transport_.watch());
  const std::lock_guard<Mutex> lock(failure_mutex_);
  if (failure_) throw Error(*failure_);
}

void Dispatcher::fail(const Error& error) {
  const std::lock_guard<Mutex> lock(failure_mutex_);
  if (!failure_) failure_ = error;
  has_failed_.store(true, std::memory_order_release);
}

bool Dispatcher::run_until(FunctionRef<bool()> ready, Time deadline) {
  while (!ready()) {
    if (env_.now() >= deadline) return false;
    env_.poll_until([&] { return turn(kNoLevel) || ready(); }, std::min(deadline, next_tick_),
                    &transport_.watch());
  }
  return true;
}

// A request that runs here and waits takes turns of its own: their time is a part of its turn's,
// which may never end while others come. So that is counted as it goes on.
bool Dispatcher::turn(std::uint32_t level) {
  struct Nested {
    std::uint32_t& turns;
    ~Nested() { --turns; }
  } const nested{++turns_};
  const bool is_outer = turns_ == 1;
  const bool is_busy = [&] {
    const Scope step(env_, scope::turn);
    return take_turn(level);
  }();
  if (!is_outer) {
    if (turn_began_ - counted_until_ > kMicrosecond) count_until(turn_began_);
    return is_busy;
  }
  was_busy_ = is_busy;
  // Without an idle turn between them, the time between two turns was spent in the loop, too.
  if (is_busy) count_until(env_.now());
  return is_busy;
}

void Dispatcher::count_until(Time now) {
  dispatch_time_.fetch_add(now - counted_until_, std::memory_order_relaxed);
  counted_until_ = now;
}

bool Dispatcher::take_turn(std::uint32_t level) {
  const Time now = turn_began_ = env_.now();
  if (turns_ == 1 && !was_busy_) counted_until_ = now;
  const bool has_polled = transport_.poll(arrived_);
  const bool has_done = done_.load(std::memory_order_acquire) != 0;
  note_idle(now);
  if (now >= next_tick_) {
    next_tick_ = now + transport_.tick();
    transport_.keep_time();
    refuse_late(now);
  } else if (!has_polled && !has_done) {
    return false;
  }
  for (auto& request : arrived_) {
    const std::uint32_t of = level_of(request->opcode);
    if (request->opcode == Opcode::kPing) {
      const std::uint64_t self = transport_.self().number();
      transport_.answer(std::move(request), std::as_bytes(std::span(&self, 1)));
    } else if (of == 1 && waiting_[of].size() >= kMostWaiting) {
      env_.reached("tailwind/refused_early");
      transport_.answer(std::move(request), refusal_);
    } else {
      waiting_[of].push_back(std::move(request));
    }
  }
  arrived_.clear();
  if (has_done) take_done();
  if (count_ == 0)
    run_here(std::min(level, kLevels));
  else if (level != 0)
    hand_out();
  return true;
}

// While updates wait for a backup, each comes again and again, and takes a receive each time.
void Dispatcher::refuse_late(Time now) {
  auto& waiting = waiting_[1];
  while (!waiting.empty() && now - waiting.front()->arrived > transport_.options().call_timeout) {
    env_.reached("tailwind/refused_late");
    transport_.answer(std::move(waiting.front()), refusal_);
    waiting.pop_front();
  }
}

// In virtual time a worker that waits looks only after a notice.
void Dispatcher::note_idle(Time now) {
  const bool is_idle = busy_ == 0 && now - transport_.last_event() > idle_after_;
  if (is_idle == is_idle_.load(std::memory_order_relaxed)) return;
  is_idle_.store(is_idle, std::memory_order_relaxed);
  if (!is_idle) return;
  env_.reached("tailwind/idle");
  for (const auto& worker : workers_) env_.notify(worker->watch_);
}

void Dispatcher::take_done() {
  for (const auto& worker : workers_) {
    if (worker->state_.load(std::memory_order_acquire) != Worker::State::kDone) continue;
    const Scope step(env_, scope::take_done);
    done_.fetch_sub(1, std::memory_order_relaxed);
    if (worker->request_ != nullptr)
      transport_.answer(std::move(worker->request_), worker->answer_);
    if (worker->level_ == 1) end_load();
    --running_[worker->level_];
    --busy_;
    worker->state_.store(Worker::State::kIdle, std::memory_order_relaxed);
  }
}

void Dispatcher::hand_out() {
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    auto& waiting = waiting_[level];
    while (!waiting.empty()) {
      if (running_[level] != 0 && (busy_ >= count_ || level == kRecoveryLevel)) break;
      const auto idle = std::ranges::find_if(workers_, [](const auto& worker) {
        return worker->state_.load(std::memory_order_relaxed) == Worker::State::kIdle;
      });
      Worker* worker = idle != workers_.end() ? idle->get() : nullptr;
      if (worker == nullptr) {
        env_.reached("tailwind/extra_worker");
        workers_.push_back(std::unique_ptr<Worker>(new Worker(*this, false)));
        worker = workers_.back().get();
        const auto number = static_cast<std::uint32_t>(workers_.size() - 1);
        worker->thread_ = env_.spawn(
            "tailwind/worker/" + std::to_string(number),
            [this, worker, number] { work(*worker, number); },
            core_beside(env_, number + 1));  // behind background_core()
      }
      start(*worker, std::move(waiting.front()), level);
      waiting.pop_front();
    }
  }
}

void Dispatcher::start(Worker& worker, std::unique_ptr<Incoming> request, std::uint32_t level) {
  const Scope step(env_, scope::hand_over);
  if (level == 1) begin_load();
  ++running_[level];
  ++busy_;
  if (busy_ > most_workers_.load(std::memory_order_relaxed))
    most_workers_.store(busy_, std::memory_order_relaxed);
  worker.level_ = level;
  worker.request_ = std::move(request);
  worker.state_.store(Worker::State::kBusy, std::memory_order_release);
  env_.notify(worker.watch_);
}

// The first idle worker gets the next request, so later ones may sleep longer.
void Dispatcher::work(Worker& worker, std::uint32_t number) {
  const Time idle_sleep = idle_sleep_ * (1 + std::min(number, 7U));
  const auto is_called = [&] {
    return worker.state_.load(std::memory_order_acquire) == Worker::State::kBusy ||
           is_stopping_.load(std::memory_order_acquire);
  };
  const auto looks = [&] {
    if (is_called()) return true;
    if (!is_idle_.load(std::memory_order_relaxed)) return false;
    env_.sleep_until(env_.now() + idle_sleep);
    return is_called();
  };
  while (true) {
    env_.poll_until(looks, kForever, &worker.watch_);
    if (worker.state_.load(std::memory_order_acquire) != Worker::State::kBusy) return;
    const Scope step(env_, scope::work);
    const Time begin = env_.now();
    worker.answer_.clear();
    worker.replicating = 0;
    try {
      serve_(worker, *worker.request_, worker.answer_);
    } catch (const Error& error) {
      worker.request_.reset();  // it gets no answer
      fail(error);
    } catch (const std::bad_alloc&) {
      worker.request_.reset();
      fail(out_of_memory());
    }
    worker_time_.fetch_add(env_.now() - begin, std::memory_order_relaxed);
    replicating_.fetch_add(worker.replicating, std::memory_order_relaxed);
    requests_.fetch_add(1, std::memory_order_relaxed);
    worker.state_.store(Worker::State::kDone, std::memory_order_release);
    done_.fetch_add(1, std::memory_order_release);
    env_.notify(transport_.watch());
  }
}

// A request that waits here serves others, which come back here with a lower level.
void Dispatcher::run_here(std::uint32_t below) {
  Worker& self = *workers_.front();
  for (std::uint32_t level = 0; level < below; ++level) {
    while (!waiting_[level].empty()) {
      if (level == 1 && serve_together_) {
        run_together();
        continue;
      }
      std::unique_ptr<Incoming> held = std::move(waiting_[level].front());
      waiting_[level].pop_front();
      Bytes answer;
      self.level_ = level;
      if (level == 1) begin_load();
      serve_(self, *held, answer);
      if (level == 1) end_load();
      requests_.fetch_add(1, std::memory_order_relaxed);
      transport_.answer(std::move(held), answer);
    }
  }
}

// While it waits, no request of this level begins here.
void Dispatcher::run_together() {
  auto& waiting = waiting_[1];
  const std::size_t count = std::min(waiting.size(), kMostTogether);
  std::move(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count),
            std::back_inserter(together_));
  waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
  answers_.resize(count);
  for (Bytes& answer : answers_) answer.clear();
  Worker& self = *workers_.front();
  self.level_ = 1;
  begin_load();
  serve_together_(self, together_, answers_);
  end_load();
  requests_.fetch_add(count, std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) transport_.answer(std::move(together_[i]), answers_[i]);
  together_.clear();
}

}  // namespace pyrdma::tailwind
