#include "systems/erpc/fuzz/store/store_scenario.h"

#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz/fault_phase.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/erpc/endpoint.h"
#include "systems/erpc/fuzz/erpc_scenario.h"
#include "systems/erpc/fuzz/store/store_world.h"
#include "systems/erpc/workloads/store_handlers.h"

namespace pyrdma::erpc {
namespace {

using namespace store;

const fuzz::FaultsLeftOutList kLeftOutOfStore = fuzz::joined(
    kLeftOutOfRpcs, {{{Fault::host_crash, Fault::battery_crash},
                      "the store is in the memory of one node: its clients alone crash"},
                     {{Fault::memory_pressure}, "a client that finds no memory ends"},
                     {fuzz::kDiskFaults, "the store writes nothing to a disk"}});

/// Node 0.
class StoreNode {
 public:
  StoreNode(StoreWorld& world, Env& env)
      : world_(world),
        store_(env, {.max_keys = kMostKeys * world.histories.size(),
                     .readers = 2 + world.shape.workers,
                     .bugs = StoreBugs::named(world.options.mutation)}),
        gets_(store_),
        scans_(env, store_, std::max(1U, world.shape.workers)) {
    Options options = world.shape.endpoint;
    options.workers = world.shape.workers;
    endpoint_ = std::make_unique<Endpoint>(env, options);
    const RunIn where = world.shape.workers != 0 ? RunIn::kWorker : RunIn::kDispatch;
    endpoint_->register_handler(kGetRequest, [this](RequestHandle& handle) {
      if (const auto found = gets_.get(word(handle, 0))) answer(handle, &*found, sizeof *found);
      handle.respond();
    });
    endpoint_->register_handler(
        kPutRequest,
        [this](RequestHandle& handle) {
          const StoreOutcome done = store_.put(word(handle, 0), word(handle, 1));
          answer(handle, &done, sizeof done);
          handle.respond();
        },
        where);
    endpoint_->register_handler(
        kEraseRequest,
        [this](RequestHandle& handle) {
          const StoreOutcome done = store_.erase(word(handle, 0));
          answer(handle, &done, sizeof done);
          handle.respond();
        },
        where);
    endpoint_->register_handler(
        kScanRequest, [this](RequestHandle& handle) { scan(handle); }, where);
  }
  void run() {
    endpoint_->run_until([this] { return world_.finished.size() + 1 == world_.options.nodes; },
                         kForever);
  }

 private:
  static std::uint64_t word(const RequestHandle& handle, std::size_t number) {
    std::uint64_t found = 0;
    std::memcpy(&found, handle.request().data() + number * sizeof found, sizeof found);
    return found;
  }
  static void answer(RequestHandle& handle, const void* data, std::size_t bytes) {
    const auto response = handle.response(static_cast<std::uint32_t>(bytes));
    if (bytes != 0) std::memcpy(response.data(), data, bytes);
  }
  void scan(RequestHandle& handle) {
    std::array<StoreEntry, kMostScanned> entries;
    auto reader = scans_.take();
    const std::size_t count =
        reader->scan(word(handle, 0), std::span(entries).first(word(handle, 1)));
    scans_.give_back(std::move(reader));
    answer(handle, entries.data(), count * sizeof(StoreEntry));
    handle.respond();
  }

  StoreWorld& world_;
  OrderedStore store_;
  StoreReader gets_;
  SharedReaders scans_;
  std::unique_ptr<Endpoint> endpoint_;  // ends before the store
};

/// A node that uses the store.
class StoreUser {
 public:
  StoreUser(StoreWorld& world, Env& env)
      : world_(world),
        env_(env),
        rng_(env.rng("fuzz store crashes")),
        endpoint_(env, world.shape.endpoint),
        calls_(world.shape.slots) {
    for (Call& call : calls_) {
      call.user = this;
      call.process = world.processes++;
      call.request = endpoint_.allocate(2 * sizeof(std::uint64_t));
      call.response = endpoint_.allocate(kMostScanned * sizeof(StoreEntry));
    }
    session_ = endpoint_.create_session({0, 0});
  }

  void run() {
    const auto& plan = world_.plans[env_.node()];
    std::size_t& next = world_.next[env_.node()];
    while (next < plan.size()) {
      Call* const call = free_call();
      const PlannedCall& planned = plan[next++];
      endpoint_.run_for(planned.pause);
      const std::uint64_t mark = world_.phase.operation();
      if (world_.options.keeps(planned.id)) {
        begin(*call, planned, mark);
        may_crash(planned.pause);
      } else {
        world_.phase.ended(mark);
      }
    }
    if (env_.node() == 1) {
      const std::uint32_t others = world_.options.nodes - 2;
      endpoint_.run_until([&] { return world_.finished.size() == others && is_idle(); }, kForever);
      read_all();
    }
    endpoint_.run_until([this] { return is_idle(); }, kForever);
    world_.finished.insert(env_.node());
  }

 private:
  struct Call {
    StoreUser* user = nullptr;
    PlannedCall planned;
    std::int32_t process = 0;
    MsgBuffer *request = nullptr, *response = nullptr;
    std::uint64_t mark = 0;  // of the phase
    bool is_open = false;
  };

  bool is_idle() const {
    return std::ranges::none_of(calls_, [](const Call& call) { return call.is_open; });
  }

  // The faults kill and restart this client soon. Node 0 lives.
  void may_crash(Time pause) {
    if (!world_.cluster->faults_are_on() ||
        !world_.phase.begins(Fault::crash, pause + kMicrosecond, rng_))
      return;
    const auto soon = static_cast<Time>(rng_.below(10'000));
    ++world_.crashes;
    world_.cluster->kill_later(env_.node(), soon);
    world_.cluster->restart_later(env_.node(), soon + 100 * kMicrosecond);
  }

  // A loss shows at the latest when all keys are read at the end, by one scan for each few of them.
  void read_all() {
    PlannedCall last;
    last.type = kScanRequest;
    last.argument = kMostScanned;
    for (std::size_t block = 0; block < world_.histories.size(); ++block) {
      for (std::uint64_t key = 0; key < world_.shape.keys; key += kMostScanned) {
        last.id = static_cast<std::uint32_t>(block * kBlock);
        last.key = block * kMostKeys + key;
        begin(*free_call(), last, world_.phase.operation());
      }
    }
    endpoint_.run_until([this] { return is_idle(); }, kForever);
    world_.outcome.made("last reads");
  }

  Call* free_call() {
    Call* found = nullptr;
    endpoint_.run_until(
        [&] {
          for (Call& call : calls_) {
            if (!call.is_open) found = &call;
          }
          return found != nullptr;
        },
        kForever);
    return found;
  }

  void begin(Call& call, const PlannedCall& planned, std::uint64_t mark) {
    if (endpoint_.is_lost(session_)) {
      endpoint_.destroy_session(session_);
      session_ = endpoint_.create_session({0, 0});
      ++world_.outcome.reconnects;
    }
    call.planned = planned;
    call.mark = mark;
    call.is_open = true;
    const std::uint64_t words[] = {planned.key * kKeyDistance, planned.argument};
    const bool two = planned.type == kPutRequest || planned.type == kScanRequest;
    call.request->resize(two ? sizeof words : sizeof words[0]);
    std::memcpy(call.request->data(), words, call.request->size());
    const auto input = two ? check::Value::integer(static_cast<std::int64_t>(planned.argument))
                           : check::Value::none();
    history_of(planned).invoke(world_.cluster->now(), call.process, function_of(planned.type),
                               key_of(planned), input);
    endpoint_.enqueue_request(
        {session_, planned.type, call.request, call.response, &StoreUser::end, &call, 0});
  }

  static void end(void* context, std::uint64_t, Outcome outcome) {
    auto& call = *static_cast<Call*>(context);
    call.user->finish(call, outcome);
  }
  void finish(Call& call, Outcome outcome) {
    using check::Value;
    StoreWorld& world = world_;
    call.is_open = false;
    world.phase.ended(call.mark);
    const PlannedCall& planned = call.planned;
    const auto complete = [&](check::EventType type, const Value& value) {
      history_of(planned).complete(world.cluster->now(), call.process, type,
                                   function_of(planned.type), key_of(planned), value);
    };
    if (outcome != Outcome::kOk) {
      // What was not sent has not run; anything else may have.
      const bool never = outcome == Outcome::kNotSent;
      ++(never ? world.outcome.fail : world.outcome.info);
      return complete(never ? check::EventType::kFail : check::EventType::kInfo, Value::none());
    }
    ++world.outcome.ok;
    const std::span<const std::byte> bytes = call.response->bytes();
    Value value = Value::none();
    if (planned.type == kGetRequest && bytes.size() == sizeof(std::uint64_t)) {
      value = word_at(bytes, 0);
    } else if (planned.type == kScanRequest) {
      std::vector<Value> entries;
      for (std::size_t at = 0; at + sizeof(StoreEntry) <= bytes.size(); at += sizeof(StoreEntry)) {
        StoreEntry entry;
        std::memcpy(&entry, bytes.data() + at, sizeof entry);
        // Behind the keys of the block come those of the next one.
        if (entry.key / kKeyDistance / kMostKeys != planned.id / kBlock) break;
        entries.push_back(Value::integer(static_cast<std::int64_t>(entry.key / kKeyDistance)));
        entries.push_back(Value::integer(static_cast<std::int64_t>(entry.value)));
      }
      value = history_of(planned).list(entries);
    } else if (planned.type == kEraseRequest && bytes.size() == 1) {
      value = Value::boolean(bytes[0] == static_cast<std::byte>(StoreOutcome::kDone));
    } else if (planned.type == kPutRequest &&
               (bytes.size() != 1 || bytes[0] != static_cast<std::byte>(StoreOutcome::kDone))) {
      world.outcome.report("answer", world.cluster->now(), "a put is refused");
    }
    complete(check::EventType::kOk, value);
  }

  check::History& history_of(const PlannedCall& planned) {
    return world_.histories[planned.id / kBlock];
  }
  static check::Value word_at(std::span<const std::byte> bytes, std::size_t at) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    return check::Value::integer(static_cast<std::int64_t>(word));
  }
  static check::Function function_of(CallType type) {
    constexpr std::array kFunctionsOfStore{check::Function::kGet, check::Function::kPut,
                                           check::Function::kDelete, check::Function::kScan};
    return kFunctionsOfStore[static_cast<std::size_t>(type) - 1];
  }
  static check::Value key_of(const PlannedCall& planned) {
    return check::Value::integer(static_cast<std::int64_t>(planned.key));
  }

  StoreWorld& world_;
  Env& env_;
  Rng rng_;
  Endpoint endpoint_;
  SessionId session_ = 0;
  std::vector<Call> calls_;
};

/// A node that is killed unwinds: its calls may have run, or not. One that dies behind its last
/// call has nothing left to do, and node 0 may be gone.
void run_user(StoreWorld& world, Env& env) {
  if (world.finished.contains(env.node())) return;
  bool returns = false;
  struct Ending {
    StoreWorld& world;
    const bool& returns;
    ~Ending() {
      if (!returns) world.phase.crashed();
    }
  } ending{world, returns};
  if (env.incarnation() != 0) ++world.outcome.restarts;
  StoreUser(world, env).run();
  returns = true;
}

fuzz::Outcome run_store(const fuzz::Options& wanted) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    throw Error(ErrorCode::kUnavailable, problem);
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::FaultPhase phase(options, outcome);
  phase.leave({Fault::crash});
  StoreWorld world(options, outcome, phase);
  fabric::sim::SimOptions simulation = fuzz::simulation_of(options, 4 * options.recovery_limit);
  // The scenario itself kills clients. The simulator only sees that there are faults.
  simulation.faults[Fault::crash].rate = std::min(1e-6, options.faults[Fault::crash].rate);
  fabric::sim::SimCluster cluster(simulation);
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) {
      if (env.node() == 0)
        StoreNode(world, env).run();
      else
        run_user(world, env);
    });
  } catch (const Error& error) {
    outcome.report("error", cluster.now(), std::string(error.what()).substr(0, 200));
  }
  // One of the histories is kept, if any: the first that is wrong, or else the first.
  for (const check::History& history : world.histories) {
    const bool was_wrong = !outcome.violations.empty() || !outcome.undecided.empty();
    fuzz::judge(outcome, options, history, "map", cluster.now());
    if (outcome.histories.size() < 2) continue;
    const bool is_wrong = !outcome.violations.empty() || !outcome.undecided.empty();
    if (is_wrong && !was_wrong) outcome.histories.front() = outcome.histories.back();
    outcome.histories.pop_back();
  }
  fuzz::fill_outcome(outcome, cluster);
  outcome.faults.fired[static_cast<std::size_t>(Fault::crash)] += world.crashes;
  outcome.faults.reached[static_cast<std::size_t>(Fault::crash)] += world.crashes;
  return outcome;
}

}  // namespace

fuzz::Scenario store_scenario() {
  return {"erpc_store",
          "eRPC: an ordered store with scans, behind a network that errs",
          run_store,
          {kStoreBugNames.begin(), kStoreBugNames.end()},
          {},
          kLeftOutOfStore,
          {"erpc/retransmission", "erpc/session_lost"},
          8,
          true,
          2,
          {{"last reads", 0.98}, {"map", 0.9}},
          5,
          4000};
}

}  // namespace pyrdma::erpc
