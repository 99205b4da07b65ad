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
#include "systems/erpc/workloads/store_handlers.h"

namespace pyrdma::erpc {
namespace {

// What datagrams and threads may meet. Node 0 is the store, so no fault kills a node.
const std::vector<Fault> kFaultsOfStore{Fault::loss,
                                        Fault::loss_burst,
                                        Fault::duplicate,
                                        Fault::reorder,
                                        Fault::delay,
                                        Fault::clog,
                                        Fault::corruption,
                                        Fault::cache_miss,
                                        Fault::pause,
                                        Fault::preemption,
                                        Fault::clock_skew,
                                        Fault::partition,
                                        Fault::isolation,
                                        Fault::partition_partial,
                                        Fault::partition_one_way,
                                        Fault::partition_flapping,
                                        Fault::slow_node,
                                        Fault::buffer_overflow,
                                        Fault::pause_storm,
                                        Fault::noisy_neighbour};

constexpr std::uint64_t kKeys = 6;
constexpr std::uint32_t kBlock = 250;        // operations that share keys, and a history
constexpr std::uint64_t kKeyDistance = 100;  // the order of keys is not that of their bytes
constexpr std::uint32_t kMostSlots = 3;      // operations of a client under way
constexpr std::uint64_t kMostScanned = 8;

/// The types of the requests: a key; put: and a value; scan: and the number of entries. A scan
/// answers with entries, the others as those of the workload do.
enum Request : std::uint8_t { kGetRequest = 1, kPutRequest, kEraseRequest, kScanRequest };

struct PlannedCall {
  std::uint32_t id = 0;
  Request type = kGetRequest;
  std::uint64_t key = 0, argument = 0;
  Time pause = 0;
};

struct StoreWorld {
  StoreWorld(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
      : options(wanted),
        outcome(result),
        phase(faults),
        plans(wanted.nodes),
        histories(wanted.operations / kBlock + 1) {
    Rng rng(wanted.seed, -1, "fuzz store");
    workers = static_cast<std::uint32_t>(rng.below(3));
    slots = 1 + static_cast<std::uint32_t>(rng.below(kMostSlots));
    endpoint.credits = 4 + static_cast<std::uint32_t>(rng.below(28));
    endpoint.checksums = wanted.faults[Fault::corruption].rate > 0 || rng.below(8) == 0;
    endpoint.retransmission_timeout = 10 * kMicrosecond + static_cast<Time>(rng.below(100'000));
    endpoint.failure_timeout = Time{200} * kMicrosecond << rng.below(7);
    endpoint.connect_interval = 50 * kMicrosecond;
    endpoint.connect_timeout = 100 * wanted.recovery_limit;
    for (std::uint32_t id = 0; id < wanted.operations; ++id) {
      PlannedCall call;
      call.id = id;
      const std::uint64_t draw = rng.below(10);
      call.type = draw < 4   ? kPutRequest
                  : draw < 5 ? kEraseRequest
                  : draw < 7 ? kGetRequest
                             : kScanRequest;
      call.key = id / kBlock * kKeys + rng.below(kKeys);
      call.argument = call.type == kPutRequest ? 1000 + id : 1 + rng.below(kMostScanned);
      call.pause = static_cast<Time>(rng.below(8)) * kMicrosecond * faults.pace();
      plans[1 + rng.below(wanted.nodes - 1)].push_back(call);
    }
  }

  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  fabric::sim::SimCluster* cluster = nullptr;
  Options endpoint;
  std::uint32_t workers = 0, slots = 1;
  std::vector<std::vector<PlannedCall>> plans;  // by node
  std::uint32_t finished = 0;                   // clients
  std::vector<check::History> histories;        // of each block of operations
};

/// Node 0.
class StoreNode {
 public:
  StoreNode(StoreWorld& world, Env& env)
      : world_(world),
        store_(env, {.max_keys = kKeys * world.histories.size(),
                     .readers = 2 + world.workers,
                     .bugs = StoreBugs::named(world.options.mutation)}),
        gets_(store_),
        scans_(env, store_, std::max(1U, world.workers)) {
    Options options = world.endpoint;
    options.workers = world.workers;
    endpoint_ = std::make_unique<Endpoint>(env, options);
    const RunIn where = world.workers != 0 ? RunIn::kWorker : RunIn::kDispatch;
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
    endpoint_->run_until([this] { return world_.finished + 1 == world_.options.nodes; }, kForever);
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
      : world_(world), env_(env), endpoint_(env, world.endpoint), calls_(world.slots) {
    for (Call& call : calls_) {
      call.user = this;
      call.process = static_cast<std::int32_t>(env.node() * kMostSlots + (&call - &calls_[0]));
      call.request = endpoint_.allocate(2 * sizeof(std::uint64_t));
      call.response = endpoint_.allocate(kMostScanned * sizeof(StoreEntry));
    }
    session_ = endpoint_.create_session({0, 0});
  }

  void run() {
    for (const PlannedCall& planned : world_.plans[env_.node()]) {
      Call* const call = free_call();
      endpoint_.run_for(planned.pause);
      world_.phase.operation();
      if (world_.options.keeps(planned.id)) begin(*call, planned);
    }
    const Time deadline = env_.now() + 100 * world_.options.recovery_limit;
    const auto are_over = [this] {
      return std::ranges::none_of(calls_, [](const Call& call) { return call.is_open; });
    };
    if (!endpoint_.run_until(are_over, deadline))
      world_.outcome.report(
          "liveness", world_.cluster->now(),
          "node " + std::to_string(env_.node()) + ": " + endpoint_.describe_pending());
    ++world_.finished;
  }

 private:
  struct Call {
    StoreUser* user = nullptr;
    PlannedCall planned;
    std::int32_t process = 0;
    MsgBuffer *request = nullptr, *response = nullptr;
    bool is_open = false;
  };

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

  void begin(Call& call, const PlannedCall& planned) {
    if (endpoint_.is_lost(session_)) {
      endpoint_.destroy_session(session_);
      session_ = endpoint_.create_session({0, 0});
      ++world_.outcome.reconnects;
    }
    call.planned = planned;
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
        if (entry.key / kKeyDistance / kKeys != planned.id / kBlock) break;
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
  static check::Function function_of(Request type) {
    constexpr std::array kFunctionsOfStore{check::Function::kGet, check::Function::kPut,
                                           check::Function::kDelete, check::Function::kScan};
    return kFunctionsOfStore[static_cast<std::size_t>(type) - 1];
  }
  static check::Value key_of(const PlannedCall& planned) {
    return check::Value::integer(static_cast<std::int64_t>(planned.key));
  }

  StoreWorld& world_;
  Env& env_;
  Endpoint endpoint_;
  SessionId session_ = 0;
  std::vector<Call> calls_;
};

fuzz::Outcome run_store(const fuzz::Options& wanted) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    throw Error(ErrorCode::kUnavailable, problem);
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::FaultPhase phase(options, outcome);
  StoreWorld world(options, outcome, phase);
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, 200 * options.recovery_limit));
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) {
      if (env.node() == 0)
        StoreNode(world, env).run();
      else
        StoreUser(world, env).run();
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
  return outcome;
}

}  // namespace

fuzz::Scenario store_scenario() {
  return {"erpc_store",
          "eRPC: an ordered store with scans, behind a network that errs",
          run_store,
          {kStoreBugNames.begin(), kStoreBugNames.end()},
          {},
          kFaultsOfStore,
          {"erpc/retransmission", "erpc/session_lost"},
          8};
}

}  // namespace pyrdma::erpc
