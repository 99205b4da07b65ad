#include "systems/loco/fuzz/store_scenarios.h"

#include <memory>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/loco/fuzz/kinds.h"
#include "systems/loco/fuzz/meeting.h"
#include "systems/loco/fuzz/store_world.h"

namespace pyrdma::loco {
namespace stores {
namespace {

using check::EventType;
using check::Value;

constexpr std::uint64_t kLongestPause = 2000;  // ns
constexpr std::uint32_t kMostErrors = 2;       // of a client, which then ends

/// Does one operation at a time. An error ends the operation, which may have happened or not.
template <class Side>
class Client {
 public:
  Client(World& world, Side& side, Caller& me)
      : world_(world), side_(side), me_(me), process_(world.processes++) {
    operation_.emplace(side, me);
  }

  bool busy() const { return busy_; }
  /// Begins an operation; see is_over() for the return value.
  bool begin(const Request& request) {
    request_ = request;
    since_ = world_.cluster->now();
    const bool writes = request.f == Function::kPut || request.f == Function::kInsert;
    const Value value =
        writes ? Value::integer(static_cast<std::int64_t>(request.value)) : Value::none();
    world_.history.invoke(me_.env().now(), process_, request.f, key(), value);
    if (request.changes()) {
      ++world_.unsure[request.key];
      world_.locks.begun(node(), side_.lock_of(request.key));
    }
    busy_ = true;
    return attempt([&] { operation_->begin(request); });
  }
  /// Returns true when the operation has ended, and records its end.
  bool is_over() {
    return !attempt([&] {
      if (operation_->state.poll()) record_end();
    }) || !busy_;
  }
  void fail(const Error& error) {
    world_.fates.failed(node(), error);
    world_.history.complete(me_.env().now(), process_, EventType::kInfo, request_.f, key(),
                            Value::none());
    ++world_.outcome.info;
    busy_ = false;
    ++errors_;
    process_ = world_.processes++;
    operation_.reset();  // what it holds goes on
    operation_.emplace(side_, me_);
  }
  std::uint32_t errors() const { return errors_; }

 private:
  NodeId node() const { return me_.runtime().self(); }
  Value key() const { return Value::integer(static_cast<std::int64_t>(request_.key)); }

  template <class Step>
  bool attempt(Step&& step) {
    try {
      step();
      return true;
    } catch (const Error& error) {
      fail(error);
      return false;
    }
  }

  void record_end() {
    const Outcome outcome = operation_->state.outcome();
    const bool done = outcome == Outcome::kOk;
    const Function f = request_.f;
    // It did not happen: an update of a missing key, an insertion without room.
    const bool failed = outcome == Outcome::kFull || (f == Function::kPut && !done);
    Value value = Value::none();
    if (!failed && (f == Function::kInsert || f == Function::kDelete)) value = Value::boolean(done);
    if (f == Function::kGet && done)
      value = Value::integer(static_cast<std::int64_t>(operation_->value()));
    world_.history.complete(me_.env().now(), process_, failed ? EventType::kFail : EventType::kOk,
                            f, key(), value);
    if (request_.changes()) {
      --world_.unsure[request_.key];
      world_.locks.ended(node(), side_.lock_of(request_.key), since_, world_.cluster->now());
    }
    ++(failed ? world_.outcome.fail : world_.outcome.ok);
    busy_ = false;
  }

  World& world_;
  Side& side_;
  Caller& me_;
  std::optional<typename Side::Operation> operation_;
  std::int32_t process_;
  Request request_;
  Time since_ = 0;
  bool busy_ = false;
  std::uint32_t errors_ = 0;
};

/// A client with the operations that it draws.
template <class Side>
class Drawing {
 public:
  Drawing(World& world, Side& side, Caller& me, std::uint32_t number)
      : world_(world),
        side_(side),
        env_(me.env()),
        client_(world, side, me),
        only_reads_(world.shape.only_reads(me.index())),
        rng_(world.options.seed, number, "fuzz store operations") {
    std::tie(next_, end_) = world.shape.operations_of(world.options, number);
  }

  bool over() const { return !client_.busy() && next_ == end_; }
  /// Returns true when an operation has ended.
  bool turn() {
    if (client_.busy()) {
      if (!client_.is_over()) return false;
      world_.phase.ended(mark_);
      if (client_.errors() >= kMostErrors) next_ = end_;
    }
    while (!client_.busy() && next_ != end_) draw();
    return true;
  }
  void fail(const Error& error) {
    if (client_.busy()) client_.fail(error);
    if (client_.errors() >= kMostErrors) next_ = end_;
  }

 private:
  void draw() {
    const std::uint32_t id = next_++;
    const Request request{only_reads_ ? Function::kGet : side_.draw(rng_),
                          rng_.below(world_.shape.keys), 1 + std::uint64_t{id}};
    // The next request of a connection places late writes, so who pauses leaves them late.
    const bool pauses = world_.shape.load == Load::kWatchedUpdates || rng_.below(3) == 0;
    const std::uint64_t pause = pauses ? rng_.below(kLongestPause) * world_.phase.pace() : 0;
    mark_ = world_.phase.operation();
    world_.crashes.operation(*world_.cluster, world_.outcome.crashed_after.size());
    if (!world_.options.keeps(id)) return world_.phase.ended(mark_);
    // Not work(), for which a slow node takes longer than the others wait.
    if (pause != 0) env_.sleep_until(env_.now() + static_cast<Time>(pause));
    if (!client_.begin(request)) world_.phase.ended(mark_);
    if (client_.errors() >= kMostErrors) next_ = end_;
  }

  World& world_;
  Side& side_;
  Env& env_;
  Client<Side> client_;
  const bool only_reads_;
  Rng rng_;
  std::uint32_t next_ = 0, end_ = 0;  // numbers of operations
  std::uint64_t mark_ = 0;
};

/// A node's part.
template <class Side>
class StoreNode {
 public:
  StoreNode(World& world, Env& env)
      : world_(world),
        env_(env),
        manager_(env, options(world)),
        side_(manager_, world),
        barrier_(manager_, "barrier", {}, world.shape.first.barrier_round) {}

  /// Carries out all operations. Without a dead node it checks the end too. Throws Error when an
  /// operation that is not a client's has failed.
  void run() {
    manager_.wait_for_ready();
    side_.load();
    world_.usable[env_.node()] = true;
    Caller& me = manager_.caller(0);
    meet_at(barrier_, me, world_.outcome);
    if (env_.node() == 0) write_first_values();
    meet_at(barrier_, me, world_.outcome);
    {
      std::vector<std::unique_ptr<Thread>> others;
      for (std::uint32_t i = 1; i < kCallers; ++i) {
        others.push_back(env_.spawn("caller" + std::to_string(i),
                                    [this, i] { run_caller(manager_.caller(i)); }));
      }
      run_caller(me);
      for (const auto& other : others) other->join();
    }
    meet_at(barrier_, me, world_.outcome);
    side_.finish();
    read_all();
    meet_at(barrier_, me, world_.outcome);
    ++world_.finished;
  }
  void leave() {
    manager_.leave();
    ++world_.left;
  }

  /// Goes on with what clients have dropped, until ready().
  template <class Ready>
  void go_on_until(Ready&& ready) {
    while (!ready()) {
      for (std::uint32_t i = 0; i < kCallers; ++i) {
        try {
          if (errors_ < kMostErrors * kCallers) manager_.turn(manager_.caller(i));
        } catch (const Error& error) {
          ++errors_;  // a thread of the runtime that has failed has an error for each turn
          world_.fates.failed(env_.node(), error);
        }
      }
      env_.sleep_until(env_.now() + 100 * kMicrosecond);
    }
  }

  /// A node has died. The others still have what does not lie on it: every value, unless a change
  /// of its key was cut off, and every lock that no such change has taken.
  void look_around() {
    const bool has_first_values = !world_.history.events().empty();
    if (!has_first_values || !world_.usable[env_.node()] || world_.left != 0) return;
    const bool changes = env_.node() == world_.fates.survivors().front();
    std::vector<bool> is_stuck(world_.shape.locks * env_.nodes());  // each try takes the patience
    for (Key key = 0; key < world_.shape.keys; ++key) {
      const std::optional<NodeId> at = side_.place_of(key);
      const std::uint64_t lock = side_.lock_of(key);
      const bool may_read = at && world_.unsure[key] == 0;
      const bool may_change = may_read && world_.locks.is_free(lock, world_.fates);
      if (changes && !is_stuck[lock]) {
        const NodeId host = side_.host_of(lock);
        is_stuck[lock] = !succeeds({Function::kPut, key, next_value()},
                                   [&] { return may_change && is_here(*at) && is_here(host); });
      }
      succeeds({Function::kGet, key, 0}, [&] { return may_read && is_here(*at); });
    }
    ++world_.looked;
  }

 private:
  static ManagerOptions options(const World& world) {
    ManagerOptions options;
    options.callers = kCallers + 1;  // the last caller belongs to the tracker
    options.max_in_flight = 64;
    options.blocks = 32;
    options.block_bytes = Sherman::kLeafBytes;
    options.wait_timeout = world.shape.patience(world.options.nodes);
    options.bugs = Bugs::named(world.options.mutation);
    return options;
  }
  std::uint64_t next_value() { return world_.options.operations + ++world_.values; }

  void run_caller(Caller& me) {
    std::vector<std::unique_ptr<Drawing<Side>>> clients;
    const std::uint32_t n = world_.shape.window,
                        all = (env_.node() * kCallers + me.index() + 1) * n;
    for (std::uint32_t i = all - n; i < all; ++i)
      clients.push_back(std::make_unique<Drawing<Side>>(world_, side_, me, i));
    const auto turn = [&] {
      bool any = false;
      for (const auto& client : clients) any |= !client->over() && client->turn();
      return any;
    };
    const auto all_over = [&] {
      return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->over(); });
    };
    while (!all_over()) {
      try {
        me.wait_until(turn, "completion of an operation");
      } catch (const Error& error) {
        for (const auto& client : clients) client->fail(error);
        world_.phase.progress();
      }
    }
  }

  /// Node 0 gives every key its first value, if it has none.
  void write_first_values() {
    const Time now = env_.now();  // the last point at which this node dies, if values are loaded
    for (Key key = 0; key < world_.shape.keys; ++key) {
      const auto value = side_.first_value(key);
      if (!value) {
        try_once({Side::kFirst, key, next_value()});
        continue;
      }
      const Value number = Value::integer(static_cast<std::int64_t>(key));
      const std::int32_t process = world_.processes++;
      world_.history.invoke(now, process, Function::kInsert, number,
                            Value::integer(static_cast<std::int64_t>(*value)));
      world_.history.complete(now, process, EventType::kOk, Function::kInsert, number,
                              Value::boolean(true));
    }
  }

  /// At the end every node reads every key; the checker compares.
  void read_all() {
    for (Key key = 0; key < world_.shape.keys; ++key) try_once({Function::kGet, key, 0});
  }

  /// Returns false after an error.
  bool try_once(const Request& request) {
    Caller& me = manager_.caller(0);
    Client<Side> client(world_, side_, me);
    world_.phase.progress();
    try {
      if (client.begin(request)) me.wait_until([&] { return client.is_over(); }, "last operation");
    } catch (const Error& error) {
      client.fail(error);
    }
    world_.phase.progress();
    return client.errors() == 0;
  }

  /// Returns false after an error, which is a violation if the operation `must` succeed. The errors
  /// of operations that were dropped before come first, one at a time.
  template <class Must>
  bool succeeds(Request request, Must&& must) {
    if (try_once(request)) return true;
    if (!must()) return false;
    for (std::uint32_t i = 0; i < kMostErrors; ++i) {
      if (request.changes()) request.value = next_value();
      if (try_once(request)) return true;
    }
    if (must())
      world_.violation("lost key", "node " + std::to_string(env_.node()) + " cannot " +
                                       (request.changes() ? "change" : "read") + " key " +
                                       std::to_string(request.key) + ", which needs no dead node");
    return false;
  }

  bool is_here(NodeId node) { return world_.usable[node] && !world_.fates.is_dead(node); }

  World& world_;
  Env& env_;
  Manager manager_;
  Side side_;
  Barrier barrier_;
  std::uint32_t errors_ = 0;  // of dropped work
};

template <class Side>
void run_node(World& world, Env& env) {
  if (env.incarnation() != 0) return;  // no node recovers
  Ending ending(world.fates, world.phase, env.node());
  std::unique_ptr<StoreNode<Side>> node;
  const auto attempt = [&](auto&& part) {
    try {
      part();
    } catch (const Error& error) {
      world.fates.failed(env.node(), error);
      ++world.outcome.info;
    }
  };
  // A node that leaves early looks dead to the others.
  const auto wait_until = [&](auto&& ready) {
    if (node) return node->go_on_until(ready);
    while (!ready()) env.sleep_until(env.now() + 100 * kMicrosecond);
  };
  attempt([&] {
    node = std::make_unique<StoreNode<Side>>(world, env);
    node->run();
  });
  world.fates.reached(env.node(), Stage::kEnded);
  wait_until([&] { return world.fates.all_reached(Stage::kEnded); });
  if (!world.fates.any_dead() && node) attempt([&] { node->leave(); });
  if (world.fates.any_dead()) {
    if (node) attempt([&] { node->look_around(); });
    world.fates.reached(env.node(), Stage::kOver);
    wait_until([&] { return world.fates.all_reached(Stage::kOver); });
  }
  ending.returns();
}

void check_end(World& world) {
  fuzz::judge(world.outcome, world.options, world.history, "kv", world.cluster->now());
  for (const std::string& error : world.fates.wrong_errors()) world.violation("error", error);
  if (world.finished == world.options.nodes) {
    world.outcome.made("end");
    if (const std::optional<Key> key = world.places.unequal())
      world.violation("indices", "the nodes have different places of key " + std::to_string(*key));
  }
  if (world.looked != 0) {
    world.outcome.made("end");
    world.outcome.made("after a crash");
  }
  world.outcome.skipped("end", world.fates.why_nobody_looked("an error"));
  world.outcome.skipped("after a crash", world.fates.why_nobody_looked("no node died"));
}

template <class Side>
fuzz::Outcome run_store(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  keep_ways_short(options.faults);
  Crashes crashes(options);
  fuzz::FaultPhase phase(options, outcome, crashes.least_share());
  World world{options, outcome, phase, crashes};
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, 8 * options.recovery_limit));
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node<Side>(world, env); });
  } catch (const Error& error) {
    outcome.report("liveness", cluster.now(), std::string(error.what()).substr(0, 200));
  }
  check_end(world);
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace
}  // namespace stores

fuzz::Scenario store_scenario() {
  return {
      .name = "loco_store",
      .title = "LOCO's key-value store: lookups, insertions, updates and removals of few keys",
      .run = &stores::run_store<stores::LocoSide>,
      .mutations = {"unfenced"},
      .presets = {kPresetNames.begin(), kPresetNames.end()},
      .left_out = kLeftOutOfLoco,
      .branches = {"lock/hand-over", "lock/words on the NIC", "ring/change of caller",
                   "ring/torn message", "store/full", "store/index locked", "store/slot used again",
                   "store/stale index", "store/torn slot", "store/tracker full"},
      .most_nodes = kMostNodes,
      .checks = {{"kv", 0.9}, {"end", 0.95}, {"after a crash", 0.12}}};
}

fuzz::Scenario sherman_scenario() {
  return {.name = "loco_sherman",
          .title = "the model of Sherman: lookups and updates of few keys",
          .run = &stores::run_store<stores::ShermanSide>,
          .mutations = {"unfenced"},
          .left_out = kLeftOutOfLoco,
          .checks = {{"kv", 0.9}, {"end", 0.95}, {"after a crash", 0.12}}};
}

}  // namespace pyrdma::loco
