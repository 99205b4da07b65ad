#include "systems/loco/fuzz/store_scenarios.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.h"
#include "fuzz/fault_phase.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/loco/barrier.h"
#include "systems/loco/baselines/sherman.h"
#include "systems/loco/fuzz/places.h"
#include "systems/loco/fuzz/presets.h"
#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco {
namespace {

using check::EventType;
using check::Function;
using check::Value;

constexpr std::uint32_t kCallers = 3;          // per node
constexpr std::uint64_t kLongestPause = 2000;  // ns

// The faults that a reliable connection hides, and slow nodes.
const std::vector<Fault> kFaultsOfStores{
    Fault::loss,  Fault::ack_loss,   Fault::duplicate,  Fault::reorder,         Fault::delay,
    Fault::clog,  Fault::cache_miss, Fault::queue_full, Fault::late_completion, Fault::rnr,
    Fault::pause, Fault::preemption, Fault::slow_node,  Fault::pause_storm};

struct StoreWorld {
  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  // Few keys and locks make clients contend; more of them let announcements fill the tracker's
  // ring.
  const bool many = options.seed % 3 == 0;
  const std::uint32_t keys = many ? 12 : 4, locks = many ? 8 : 2;
  // The keys may have values before the first operation, in the table of the index or computed.
  const bool loaded = options.seed / 24 % 2 != 0, stored = options.seed / 48 % 2 != 0;
  // Operations of a caller at once. The next request of a connection places late writes, so one
  // operation at a time leaves writes late for longer.
  const std::uint32_t window = options.seed / 5 % 2 == 0 ? 1 : 2;
  check::History history{};
  Places places{};
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
  LocoSide(Manager& manager, const StoreWorld& world)
      : world_(world),
        store_(manager, "store", options(world)),
        refills_(world.options.seed / 12 % 2 == 0) {}
  void load() {
    if (world_.loaded) store_.load(world_.keys, world_.stored, &loaded_value);
  }
  static std::uint64_t loaded_value(Key key) { return 1'000'000'000 + key; }
  std::optional<std::uint64_t> first_value(Key key) const {
    return world_.loaded ? std::optional(loaded_value(key)) : std::nullopt;
  }
  /// Every operation is over: notes this node's index, and tests that no slot is lost.
  void finish(StoreWorld& world, Time now) {
    const std::string lost = world.places.note(store_, world.keys, world.loaded && !world.stored);
    if (!lost.empty()) world.outcome.report("lost slot", now, lost);
  }
  Function draw(Rng& rng) const {
    // Half of the runs change values often, and the others fill slots again often.
    constexpr std::array kUpdates{Function::kGet, Function::kGet,    Function::kGet,
                                  Function::kPut, Function::kPut,    Function::kPut,
                                  Function::kPut, Function::kInsert, Function::kDelete};
    constexpr std::array kRefills{Function::kGet,    Function::kGet,    Function::kGet,
                                  Function::kGet,    Function::kPut,    Function::kPut,
                                  Function::kInsert, Function::kInsert, Function::kDelete};
    return refills_ ? kRefills[rng.below(kRefills.size())] : kUpdates[rng.below(kUpdates.size())];
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
    const bool room = world.many || world.loaded;
    options.slots = 1 + world.options.seed / 4 % 3 + (room ? world.keys / world.options.nodes : 0);
    options.tracker_hold = 400 * kMicrosecond;
    options.locks = world.locks;
    options.tracker_bytes = 128;
    options.tracker_pause = 5 * kMicrosecond;
    const bool paper = world.options.seed / 2 % 2 != 0;
    options.lock =
        TicketLockOptions::of(preset_of(world.options, paper ? Preset::kPaper : Preset::kBest));
    if (world.options.seed % 2 == 0) options.lock.placement = Placement::kDevice;
    return options;
  }
  const StoreWorld& world_;
  KvStore store_;
  const bool refills_;
};

/// The model of Sherman, which has only updates and lookups of existing keys. The keys lie in
/// different leaves. Every fourth run has no local queues.
class ShermanSide {
 public:
  static constexpr Function kFirst = Function::kPut;
  static constexpr Key kApart = 64;
  ShermanSide(Manager& manager, const StoreWorld& world)
      : tree_(manager, "tree",
              {.keys = world.keys * kApart,
               .locks = world.locks,
               .local_queues = world.options.seed % 4 != 0}) {}
  void load() { tree_.load(); }
  static std::optional<std::uint64_t> first_value(Key) { return {}; }
  void finish(StoreWorld&, Time) {}
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
    const std::uint64_t clients = std::uint64_t{world.options.nodes} * kCallers * world.window;
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
    const Request request{side_.draw(rng_), rng_.below(world_.keys), 1 + std::uint64_t{id}};
    const std::uint64_t pause =
        rng_.below(3) == 0 ? rng_.below(kLongestPause) * world_.phase.pace() : 0;
    world_.phase.operation();
    if (!world_.options.keeps(id)) return;
    if (pause != 0) env_.work(static_cast<Time>(pause));
    begin(request);
  }

  void record_end() {
    const bool done = operation_.state.outcome() == Outcome::kOk;
    const Function f = request_.f;
    // An update of a missing key did not happen; an insertion without room did not happen either.
    const bool failed =
        operation_.state.outcome() == Outcome::kFull || (f == Function::kPut && !done);
    Value value = Value::none();
    if (!failed && (f == Function::kInsert || f == Function::kDelete)) value = Value::boolean(done);
    if (f == Function::kGet && done) {
      value = Value::integer(static_cast<std::int64_t>(operation_.value()));
    }
    world_.history.complete(env_.now(), process_, failed ? EventType::kFail : EventType::kOk, f,
                            key(), value);
    ++(failed ? world_.outcome.fail : world_.outcome.ok);
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
  for (std::uint32_t i = 0; i < world.window; ++i) {
    const std::uint32_t number = (me.runtime().self() * kCallers + me.index()) * world.window + i;
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

// Node 0 gives every key its first value, if it has none.
template <class Side>
void write_first_values(StoreWorld& world, Side& side, Caller& me) {
  Client<Side> first(world, side, me, 0);
  for (Key key = 0; key < world.keys; ++key) {
    if (const auto value = side.first_value(key)) {
      const Value number = Value::integer(static_cast<std::int64_t>(key));
      const Time now = me.env().now();
      world.history.invoke(now, 0, Function::kInsert, number,
                           Value::integer(static_cast<std::int64_t>(*value)));
      world.history.complete(now, 0, EventType::kOk, Function::kInsert, number,
                             Value::boolean(true));
      continue;
    }
    first.begin({Side::kFirst, key, world.options.operations + 1 + key});
    me.wait_until([&] { return first.ended(); }, "first value");
  }
}

// At the end every node reads every key; the checker compares.
template <class Side>
void read_all(StoreWorld& world, Side& side, Caller& me) {
  Client<Side> last(world, side, me, me.runtime().self() * kCallers * world.window);
  for (Key key = 0; key < world.keys; ++key) {
    last.begin({Function::kGet, key, 0});
    me.wait_until([&] { return last.ended(); }, "last value");
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
    std::vector<std::unique_ptr<Thread>> others;
    for (std::uint32_t i = 1; i < kCallers; ++i) {
      others.push_back(env.spawn("caller" + std::to_string(i),
                                 [&, i] { run_caller(world, side, manager.caller(i)); }));
    }
    run_caller(world, side, me);
    for (const auto& other : others) other->join();
  }
  barrier.wait(me);
  side.finish(world, env.now());
  read_all(world, side, me);
  barrier.wait(me);
  manager.leave();
}

template <class Side>
fuzz::Outcome run_store(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::FaultPhase phase(options, outcome);
  StoreWorld world{options, outcome, phase};
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, 8 * options.recovery_limit));
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node<Side>(world, env); });
  } catch (const Error& error) {
    outcome.report("liveness", cluster.now(), std::string(error.what()).substr(0, 200));
  }
  fuzz::judge(outcome, options, world.history, "kv", cluster.now());
  if (const std::optional<Key> key = world.places.unequal())
    outcome.report("indices", cluster.now(),
                   "the nodes have different places of key " + std::to_string(*key));
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

fuzz::Scenario store_scenario() {
  return {"loco_store",
          "LOCO's key-value store: lookups, insertions, updates and removals of few keys",
          &run_store<LocoSide>,
          {"unfenced"},
          {kPresetNames.begin(), kPresetNames.end()},
          kFaultsOfStores,
          {"lock/hand-over", "lock/words on the NIC", "ring/torn message", "store/full",
           "store/index locked", "store/slot used again", "store/stale index", "store/torn slot",
           "store/tracker full"},
          kMostNodes};
}

fuzz::Scenario sherman_scenario() {
  return {"loco_sherman",
          "the model of Sherman: lookups and updates of few keys",
          &run_store<ShermanSide>,
          {"unfenced"},
          {},
          kFaultsOfStores};
}

}  // namespace pyrdma::loco
