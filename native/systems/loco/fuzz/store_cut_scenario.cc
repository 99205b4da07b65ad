// LOCO's store while two nodes lose each other: no packet passes between them, in one direction or
// both, for longer than the retries of a connection last. No node dies. The clients of every node
// change and look up few keys, until their first error. Then the network is whole again, and a
// node that has lost nobody changes and looks up every key. The history of all is linearizable:
// an operation with an error may have happened or not.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "fuzz/fault_phase.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "runtime/node_barrier.h"
#include "systems/loco/fuzz/first_numbers.h"
#include "systems/loco/fuzz/presets.h"
#include "systems/loco/fuzz/store_scenarios.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {
namespace {

using check::EventType;
using check::Function;
using check::Value;

constexpr std::uint32_t kClients = 3;             // per node
constexpr Time kWaitTimeout = 30 * kMillisecond;  // the retries last 8 ms, reports in a row longer
constexpr Time kRecovery = 10 * kSecond;          // of virtual time, for nodes that wait in turn

const fuzz::FaultsLeftOutList kLeftOutOfCuts = fuzz::joined(
    kLeftOutOfAll,
    {{{Fault::loss_burst, Fault::delay, Fault::clog, Fault::pause, Fault::clock_skew,
       Fault::clock_jump, Fault::partition, Fault::isolation, Fault::partition_partial,
       Fault::partition_one_way, Fault::partition_flapping, Fault::slow_node,
       Fault::buffer_overflow, Fault::pause_storm, Fault::coordinator_down, Fault::noisy_neighbour},
      "the scenario itself says which nodes lose each other, and when"},
     {{Fault::crash, Fault::host_crash, Fault::battery_crash, Fault::torn_crash}, "nobody dies"},
     {{Fault::cq_overrun, Fault::qp_error, Fault::nic_failure, Fault::region_revoked},
      "the scenario itself breaks connections"}});

/// Two nodes that lose each other, and when.
struct Cut {
  explicit Cut(const fuzz::Options& options) {
    Rng rng(options.seed, -1, "fuzz loco cut");
    from = static_cast<NodeId>(rng.below(options.nodes));
    to = (from + 1 + static_cast<NodeId>(rng.below(options.nodes - 1))) % options.nodes;
    both_ways = rng.below(4) == 0;
    after = 1 + rng.below(1 + options.operations * 2ULL / 3);
    duration = 12 * kMillisecond + static_cast<Time>(rng.below(20'000'000));
  }
  bool is_of(NodeId node) const { return node == from || node == to; }
  /// A node that has lost nobody.
  NodeId witness() const { return !is_of(0) ? 0 : !is_of(1) ? 1 : 2; }
  NodeId from = 0, to = 0;
  bool both_ways = false;
  std::uint64_t after = 0;  // operations
  Time duration = 0, end = kForever;
};

struct CutWorld {
  const fuzz::Options& options;
  fuzz::Outcome& outcome;
  fuzz::FaultPhase& phase;
  Cut cut;
  fabric::sim::SimCluster* cluster = nullptr;
  check::History history{};
  std::int32_t processes = 0;
  std::uint64_t values = 0;                          // written or tried
  std::uint32_t running = options.nodes * kClients;  // threads with clients
  bool over = false;                                 // the last part is over
  const std::uint32_t keys = options.seed % 2 == 0 ? 6 : 12;
  // With few locks a lock in doubt has holders for other keys before one for the key in doubt.
  const std::uint32_t locks = options.seed / 16 % 2 == 0 ? keys / 2 : 1 + options.seed / 32 % 2;
  // A value of several packets may be cut in the middle.
  const std::uint32_t value_words = options.seed / 2 % 2 == 0 ? 1 : 4000;

  std::uint64_t operation(Time now) {
    const std::uint64_t mark = phase.operation();
    if (--cut.after != 0) return mark;
    cut.end = now + cut.duration;
    cluster->block(cut.from, cut.to, cut.duration);
    if (cut.both_ways) cluster->block(cut.to, cut.from, cut.duration);
    return mark;
  }
  /// An error is right if it blames a node that has lost another.
  void judge(Env& env, const Error& error) {
    const auto is_right = [&](NodeId node) { return cut.is_of(node); };
    if (cut.end != kForever && std::ranges::any_of(error.nodes(), is_right)) return;
    outcome.report("error", env.now(), "node " + std::to_string(env.node()) + ": " + error.what());
  }
  /// The first values, which KvStore::load() gives.
  void load(Time now) {
    for (std::uint32_t key = 0; key < keys; ++key) {
      const Value number = Value::integer(key);
      history.invoke(now, processes, Function::kInsert, number, number);
      history.complete(now, processes, EventType::kOk, Function::kInsert, number,
                       Value::boolean(true));
    }
    ++processes;
    values = keys;
  }
  KvOptions store_options() const {
    KvOptions all;
    all.slots = keys;
    all.locks = locks;
    all.value_bytes = value_words * 8;
    all.tracker_bytes = 2048;
    all.tracker_pause = 5 * kMicrosecond;
    const bool paper = options.seed / 4 % 2 != 0;
    all.lock = TicketLockOptions::of(preset_of(options, paper ? Preset::kPaper : Preset::kBest));
    const FirstNumbers first(options);
    if (options.seed / 8 % 2 != 0)
      all.lock.placement = Placement::kDevice;  // its words begin with 0
    else
      all.lock.first_ticket = first.lock_ticket;
    all.first_counter = first.slot_counter;
    all.first_position = first.position;
    return all;
  }
};

/// A client that waits for each operation.
class CutClient {
 public:
  CutClient(CutWorld& world, KvStore& store, Caller& me)
      : world_(world), store_(store), me_(me), process_(world.processes++) {
    value_.resize(world.value_words);
  }

  /// Returns false after an error, which ends the client.
  bool run(Function f, Key key, std::uint64_t number) {
    const bool writes = f == Function::kPut || f == Function::kInsert;
    const Value at = Value::integer(static_cast<std::int64_t>(key));
    world_.history.invoke(
        now(), process_, f, at,
        writes ? Value::integer(static_cast<std::int64_t>(number)) : Value::none());
    try {
      const Outcome outcome = call(f, key, number);
      const bool done = outcome == Outcome::kOk;
      const bool failed = outcome == Outcome::kFull || (f == Function::kPut && !done);
      Value result = Value::none();
      if (f == Function::kInsert || f == Function::kDelete) result = Value::boolean(done);
      if (f == Function::kGet && done) result = Value::integer(static_cast<std::int64_t>(found()));
      world_.history.complete(now(), process_, failed ? EventType::kFail : EventType::kOk, f, at,
                              failed ? Value::none() : result);
      ++(failed ? world_.outcome.fail : world_.outcome.ok);
      return true;
    } catch (const Error& error) {
      world_.history.complete(now(), process_, EventType::kInfo, f, at, Value::none());
      ++world_.outcome.info;
      const auto& nodes = error.nodes();
      const Cut& cut = world_.cut;
      if (cut.end == kForever ||
          std::ranges::none_of(nodes, [&](auto n) { return cut.is_of(n); })) {
        world_.outcome.report("error", now(),
                              "node " + std::to_string(me_.env().node()) + ": " + error.what());
      }
      return false;
    }
  }

  /// Draws operations until `count` of them have begun, or until an error. Returns false after an
  /// error of a node that has lost another.
  bool draw(std::uint64_t count) {
    Rng rng(world_.options.seed, process_, "fuzz loco cut operations");
    constexpr std::array kBefore{Function::kGet,    Function::kPut,    Function::kPut,
                                 Function::kInsert, Function::kInsert, Function::kDelete};
    // The first request to the lost node is the last: it changes a key there, if one has its lock
    // elsewhere.
    constexpr std::array kAfter{Function::kPut, Function::kDelete, Function::kDelete};
    for (std::uint64_t i = 0; i < count; ++i) {
      Function f = kBefore[rng.below(kBefore.size())];
      Key key = rng.below(world_.keys);
      if (rng.below(3) == 0) me_.env().work(static_cast<Time>(rng.below(4000)));
      const std::uint64_t mark = world_.operation(now());
      if (world_.cut.is_of(me_.env().node()) && world_.cut.end != kForever) {
        f = kAfter[rng.below(kAfter.size())];
        for (std::uint32_t k = 0; k < world_.keys && !lies_across(key); ++k)
          key = (key + 1) % world_.keys;
      }
      const bool goes_on = run(f, key, ++world_.values);
      world_.phase.ended(mark);
      if (!goes_on) return !world_.cut.is_of(me_.env().node());
    }
    return true;
  }

 private:
  Time now() { return me_.env().now(); }
  bool lies_across(Key key) {
    const std::optional<Location> at = store_.locate(key);
    const std::uint64_t host = hash_of(key) % world_.locks % world_.options.nodes;
    return at && at->node != me_.env().node() && world_.cut.is_of(at->node) && host != at->node;
  }
  Outcome call(Function f, Key key, std::uint64_t number) {
    if (f == Function::kGet)
      return store_.lookup(me_, key, std::as_writable_bytes(std::span(value_)));
    if (f == Function::kDelete) return store_.remove(me_, key);
    std::fill(value_.begin(), value_.end(), number);
    const auto bytes = std::as_bytes(std::span(value_));
    return f == Function::kPut ? store_.update(me_, key, bytes) : store_.insert(me_, key, bytes);
  }
  std::uint64_t found() {
    const bool loaded = value_[0] < world_.keys;  // load() sets the first word alone
    if (!loaded &&
        std::ranges::any_of(value_, [&](std::uint64_t word) { return word != value_[0]; })) {
      world_.outcome.report(
          "torn", now(),
          "a lookup finds a value that no client wrote, of " + std::to_string(value_[0]));
    }
    return value_[0];
  }

  CutWorld& world_;
  KvStore& store_;
  Caller& me_;
  std::int32_t process_;
  std::vector<std::uint64_t> value_;
};

/// Goes on with the operations that clients have dropped: others wait for what they hold.
template <class Ready>
void go_on_until(CutWorld& world, Caller& me, Ready&& ready) {
  constexpr Time kLook = 200 * kMicrosecond;
  const auto turn = [&] {
    me.runtime().turn();
    return me.go_on() || ready();
  };
  while (!ready()) {
    try {
      me.env().poll_until(turn, me.env().now() + kLook);
    } catch (const Error& error) {
      world.judge(me.env(), error);
    }
  }
}

/// Runs clients one after the other; an error ends one.
void run_clients(CutWorld& world, KvStore& store, Caller& me) {
  constexpr std::uint32_t kMostErrors = 2;
  const std::uint32_t share = world.options.operations / (world.options.nodes * kClients);
  for (std::uint32_t i = 0; i < kMostErrors; ++i)
    if (!CutClient(world, store, me).draw(share / kMostErrors)) break;
  --world.running;
}

/// The network is whole again. A node that has lost nobody changes and looks up every key.
void run_last(CutWorld& world, KvStore& store, Caller& me) {
  Rng rng(world.options.seed, me.env().node(), "fuzz loco cut end");
  std::vector<bool> is_lost(world.locks);
  for (Key key = 0; key < world.keys; ++key) {
    const std::size_t lock = hash_of(key) % world.locks;
    if (is_lost[lock]) continue;  // nobody gets it any more, and each try takes the whole patience
    CutClient client(world, store, me);
    constexpr std::array kFirst{Function::kPut, Function::kInsert, Function::kDelete};
    bool runs = client.run(kFirst[rng.below(kFirst.size())], key, ++world.values);
    // An operation that was cut off may take effect at any time, so it explains one strange answer.
    for (int round = 0; round < 6; ++round) {
      for (const Function f : {Function::kInsert, Function::kPut, Function::kGet})
        runs = runs && client.run(f, key, ++world.values);
    }
    if (runs) me.env().reached("store/key goes on after a cut");
    is_lost[lock] = !runs;
  }
}

void run_node(CutWorld& world, Env& env) {
  ManagerOptions options;
  options.callers = kClients + 1;  // the last caller belongs to the tracker
  options.max_in_flight = 64;
  options.blocks = 16;
  options.block_bytes = world.value_words * 8 + 64;
  options.wait_timeout = kWaitTimeout;
  options.bugs = Bugs::named(world.options.mutation);
  Manager manager(env, options);
  KvStore store(manager, "store", world.store_options());
  manager.wait_for_ready();
  const auto meet = [&](const std::string& name) { runtime::node_barrier(env, name, kRecovery); };
  store.load(world.keys);
  if (env.node() == 0) world.load(env.now());
  meet("begin");
  const auto is_over = [&] { return world.over; };
  std::vector<std::unique_ptr<Thread>> others;
  for (std::uint32_t i = 1; i < kClients; ++i) {
    others.push_back(env.spawn("client" + std::to_string(i), [&, i] {
      run_clients(world, store, manager.caller(i));
      go_on_until(world, manager.caller(i), is_over);
    }));
  }
  Caller& me = manager.caller(0);
  run_clients(world, store, me);
  if (env.node() == world.cut.witness()) {
    go_on_until(world, me, [&] {
      return world.running == 0 && (world.cut.end == kForever || env.now() >= world.cut.end);
    });
    run_last(world, store, me);
    world.outcome.made("end");
    if (world.cut.end != kForever) world.outcome.made("after the cut");
    world.over = true;
  }
  go_on_until(world, me, is_over);
  for (const auto& other : others) other->join();
  meet("over");
}

fuzz::Outcome run_cut(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::FaultPhase phase(options, outcome);
  CutWorld world{options, outcome, phase, Cut(options)};
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, kRecovery));
  phase.attach(cluster);
  world.cluster = &cluster;
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node(world, env); });
  } catch (const Error& error) {
    outcome.report("liveness", cluster.now(), std::string(error.what()).substr(0, 200));
  }
  fuzz::judge(outcome, options, world.history, "kv", cluster.now());
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

fuzz::Scenario store_cut_scenario() {
  return {.name = "loco_store_cut",
          .title = "LOCO's key-value store while two nodes lose each other and none dies",
          .run = &run_cut,
          .mutations = {"unfenced"},
          .presets = {kPresetNames.begin(), kPresetNames.end()},
          .left_out = kLeftOutOfCuts,
          .branches = {"store/lock in doubt", "store/removal of another node ended",
                       "store/torn slot", "store/key goes on after a cut"},
          .most_nodes = kMostNodes,
          .fewest_nodes = 3,  // two lose each other, and the others go on
          .checks = {{"kv", 0.9}, {"end", 0.95}, {"after the cut", 0.9}},
          .usual_operations = 2000};
}

}  // namespace pyrdma::loco
