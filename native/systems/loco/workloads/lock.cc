// loco_lock: every thread of every node wants one lock, to read a word, increment it and write it
// (LOCO, section 7.1 and figure 4, left).
#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/barrier.h"
#include "systems/loco/baselines/mpi_windows.h"
#include "systems/loco/baselines/test_and_set_lock.h"
#include "systems/loco/scopes.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/ticket_lock.h"
#include "systems/loco/workloads/options.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

namespace {

using Int = std::int64_t;

enum class LockSystem : std::uint8_t { kLoco, kTestAndSet, kMpiWindows };

fabric::Status checked(fabric::Status status) {
  if (status == fabric::Status::kSuccess) return status;
  throw Error(
      ErrorCode::kUnavailable,
      std::string("the counter under the lock cannot be reached (") + to_string(status) + ")",
      false);
}

/// The word and its lock are both at node 0, so the pair fence suffices.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void open(Caller&) {}
  virtual void add_one(Caller& me, MemRef& word, AckKey& last) = 0;
  virtual AckKey read(Caller& me, const MemRef& into) = 0;
};

class LocoCounter final : public Counter {
 public:
  LocoCounter(Manager& manager, Fence fence, const TicketLockOptions& options, bool by_cpu)
      : lock_(manager, "lock", options),
        data_(manager, "data", 8, kReadWrite),
        fence_(fence),
        own_(by_cpu && manager.self() == 0 ? reinterpret_cast<std::uint64_t*>(data_.local())
                                           : nullptr) {}

  void add_one(Caller& me, MemRef& word, AckKey& last) override {
    lock_.acquire(me);
    checked(last.wait());
    if (own_ != nullptr) {
      store_release(own_, load_acquire(own_) + 1);
      last = lock_.release(me, fence_);
      return;
    }
    checked(read(me, word).wait());
    ++*word.as<std::uint64_t>();
    const fabric::Sge from = word.sge(8);
    if (fence_ != Fence::kPair) {
      last = data_.write(me, 0, 0, from);
      last.unite(lock_.release(me, fence_));
      return;
    }
    Requests write;
    write.add(fabric::Opcode::kWrite, data_.at(0), 0, from);
    last = static_cast<TicketLocks&>(lock_).release(me, 0, fence_, write);
  }
  AckKey read(Caller& me, const MemRef& into) override { return data_.read(me, 0, 0, into.sge(8)); }

 private:
  TicketLock lock_;
  SharedRegion data_;
  Fence fence_;
  std::uint64_t* own_;  // the word, if this node's CPU works on it
};

class TestAndSetCounter final : public Counter {
 public:
  explicit TestAndSetCounter(Manager& manager)
      : locks_(manager, "lock", 1), data_(manager, "data", 8, kReadWrite) {}

  void add_one(Caller& me, MemRef& word, AckKey& last) override {
    locks_.acquire(me, 0);
    checked(last.wait());
    checked(read(me, word).wait());
    ++*word.as<std::uint64_t>();
    const fabric::Sge from = word.sge(8);
    fabric::WorkRequest write;
    write.sges = &from;
    write.sge_count = 1;
    write.remote_addr = data_.at(0).addr;
    write.rkey = data_.at(0).rkey;
    last = locks_.release(me, 0, {&write, 1});
  }
  AckKey read(Caller& me, const MemRef& into) override { return data_.read(me, 0, 0, into.sge(8)); }

 private:
  TestAndSetLocks locks_;
  SharedRegion data_;
};

class MpiCounter final : public Counter {
 public:
  MpiCounter(Manager& manager, std::uint32_t ranks)
      : windows_(manager, "mpi", {1, ranks, 8, false}) {}

  void open(Caller& me) override { windows_.open(me); }
  void add_one(Caller& me, MemRef& word, AckKey&) override {
    windows_.lock(me, 0, 0);
    checked(read(me, word).wait());
    ++*word.as<std::uint64_t>();
    windows_.unlock(me, 0, 0, windows_.put(me, 0, 0, 0, word));
  }
  AckKey read(Caller& me, const MemRef& into) override { return windows_.get(me, 0, 0, 0, into); }

 private:
  MpiWindows windows_;
};

class LocoLock final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_runtime_parameters(with_preset({
        {"system",
         std::string("loco"),
         "",
         "lock to measure: LOCO's ticket lock, or a model of a test-and-set lock or of MPI's "
         "window locks",
         0,
         0,
         {"loco", "test_and_set", "mpi_windows"}},
        {"fence",
         std::string("pair"),
         "",
         "fence before a release",
         0,
         0,
         {"pair", "thread", "global"},
         "loco"},
        {"handovers",
         Int{16},
         "count",
         "hand-overs of the lock to threads of one node in a row",
         0,
         1 << 20,
         {},
         "loco"},
        {"backoff_ns",
         Int{1000},
         "ns",
         "pause per ticket before the caller's own",
         0,
         1e9,
         {},
         "loco"},
        {"device_memory",
         Int{0},
         "bool",
         "the lock's words are in the NIC's memory",
         0,
         1,
         {},
         "loco"},
        own_memory_parameter(),
    }));
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const std::uint32_t threads = params.count("threads");
    Manager manager(env, loco_options(params));
    const std::unique_ptr<Counter> counter = make(manager, params, threads);
    AtomicVar total(manager, "total", 0);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    counter->open(manager.caller(0));
    barrier.wait(manager.caller(0));
    recorder.prepare_threads(threads);
    const measure::Interval common(env.now(), params);
    const auto body = [&](std::uint32_t i) {
      Caller& me = manager.caller(i);
      measure::Histogram& latency = recorder.thread(i).histogram("critical_section");
      MemRef word = me.block(8);
      AckKey last;
      std::uint64_t done = 0;
      measure::Interval interval = common;
      for (Time begin = env.now(); !interval.over(begin); ++done) {
        const Scope step(env, scope::lock_section);
        counter->add_one(me, word, last);
        const Time end = env.now();
        if (interval.count(end)) latency.record(end - begin);
        begin = end;
      }
      checked(last.wait());
      MemRef old = me.block(8);
      checked(total.fetch_add(me, done, old).wait());
      interval.add_rates(recorder.thread(i));
    };
    measure::on_threads(env, threads, body);
    barrier.wait(manager.caller(0));
    if (env.node() == 0) check(manager.caller(0), *counter, total);
    barrier.wait(manager.caller(0));
    manager.leave();
  }

 private:
  static std::unique_ptr<Counter> make(Manager& manager, const measure::Params& params,
                                       std::uint32_t threads) {
    switch (params.choice<LockSystem>("system")) {
      case LockSystem::kTestAndSet:
        return std::make_unique<TestAndSetCounter>(manager);
      case LockSystem::kMpiWindows:
        return std::make_unique<MpiCounter>(manager, threads);
      case LockSystem::kLoco:
        break;
    }
    constexpr Fence kFences[] = {Fence::kPair, Fence::kThread, Fence::kGlobal};
    TicketLockOptions options = lock_options(params);
    options.max_handovers = params.count("handovers");
    options.backoff = params.integer("backoff_ns");
    if (params.flag("device_memory")) options.placement = Placement::kDevice;
    return std::make_unique<LocoCounter>(manager, kFences[params.choice<std::size_t>("fence")],
                                         options, by_cpu(params));
  }

  static void check(Caller& me, Counter& counter, AtomicVar& total) {
    MemRef counted = me.block(8), done = me.block(8);
    checked(counter.read(me, counted).wait());
    checked(total.load(me, done).wait());
    if (*counted.as<std::uint64_t>() == *done.as<std::uint64_t>()) return;
    throw Error(
        ErrorCode::kInternal,
        "the counter under the lock is " + std::to_string(*counted.as<std::uint64_t>()) +
            " after " + std::to_string(*done.as<std::uint64_t>()) +
            " increments: the lock failed to provide mutual exclusion; report this as a bug");
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_lock() { return std::make_unique<LocoLock>(); }

}  // namespace pyrdma::loco
