#include "systems/tailwind/fuzz/node.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/fuzz/fate.h"

namespace pyrdma::tailwind::scenario {

namespace {

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
  const std::uint32_t first = world.shape.first_life;
  for (std::uint32_t life = first; !world.is_over; ++life) {
    bool had_faults = world.cluster->faults_are_on();
    try {
      Server server(env, world.shape.store, life, world.bugs);
      world.server_began(server.id(), life == first);
      const Ending ending{world, server.id()};
      server.log().on_head_without_cleaned = [&] {
        if (world.at_head) std::exchange(world.at_head, nullptr)(env.node());
      };
      Time next = 0;
      server.run([&] {
        const Time now = world.cluster->now();
        world.note_moment(server);
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
    world_.table = table_;
    std::size_t& next = world_.next[index_];
    const std::vector<Planned>& plan = world_.plans[index_];
    while (next < plan.size() && !has_ended()) {
      const Planned& op = plan[next++];
      const Time begin = env_.now() + op.pause;
      wait([&] { return env_.now() >= begin || is_after_faults(); }, begin);
      wait([&] { return client_.under_way() < world_.shape.window; });
      const std::uint64_t mark = world_.phase.operation();
      if (world_.options.keeps(op.id - 1))
        start(op, mark);
      else
        world_.phase.ended(mark);
    }
    wait([&] { return client_.under_way() == 0; });
    world_.is_done[index_] = !world_.is_stalled;
    if (index_ != 0) return await([&] { return world_.is_over; });
    await([&] { return world_.reads_all || world_.is_stalled; });
    read_all();
    world_.is_over = true;
  }

 private:
  bool is_after_faults() const {
    return world_.outcome.begun != 0 && !world_.cluster->faults_are_on();
  }
  bool has_ended() const { return world_.is_over || world_.is_stalled; }
  /// What a store has that waits for data, or has all.
  void read_all() {
    std::uint32_t open = 0;
    for (std::uint32_t key = 0; key < world_.shape.keys && !world_.is_over; ++key) {
      if (world_.is_stalled && !world_.is_served(key)) continue;
      ++open;
      start({0, Opcode::kRead, key, 0, 0}, std::nullopt, [&open] { --open; });
    }
    await([&] { return open == 0; });
    if (!world_.is_over) world_.outcome.made("final reads");
  }
  void start(const Planned& op, std::optional<std::uint64_t> mark,
             std::function<void()> on_end = nullptr) {
    const std::uint64_t number = world_.begin(op);
    Bytes value;
    if (op.opcode == Opcode::kWrite) value = World::value_of(op.id, op.bytes);
    client_.start(op.opcode, table_, bytes_of_key(op.key), value,
                  [this, number, mark, on_end, key = op.key](const Result& result) {
                    world_.end(number, result);
                    if (mark) world_.phase.ended(*mark);
                    if (on_end) on_end();
                    if (index_ == 0) tell(world_.at_answer, key);
                  });
    if (op.opcode == Opcode::kWrite) tell(world_.at_write, op.key);
  }
  /// `whom` gets the server of the key.
  void tell(std::function<void(NodeId)>& whom, std::uint32_t key) {
    if (!whom) return;
    const Tablet* tablet = client_.view().find(table_, key_hash(table_, bytes_of_key(key)));
    if (tablet != nullptr) std::exchange(whom, nullptr)(tablet->owner.node);
  }
  void wait(FunctionRef<bool()> ready, Time deadline = kForever) {
    client_.run_until([&] { return has_ended() || ready(); }, deadline);
  }
  /// Also when the store waits for data.
  void await(FunctionRef<bool()> ready) {
    client_.run_until([&] { return world_.is_over || ready(); }, kForever);
  }

  World& world_;
  Env& env_;
  const std::size_t index_;
  Client client_;
  std::uint64_t table_ = 0;
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
    for (std::uint32_t number = world.shape.first_life; !world.is_over; ++number) {
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
