#include "systems/tailwind/fuzz/node.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <utility>

#include "base/error.h"
#include "fuzz/patience.h"

namespace pyrdma::tailwind::scenario {

namespace {

using fabric::sim::Crash;

constexpr Time kNoteEvery = 20 * kMicrosecond;
constexpr Time kPause = 50 * kMicrosecond;     // between two looks or attempts
constexpr Time kPatience = 10 * kMillisecond;  // of a client; then another one tries

bool has_failing_disks(const fuzz::Options& options) {
  return has_bad_disks(options) ||
         has_any(options, {Fault::disk_io_error, Fault::disk_full, Fault::disk_torn});
}

/// A server whose process is killed unwinds.
struct Ending {
  World& world;
  ServerId server;
  ~Ending() { world.server_ended(server); }
};

/// Disks that fail and completion queues that overrun end a server or the coordinator, and it is
/// started again. One that has lived under faults may see the last of them when they are over.
void pass_on_unless_expected(World& world, const Env& env, const Error& error, const char* what,
                             bool had_faults) {
  const bool may_fail =
      error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kExhausted;
  const bool has_cause =
      has_failing_disks(world.options) || has_any(world.options, {Fault::cq_overrun});
  if (may_fail && had_faults && has_cause) return;
  world.violation(
      "error", std::string(what) + " of node " + std::to_string(env.node()) + ": " + error.what());
  world.is_over = true;
}

void serve(World& world, Env& env) {
  for (std::uint32_t life = 0; !world.is_over; ++life) {
    bool had_faults = world.cluster->faults_are_on();
    try {
      Server server(env, world.shape.store, life, world.bugs);
      world.server_began(server.id(), life == 0);
      const Ending ending{world, server.id()};
      Time next = 0;
      server.run([&] {
        const Time now = world.cluster->now();
        if (now >= next) {
          world.note(server);
          next = now + kNoteEvery;
        }
        had_faults = had_faults || world.cluster->faults_are_on();
        return world.is_over;
      });
    } catch (const Error& error) {
      pass_on_unless_expected(world, env, error, "the server", had_faults);
      env.sleep_until(env.now() + kPause);
    }
  }
}

void coordinate(World& world, Env& env) {
  world.down.erase(env.node());
  while (!world.is_over) {
    bool had_faults = world.cluster->faults_are_on();
    try {
      Coordinator coordinator(env, world.shape.store, world.bugs);
      Time next = 0;
      coordinator.run([&] {
        const Time now = world.cluster->now();
        if (now >= next) {
          world.note(coordinator);
          next = now + kNoteEvery;
        }
        had_faults = had_faults || world.cluster->faults_are_on();
        return world.is_over;
      });
    } catch (const Error& error) {
      pass_on_unless_expected(world, env, error, "the coordinator", had_faults);
      world.restart(env.node());
      env.sleep_until(kForever);
    }
  }
}

ByteView bytes_of_key(const std::uint32_t& key) { return std::as_bytes(std::span(&key, 1)); }

class Load {
 public:
  Load(World& world, Env& env, std::uint32_t number)
      : world_(world),
        env_(env),
        index_(env.node() - world.shape.first_client),
        client_(env, world.shape.store, number, kPatience) {}

  void run() {
    table_ = client_.create_table("table");
    std::size_t& next = world_.next[index_];
    const std::vector<Planned>& plan = world_.plans[index_];
    while (next < plan.size() && !world_.is_over) {
      const Planned& op = plan[next++];
      const Time begin = env_.now() + op.pause;
      wait([&] { return env_.now() >= begin || is_after_faults(); }, begin);
      wait([&] { return client_.under_way() < world_.shape.window; });
      world_.phase.operation();
      if (world_.options.keeps(op.id - 1)) start(op);
    }
    wait([&] { return client_.under_way() == 0; });
    world_.is_done[index_] = true;
    if (index_ != 0) return wait([] { return false; });
    wait([&] { return world_.reads_all; });
    for (std::uint32_t key = 0; key < world_.shape.keys; ++key)
      start({0, Opcode::kRead, key, 0, 0});
    wait([&] { return client_.under_way() == 0; });
    world_.is_over = true;
  }

 private:
  bool is_after_faults() const {
    return world_.outcome.begun != 0 && !world_.cluster->faults_are_on();
  }
  void start(const Planned& op) {
    const std::uint64_t number = world_.begin(op);
    Bytes value;
    if (op.opcode == Opcode::kWrite) value = World::value_of(op.id, op.bytes);
    client_.start(op.opcode, table_, bytes_of_key(op.key), value,
                  [this, number, key = op.key](const Result& result) {
                    world_.end(number, result);
                    if (index_ != 0 || !world_.at_answer) return;
                    const Tablet* tablet =
                        client_.view().find(table_, key_hash(table_, bytes_of_key(key)));
                    std::exchange(world_.at_answer, nullptr)(tablet->owner.node);
                  });
  }
  void wait(FunctionRef<bool()> ready, Time deadline = kForever) {
    client_.run_until([&] { return world_.is_over || ready(); }, deadline);
  }

  World& world_;
  Env& env_;
  const std::size_t index_;
  Client client_;
  std::uint64_t table_ = 0;
};

/// Ends nodes, and watches. Not part of the store.
class Fate {
 public:
  Fate(World& world, Env& env) : world_(world), env_(env), rng_(env.rng("fuzz tailwind fate")) {}

  void run() {
    const Shape& shape = world_.shape;
    Time again = kForever;  // a crash amid the recovery of the last one
    const std::uint64_t outage = 1 + rng_.below(world_.options.operations);
    bool was_out = !shape.has_outage;
    while (!world_.is_over) {
      env_.sleep_until(env_.now() + kPause);
      watch();
      if (world_.outcome.begun == 0 || !world_.cluster->faults_are_on()) continue;
      if (!was_out && world_.outcome.begun >= outage && world_.unsettled() == 0) {
        was_out = true;
        world_.at_answer = [this](NodeId) {
          if (world_.unsettled() == 0) lose_power();
        };
      }
      const Time now = env_.now();
      if (is_due(Fault::partition_partial) && !world_.at_answer)
        world_.at_answer = [this](NodeId server) { cut_off(server); };
      for (const auto& [fault, crash] : kKinds) {
        const double rate = world_.options.faults[fault].rate;
        if (!is_due(fault) && !(rate > 0 && now >= again)) continue;
        again = kForever;
        // What is answered must survive the crash of whoever has answered.
        if (!world_.at_answer && rng_.below(3) == 0) {
          world_.at_answer = [this, fault = fault, crash = crash](NodeId server) {
            if (world_.unsettled() < world_.shape.store.replicas && !world_.down.contains(server))
              kill(server, fault, crash);
          };
        } else if (kill_any(fault, crash) && rng_.below(2) == 0) {
          again = now + static_cast<Time>(rng_.below(1500)) * kMicrosecond;
        }
      }
    }
  }

 private:
  static constexpr std::pair<Fault, Crash> kKinds[] = {{Fault::crash, Crash::kProcess},
                                                       {Fault::host_crash, Crash::kHost},
                                                       {Fault::battery_crash, Crash::kHostBattery}};

  bool is_due(Fault fault) { return world_.phase.begins(fault, kPause, rng_); }

  /// Nobody but the first client reaches the server, for longer than the others wait.
  void cut_off(NodeId server) {
    const Time duration = kMillisecond + static_cast<Time>(rng_.below(8 * kMillisecond));
    for (NodeId other = 0; other < world_.options.nodes; ++other) {
      if (other == server || other == env_.node()) continue;
      world_.cluster->block(server, other, duration);
      world_.cluster->block(other, server, duration);
    }
  }

  /// `is_outage`: all servers lose power, so no primary replaces what batteries have saved.
  void kill(NodeId node, Fault fault, Crash crash, bool is_outage = false) {
    ++world_.outcome.faults.fired[static_cast<std::size_t>(fault)];
    ++world_.outcome.faults.reached[static_cast<std::size_t>(fault)];
    world_.phase.crashed();
    world_.down.insert(node);
    for (auto& [id, life] : world_.lives) {
      if (id.node != node || life.has_ended) continue;
      life.is_saved = is_outage;
      world_.server_ended(id);
    }
    if (crash == Crash::kHostBattery) world_.battery_saves();
    const auto& setting = world_.options.faults[fault];
    const Time least = std::max<Time>(setting.min, 1), most = std::max(setting.max, least + 1);
    world_.cluster->kill(node, crash);
    world_.cluster->restart_later(
        node, least + static_cast<Time>(rng_.below(static_cast<std::uint64_t>(most - least))));
  }

  bool kill_any(Fault fault, Crash crash) {
    const Shape& shape = world_.shape;
    NodeId victim = static_cast<NodeId>(rng_.below(shape.store.servers));
    const std::uint64_t draw = rng_.below(10);
    if (draw == 0 && shape.store.coordinator != env_.node() && !has_bad_disks(world_.options)) {
      victim = shape.store.coordinator;
    } else if (draw == 1 && env_.node() + 1 < world_.options.nodes) {
      victim = env_.node() + 1;
    } else if (world_.unsettled() >= shape.store.replicas) {
      return false;
    }
    if (world_.down.contains(victim)) return false;
    kill(victim, fault, crash);
    return true;
  }

  void lose_power() {
    for (NodeId node = 0; node < world_.shape.store.servers; ++node)
      if (!world_.down.contains(node)) kill(node, Fault::battery_crash, Crash::kHostBattery, true);
  }

  void watch() {
    if (world_.all_done() && world_.cluster->faults_are_on()) world_.cluster->heal();
    const fuzz::Outcome& sum = world_.outcome;
    if (sum.begun == 0 || world_.cluster->faults_are_on()) return;
    const Time now = world_.cluster->now();
    const std::uint64_t progress = sum.begun + sum.ok + sum.fail;
    const Time work = world_.disk_work();
    const bool is_over = patience_.is_over(now, progress, work);
    // What is lost does not come again.
    const bool is_lost_over = lost_patience_.is_over(now, progress, work) && is_lost();
    if (world_.reads_all && is_over) return give_up();
    if (world_.reads_all) return;
    const bool is_complete = world_.all_done() && world_.is_whole() && world_.garbage().empty();
    if (is_complete && (has_crashed_ || !world_.shape.has_last_crash)) {
      world_.reads_all = true;
      renew(now);
    } else if (is_complete) {
      has_crashed_ = true;
      renew(now);
      kill(static_cast<NodeId>(rng_.below(world_.shape.store.servers)), Fault::crash,
           Crash::kProcess);
    } else if (is_over || is_lost_over) {
      give_up();
    }
  }

  void renew(Time now) {
    patience_.renew(now);
    lost_patience_.renew(now);
  }
  bool is_lost() const { return world_.may_miss() && !world_.coordinator_problem.empty(); }

  void give_up() {
    world_.is_over = true;
    if (is_lost()) {
      world_.is_stalled = true;
    } else {
      world_.violation("liveness",
                       "the store is not whole again" + world_.describe() + world_.garbage());
    }
  }

  World& world_;
  Env& env_;
  Rng rng_;
  fuzz::Patience patience_{world_.options.recovery_limit};
  fuzz::Patience lost_patience_{world_.options.recovery_limit / 4};
  bool has_crashed_ = false;
};

void use(World& world, Env& env) {
  world.down.erase(env.node());
  const bool is_first = env.node() == world.shape.first_client;
  std::vector<std::unique_ptr<Thread>> threads;
  if (is_first) {
    threads.push_back(env.spawn("fate", [&] { Fate(world, env).run(); }));
    if (world.shape.store.coordinator == env.node())
      threads.push_back(env.spawn("coordinator", [&] { coordinate(world, env); }));
  }
  try {
    for (std::uint32_t number = 0; !world.is_over; ++number) {
      try {
        Load(world, env, number).run();
        break;
      } catch (const Error& error) {
        const bool has_overrun =
            error.code() == ErrorCode::kUnavailable && has_any(world.options, {Fault::cq_overrun});
        if (error.code() != ErrorCode::kTimeout && !has_overrun) throw;
      }
    }
  } catch (const Error& error) {
    world.violation("error",
                    "the client of node " + std::to_string(env.node()) + ": " + error.what());
    world.is_over = true;
  }
  for (const auto& thread : threads) thread->join();
}

}  // namespace

void run_node(World& world, Env& env) {
  if (env.node() < world.shape.store.servers) {
    serve(world, env);
  } else if (env.node() >= world.shape.first_client) {
    use(world, env);
  } else {
    coordinate(world, env);
  }
}

}  // namespace pyrdma::tailwind::scenario
