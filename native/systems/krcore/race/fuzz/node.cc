#include "systems/krcore/race/fuzz/node.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/handshake.h"
#include "systems/krcore/race/fuzz/audit.h"

namespace pyrdma::krcore::race::scenario {

namespace {

constexpr Time kTurn = 5 * kMicrosecond;
// A storage node makes the connections one after the other.
constexpr Time kConnecting = 2 * kMillisecond, kConnectingEach = kMillisecond;

fabric::QpOptions pair_options() {
  fabric::QpOptions options;
  options.timeout_us = 16;
  options.retry_count = 3;
  options.send_entries = 128;
  return options;
}

std::string connection_name(std::uint32_t client, std::uint32_t number) {
  return "race/" + std::to_string(client) + "/" + std::to_string(number);
}

/// Ends clients at random times. Not part of the table.
class Fate {
 public:
  Fate(World& world, Env& env) : world_(world), rng_(env.rng("fuzz race fate")) {}
  void turn() {
    if (world_.outcome.begun == 0 || !world_.cluster->faults_are_on()) return;
    for (const Fault fault : {Fault::crash, Fault::host_crash}) {
      if (!world_.phase.begins(fault, kTurn, rng_)) continue;
      world_.kill(world_.shape.storages + static_cast<NodeId>(rng_.below(world_.shape.clients)),
                  fault);
    }
  }

 private:
  World& world_;
  Rng rng_;
};

/// A storage node's connections with one client, which connects again and again.
struct Door {
  std::uint32_t number = 0;  // of the connection that it makes
  std::unique_ptr<fabric::QueuePair> offered;
  std::unique_ptr<runtime::Handshake> handshake;
  std::vector<std::unique_ptr<fabric::QueuePair>> open;
};

void look_at_memory(World& world) {
  world.is_looked_at = true;
  if (std::ranges::find(world.regions, nullptr) != world.regions.end())
    return world.outcome.skipped("memory", "a storage node has none");
  world.outcome.made("memory");
  const Audit found = audit(world.table, world.regions);
  for (const std::string& problem : found.problems) world.violation("memory", problem);
}

void store(World& world, Env& env) {
  fabric::Device& device = env.device();
  const auto pd = device.create_protection_domain();
  const auto completions = device.create_completion_queue(64);
  StorageOptions options = world.shape.storage;
  options.index = env.node();
  Storage storage(env, device, *pd, options);
  world.parts[env.node()] = storage.address();
  world.regions[env.node()] = storage.data();
  std::vector<Door> doors(world.shape.clients);
  Fate fate(world, env);
  while (!world.is_over) {
    env.sleep_until(env.now() + kTurn);
    if (env.node() == 0) fate.turn();
    for (std::uint32_t client = 0; client < world.shape.clients; ++client) {
      Door& door = doors[client];
      const std::uint32_t wanted = world.connections[client];
      if (wanted == 0) continue;
      if (door.number != wanted) {
        door.number = wanted;
        door.handshake.reset();
        door.offered = device.create_queue_pair(*pd, *completions, *completions, pair_options());
        door.handshake = std::make_unique<runtime::Handshake>(env, connection_name(client, wanted),
                                                              world.shape.storages + client);
        door.handshake->add(*door.offered);
        door.handshake->offer();
      } else if (door.handshake && door.handshake->find()) {
        door.handshake->connect();
        door.handshake.reset();
        door.open.push_back(std::move(door.offered));
        if (world.connections[client] == wanted) ++world.opened[client];
      }
    }
  }
  if (env.node() == 0) {
    env.sleep_until(env.now() + 200 * kMicrosecond);  // late placements
    look_at_memory(world);
  }
  while (!world.is_looked_at) env.sleep_until(env.now() + kTurn);
}

/// A client from one connection to the next.
class Load {
 public:
  Load(World& world, Env& env)
      : world_(world),
        env_(env),
        index_(env.node() - world.shape.storages),
        rng_(env.rng("fuzz race load")),
        pd_(env.device().create_protection_domain()),
        completions_(env.device().create_completion_queue(512)) {
    connect();
    is_late_ = is_after_faults();
    ClientOptions options = world.shape.client;
    options.at_step = [this](Step step) { maybe_die(step); };
    client_ = std::make_unique<Client>(env_, env_.device(), *pd_, *completions_, pairs_,
                                       world_.table, options);
  }

  void run() {
    if (index_ == 0 && !world_.is_filled) fill();
    while (!world_.is_filled) pause();
    std::size_t& next = world_.next[index_];
    const std::vector<Planned>& plan = world_.plans[index_];
    while (next < plan.size()) {
      const Planned& op = plan[next];
      const Time begin = env_.now() + op.pause;
      while (env_.now() < begin && !is_after_faults()) turn(begin);
      while (client_->is_full()) turn(kForever);
      ++next;
      const std::uint64_t mark = world_.phase.operation();
      world_.options.keeps(op.id - 1) ? start(op, mark) : world_.phase.ended(mark);
    }
    finish_all();
    world_.is_done[index_] = true;
    if (index_ != 0) {
      while (!world_.is_over) pause();
      return;
    }
    while (!world_.all_done()) pause();
    if (world_.cluster->faults_are_on()) world_.cluster->heal();
    while (!world_.down.empty()) pause();
    // Every key can be read, and changed.
    std::uint32_t id = world_.options.operations + world_.keys();
    for (const Kind kind : {Kind::kLookup, Kind::kUpdate, Kind::kInsert, Kind::kLookup}) {
      for (std::uint32_t key = 0; key < world_.keys(); ++key) {
        while (client_->is_full()) turn(kForever);
        start({++id, kind, key, 20, 0});
      }
      finish_all();
    }
    world_.outcome.made("all keys");
    world_.is_over = true;
  }

 private:
  void connect() {
    const std::uint32_t number = ++world_.connections[index_];
    world_.opened[index_] = 0;
    std::vector<std::unique_ptr<runtime::Handshake>> handshakes;
    const Time deadline = env_.now() + kConnecting + world_.shape.clients * kConnectingEach;
    for (NodeId node = 0; node < world_.shape.storages; ++node) {
      owned_.push_back(
          env_.device().create_queue_pair(*pd_, *completions_, *completions_, pair_options()));
      pairs_.push_back(owned_.back().get());
      handshakes.push_back(
          std::make_unique<runtime::Handshake>(env_, connection_name(index_, number), node));
      handshakes.back()->add(*pairs_.back());
      handshakes.back()->offer();
    }
    for (const auto& handshake : handshakes) {
      handshake->await(deadline);
      handshake->connect();
    }
    // A request before the other end is there would fail.
    while (world_.opened[index_] != world_.shape.storages && env_.now() < deadline) pause();
    world_.table = join(world_.parts);
  }

  void pause() { env_.sleep_until(env_.now() + kTurn); }
  bool is_after_faults() const {
    return world_.outcome.begun != 0 && !world_.cluster->faults_are_on();
  }

  void fill() {
    const bool with_hot = world_.shape.mix == Shape::Mix::kUpdates;
    for (std::uint32_t i = with_hot ? 0 : world_.shape.hot;
         i < world_.shape.hot + world_.shape.fillers; ++i) {
      while (client_->is_full()) turn(kForever);
      start({world_.options.operations + 1 + i, Kind::kInsert, i, 8, 0});
    }
    finish_all();
    world_.is_filled = true;
  }

  void start(const Planned& op, std::optional<std::uint64_t> mark = std::nullopt) {
    if (lost_) finish_all();
    const std::uint64_t number = world_.begin(op, is_late_, mark);
    Bytes value;
    if (op.kind == Kind::kInsert || op.kind == Kind::kUpdate)
      value = World::value_of(op.id, op.bytes);
    client_->start(op.kind, number, std::as_bytes(std::span(world_.key(op.key))), value);
  }

  void finish_all() {
    while (client_->under_way() != 0) turn(kForever);
    check_connection();
  }

  void turn(Time until) {
    bool is_lost = false;
    const Time patience = std::min(until, env_.now() + 20 * kMicrosecond);
    for (const Result& result : client_->wait(patience)) {
      is_lost =
          is_lost || (result.error != nullptr && result.error->code() == ErrorCode::kUnavailable);
      world_.end(result.tag, result);
    }
    if (client_->under_way() == 0 && until != kForever) env_.sleep_until(patience);
    lost_ = lost_ || is_lost;
    check_connection();
  }

  // All operations fail, or end, before there is another client.
  void check_connection() const {
    if (lost_ && client_->under_way() == 0)
      throw Error(ErrorCode::kUnavailable, "the connection is lost");
  }

  void maybe_die(Step step) {
    if (world_.shape.death_per_step == 0 || !world_.cluster->faults_are_on() ||
        world_.outcome.begun == 0)
      return;
    const double factor = step == Step::kPlaced || step >= Step::kSplitLocked ? 4 : 1;
    if (rng_.uniform() >= factor * world_.shape.death_per_step) return;
    if (rng_.below(2) == 0)
      return world_.kill(env_.node(), Fault::crash, 1 + static_cast<Time>(rng_.below(5000)));
    world_.kill(env_.node(), Fault::crash);
    env_.sleep_until(env_.now() + 1);  // it ends here
  }

  World& world_;
  Env& env_;
  const std::uint32_t index_;
  Rng rng_;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::vector<std::unique_ptr<fabric::QueuePair>> owned_;
  std::vector<fabric::QueuePair*> pairs_;
  std::unique_ptr<Client> client_;
  bool is_late_ = false;  // the connections were made after all faults
  bool lost_ = false;
};

void use(World& world, Env& env) {
  world.down.erase(env.node());
  world.outcome.restarts += env.incarnation() != 0;
  while (std::ranges::any_of(world.parts, [](const TableAddress& part) { return part.nodes == 0; }))
    env.sleep_until(env.now() + kTurn);
  for (bool is_first = true; !world.is_over; is_first = false) {
    try {
      world.outcome.reconnects += !is_first;
      Load(world, env).run();
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kTimeout) throw;
    }
  }
}

}  // namespace

void run_node(World& world, Env& env) {
  try {
    env.node() < world.shape.storages ? store(world, env) : use(world, env);
  } catch (const Error& error) {
    world.violation("error", "node " + std::to_string(env.node()) + ": " + error.what());
    world.is_over = true;
  }
}

}  // namespace pyrdma::krcore::race::scenario
