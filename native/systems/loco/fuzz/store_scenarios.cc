#include "systems/loco/fuzz/store_scenarios.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "check/check.h"
#include "check/history_json.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/loco/barrier.h"
#include "systems/loco/baselines/sherman.h"
#include "systems/loco/fuzz/presets.h"
#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco {
namespace {

using check::EventType;
using check::Function;
using check::Value;

constexpr std::uint32_t kKeys = 4, kKeyLocks = 2;
constexpr std::uint32_t kCallers = 2, kWindow = 2;  // per node; per caller
constexpr std::uint64_t kLongestPause = 2000;       // ns

// The faults that a reliable connection hides, and slow nodes.
constexpr std::array kFaultsOfStores{
    Fault::loss,  Fault::ack_loss,   Fault::duplicate,  Fault::reorder,         Fault::delay,
    Fault::clog,  Fault::cache_miss, Fault::queue_full, Fault::late_completion, Fault::rnr,
    Fault::pause, Fault::slow_node,  Fault::pause_storm};

struct StoreWorld {
  const fuzz::Options& options;
  check::History history{};
  std::uint64_t ok = 0, fail = 0;
};

struct Request {
  Function f = Function::kGet;
  Key key = 0;
  std::uint64_t value = 0;
};

/// LOCO's store, empty at first. In half of the runs its locks lie on the NICs.
class LocoSide {
 public:
  static constexpr Function kFirst = Function::kInsert;
  LocoSide(Manager& manager, const StoreWorld& world) : store_(manager, "store", options(world)) {}
  void load() {}
  Function draw(Rng& rng) const {
    constexpr std::array kFunctions{Function::kGet, Function::kGet,    Function::kGet,
                                    Function::kPut, Function::kPut,    Function::kPut,
                                    Function::kPut, Function::kInsert, Function::kDelete};
    return kFunctions[rng.below(kFunctions.size())];
  }

  struct Operation {
    Operation(LocoSide& side, Caller& me) : state(side.store_, me) {}
    void begin(const Request& request) {
      const auto bytes = std::as_bytes(std::span(&request.value, 1));
      if (request.f == Function::kGet) state.lookup(request.key);
      if (request.f == Function::kPut) state.update(request.key, bytes);
      if (request.f == Function::kInsert) state.insert(request.key, bytes);
      if (request.f == Function::kDelete) state.remove(request.key);
    }
    std::uint64_t value() const {
      std::uint64_t word = 0;
      std::memcpy(&word, state.value().data(), sizeof word);
      return word;
    }
    KvOperation state;
  };

 private:
  static KvOptions options(const StoreWorld& world) {
    KvOptions options;
    options.keys = 64;
    options.locks = kKeyLocks;
    options.tracker_bytes = 1024;
    options.tracker_pause = 5 * kMicrosecond;
    const bool paper = world.options.seed / 2 % 2 != 0;
    options.lock =
        TicketLockOptions::of(preset_of(world.options, paper ? Preset::kPaper : Preset::kBest));
    if (world.options.seed % 2 == 0) options.lock.placement = Placement::kDevice;
    return options;
  }
  KvStore store_;
};

/// The model of Sherman, which has only updates and lookups of existing keys. The keys lie in
/// different leaves. Every fourth run has no local queues.
class ShermanSide {
 public:
  static constexpr Function kFirst = Function::kPut;
  static constexpr Key kApart = 64;
  ShermanSide(Manager& manager, const StoreWorld& world)
      : tree_(manager, "tree",
              {.keys = kKeys * kApart,
               .locks = kKeyLocks,
               .local_queues = world.options.seed % 4 != 0}) {}
  void load() { tree_.load(); }
  Function draw(Rng& rng) const { return rng.below(2) == 0 ? Function::kGet : Function::kPut; }

  struct Operation {
    Operation(ShermanSide& side, Caller& me) : state(side.tree_, me) {}
    void begin(const Request& request) {
      if (request.f == Function::kGet) state.lookup(request.key * kApart);
      if (request.f == Function::kPut) state.update(request.key * kApart, request.value);
    }
    std::uint64_t value() const { return state.value(); }
    ShermanOperation state;
  };

 private:
  Sherman tree_;
};

/// A client: it runs one operation after the other and records each.
template <class Side>
class Client {
 public:
  Client(StoreWorld& world, Side& side, Caller& me, std::uint32_t number)
      : world_(world),
        side_(side),
        env_(me.env()),
        operation_(side, me),
        process_(static_cast<std::int32_t>(number)),
        rng_(world.options.seed, static_cast<std::int64_t>(number), "store operations") {
    const std::uint64_t clients = std::uint64_t{world.options.nodes} * kCallers * kWindow;
    next_ = static_cast<std::uint32_t>(world.options.operations * std::uint64_t{number} / clients);
    end_ = static_cast<std::uint32_t>(world.options.operations * (number + 1ULL) / clients);
  }

  bool over() const { return !busy_ && next_ == end_; }
  /// Ends an operation that is over and begins the next. Returns true when something has happened.
  bool turn() {
    if (busy_ && !ended()) return false;
    while (!busy_ && next_ != end_) draw();
    return true;
  }
  /// Returns true if the operation is over, and records its end.
  bool ended() {
    if (!operation_.state.poll()) return false;
    record_end();
    busy_ = false;
    return true;
  }
  void begin(const Request& request) {
    request_ = request;
    const Value value = request.f == Function::kPut || request.f == Function::kInsert
                            ? Value::integer(static_cast<std::int64_t>(request.value))
                            : Value::none();
    world_.history.invoke(env_.now(), process_, request.f, key(), value);
    operation_.begin(request);
    busy_ = true;
  }

 private:
  Value key() const { return Value::integer(static_cast<std::int64_t>(request_.key)); }

  void draw() {
    const std::uint32_t id = next_++;
    const Request request{side_.draw(rng_), rng_.below(kKeys), 1 + std::uint64_t{id}};
    const std::uint64_t pause = rng_.below(3) == 0 ? rng_.below(kLongestPause) : 0;
    const auto& kept = world_.options.kept;
    if (kept && std::none_of(kept->begin(), kept->end(), [&](const fuzz::OperationRange& range) {
          return range.first <= id && id <= range.last;
        })) {
      return;
    }
    if (pause != 0) env_.work(static_cast<Time>(pause));
    begin(request);
  }

  void record_end() {
    const bool done = operation_.state.outcome() == Outcome::kOk;
    const Function f = request_.f;
    // An update of a missing key did not happen.
    const bool failed = f == Function::kPut && !done;
    Value value = Value::none();
    if (f == Function::kInsert || f == Function::kDelete) value = Value::boolean(done);
    if (f == Function::kGet && done) {
      value = Value::integer(static_cast<std::int64_t>(operation_.value()));
    }
    world_.history.complete(env_.now(), process_, failed ? EventType::kFail : EventType::kOk, f,
                            key(), value);
    ++(failed ? world_.fail : world_.ok);
  }

  StoreWorld& world_;
  Side& side_;
  Env& env_;
  typename Side::Operation operation_;
  std::int32_t process_;
  Rng rng_;
  Request request_;
  std::uint32_t next_ = 0, end_ = 0;  // numbers of operations
  bool busy_ = false;
};

template <class Side>
void run_caller(StoreWorld& world, Side& side, Caller& me) {
  std::vector<std::unique_ptr<Client<Side>>> clients;
  for (std::uint32_t i = 0; i < kWindow; ++i) {
    const std::uint32_t number = (me.runtime().self() * kCallers + me.index()) * kWindow + i;
    clients.push_back(std::make_unique<Client<Side>>(world, side, me, number));
  }
  const auto turn = [&] {
    bool any = false;
    for (const auto& client : clients) any |= !client->over() && client->turn();
    return any;
  };
  const auto all_over = [&] {
    return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->over(); });
  };
  while (!all_over()) me.wait_until(turn, "completion of an operation");
}

// Node 0 gives every key its first value.
template <class Side>
void write_first_values(StoreWorld& world, Side& side, Caller& me) {
  Client<Side> first(world, side, me, 0);
  for (Key key = 0; key < kKeys; ++key) {
    first.begin({Side::kFirst, key, world.options.operations + 1 + key});
    me.wait_until([&] { return first.ended(); }, "first value");
  }
}

template <class Side>
void run_node(StoreWorld& world, Env& env) {
  ManagerOptions options;
  options.callers = kCallers + 1;  // the last caller belongs to the tracker
  options.max_in_flight = 64;
  options.blocks = 32;
  options.block_bytes = Sherman::kLeafBytes;
  options.wait_timeout = 100 * kMillisecond;
  options.bugs = Bugs::named(world.options.mutation);
  Manager manager(env, options);
  Side side(manager, world);
  Barrier barrier(manager, "barrier");
  manager.wait_for_ready();
  side.load();
  Caller& me = manager.caller(0);
  barrier.wait(me);
  if (env.node() == 0) write_first_values(world, side, me);
  barrier.wait(me);
  {
    const auto second = env.spawn("second", [&] { run_caller(world, side, manager.caller(1)); });
    run_caller(world, side, me);
    second->join();
  }
  barrier.wait(me);
  manager.leave();
}

template <class Side>
fuzz::Outcome run_store(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::keep_faults(options.faults, kFaultsOfStores);
  fuzz::draw_end_of_faults(options, kMillisecond, 2 * kMillisecond);
  StoreWorld world{options};
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, 8 * options.recovery_limit));
  if (options.events) cluster.record_events(&outcome.recorded);
  const auto violation = [&](const char* kind, const std::string& text) {
    outcome.violations.push_back({kind, "at " + std::to_string(cluster.now()) + " ns: " + text});
  };
  try {
    cluster.run([&](Env& env) { run_node<Side>(world, env); });
  } catch (const Error& error) {
    violation("liveness", std::string(error.what()).substr(0, 200));
  }
  outcome.ok = world.ok;
  outcome.fail = world.fail;
  check::SearchLimits limits;
  limits.configurations = 100'000;
  const check::Verdict verdict = check::check_history(world.history, "kv", limits);
  if (verdict.answer != check::Answer::kUnknown) outcome.checked = verdict.operations;
  if (verdict.answer == check::Answer::kNo) violation("kv", verdict.text);
  if (options.history) {
    world.history.header.seed = options.seed;
    outcome.history = check::to_json(world.history);
  }
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

fuzz::Scenario store_scenario() {
  return {"loco_store",
          "LOCO's key-value store: lookups, insertions, updates and removals of few keys",
          &run_store<LocoSide>,
          {"unfenced"},
          {kPresetNames.begin(), kPresetNames.end()}};
}

fuzz::Scenario sherman_scenario() {
  return {"loco_sherman",
          "the model of Sherman: lookups and updates of few keys",
          &run_store<ShermanSide>,
          {"unfenced"}};
}

}  // namespace pyrdma::loco
