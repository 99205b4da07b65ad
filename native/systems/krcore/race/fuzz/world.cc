#include "systems/krcore/race/fuzz/world.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "fuzz/simulation.h"
#include "systems/krcore/race/fuzz/audit.h"

namespace pyrdma::krcore::race::scenario {

namespace {

constexpr std::size_t kLeastValue = 4;  // bytes: the number of the change

std::byte byte_after(std::uint32_t id, std::size_t i) {
  return static_cast<std::byte>(mix64(id) >> i % 8 * 8) ^ static_cast<std::byte>(i);
}

// All keys begin alike and have the same length, and hot ones have one of two fingerprints.
std::vector<std::string> draw_keys(const Shape& shape, std::uint32_t cold, std::uint64_t seed) {
  Rng rng(seed, -1, "fuzz race keys");
  std::vector<std::string> keys;
  std::optional<std::uint8_t> wanted;
  while (keys.size() < shape.hot + shape.fillers + cold) {
    const std::string key = "the same " + std::to_string(10'000'000 + rng.below(80'000'000));
    const std::uint8_t found = KeyHash::of(std::as_bytes(std::span(key))).fingerprint();
    if (keys.size() < shape.hot && wanted && found != *wanted && found != (*wanted ^ 1)) continue;
    if (std::ranges::find(keys, key) != keys.end()) continue;
    wanted = wanted.value_or(found);
    keys.push_back(key);
  }
  return keys;
}

std::vector<std::vector<Planned>> draw_plans(const fuzz::Options& options, const Shape& shape,
                                             std::uint32_t pace) {
  Rng rng(options.seed, -1, "fuzz race plan");
  std::vector<std::vector<Planned>> plans(shape.clients);
  std::uint32_t cold = shape.hot + shape.fillers;  // the next key that no operation has
  for (std::uint32_t id = 0; id < options.operations; ++id) {
    Planned op;
    op.id = id + 1;
    const std::uint64_t kind = rng.below(100);
    op.kind = kind < 30   ? Kind::kLookup
              : kind < 55 ? Kind::kInsert
              : kind < 80 ? Kind::kUpdate
                          : Kind::kRemove;
    if (rng.below(100) < shape.cold_share) {
      const bool is_new = rng.below(3) != 0;
      if (is_new) op.kind = Kind::kInsert;
      op.key = is_new ? cold++ : static_cast<std::uint32_t>(rng.below(cold));
    } else {
      op.key = static_cast<std::uint32_t>(rng.below(shape.hot));
      if (shape.mix == Shape::Mix::kInserts) op.kind = kind < 60 ? Kind::kInsert : Kind::kRemove;
      if (shape.mix == Shape::Mix::kUpdates) op.kind = kind < 50 ? Kind::kUpdate : Kind::kLookup;
    }
    const std::size_t client = rng.below(plans.size());
    constexpr std::array<std::uint32_t, 3> kBytes{8, 200, 230};
    op.bytes = kBytes[rng.below(kBytes.size())];
    if (shape.mix == Shape::Mix::kUpdates) op.bytes = 230;
    // Most operations start at once, so that they overlap.
    op.pause = rng.below(3) == 0 ? static_cast<Time>(rng.below(4000) * pace) : 0;
    plans[client].push_back(op);
  }
  return plans;
}

std::uint32_t cold_keys(const std::vector<std::vector<Planned>>& plans, const Shape& shape) {
  std::uint32_t most = shape.hot + shape.fillers;
  for (const auto& plan : plans)
    for (const Planned& op : plan) most = std::max(most, op.key + 1);
  return most - shape.hot - shape.fillers;
}

}  // namespace

Shape::Shape(const fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz race shape");
  storages = options.nodes >= 4 ? 1 + static_cast<std::uint32_t>(rng.below(2)) : 1;
  clients = options.nodes - storages;
  storage.nodes = storages;
  storage.bytes = 16U << 20;  // clients that die leave chunks behind
  storage.groups = rng.below(4) == 0 ? 4 : 2;
  storage.first_depth = static_cast<std::uint32_t>(rng.below(2));
  storage.max_depth = 9;
  storage.max_key_bytes = 32;
  storage.max_value_bytes = 256;
  client.window = 1 + static_cast<std::uint32_t>(rng.below(4));
  client.chunk_bytes = 4096U << rng.below(3);
  client.queue_entries = rng.below(2) == 0 ? 16 : 128;
  client.split_groups = 1 + static_cast<std::uint32_t>(rng.below(2));
  client.timeout = 10 * kMillisecond;
  client.lease = static_cast<Time>(20 + rng.below(200)) * kMicrosecond;
  client.patience = static_cast<Time>(1 + rng.below(5)) * kMicrosecond;
  client.bugs = Bugs::named(options.mutation);
  constexpr std::array kMixes{Mix::kAll, Mix::kAll, Mix::kInserts, Mix::kInserts, Mix::kUpdates};
  mix = kMixes[rng.below(kMixes.size())];
  client.resting_blocks = mix == Mix::kUpdates ? 0 : 8 * static_cast<std::uint32_t>(rng.below(2));
  // Numbers that go round are near their end in one of four seeds.
  if (rng.below(4) == 0) {
    client.first_version = kVersions - 1 - static_cast<std::uint32_t>(rng.below(4));
    client.first_beat = kMostBeat - static_cast<std::uint32_t>(rng.below(4));
  }
  hot = mix == Mix::kAll ? 2 + static_cast<std::uint32_t>(rng.below(5)) : 1;
  fillers = (20 + static_cast<std::uint32_t>(rng.below(16))) * storage.groups / 2;
  fillers <<= storage.first_depth;  // the table is nearly full
  cold_share = 20 + static_cast<std::uint32_t>(rng.below(50));
  const bool dies = options.faults[Fault::crash].rate > 0;
  death_per_step = dies ? 0.004 * static_cast<double>(1 + rng.below(10)) : 0;
}

World::World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      shape(wanted),
      plans(draw_plans(wanted, shape, faults.pace())),
      next(plans.size()),
      is_done(plans.size()),
      connections(plans.size()),
      opened(plans.size()),
      parts(shape.storages),
      regions(shape.storages),
      keys_(draw_keys(shape, cold_keys(plans, shape), wanted.seed)) {}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, cluster->now(), text);
}

// ---- operations ----

Bytes World::value_of(std::uint32_t id, std::uint32_t bytes) {
  Bytes value(std::max<std::size_t>(bytes, kLeastValue));
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = byte_after(id, i);
  std::memcpy(value.data(), &id, kLeastValue);
  return value;
}

std::uint64_t World::begin(const Planned& op, bool is_connected_late,
                           std::optional<std::uint64_t> mark) {
  if (free_processes_.empty()) free_processes_.insert(processes_++);
  const std::int32_t process = *free_processes_.begin();
  free_processes_.erase(free_processes_.begin());
  const bool is_after = outcome.begun != 0 && !cluster->faults_are_on();
  open_[++begun_] = {op, process, events_.size(), mark, is_after, is_connected_late};
  constexpr std::array kFunctions{check::Function::kGet, check::Function::kInsert,
                                  check::Function::kPut, check::Function::kDelete};
  check::Event event;
  event.time = cluster->now();
  event.key = check::Value::integer(op.key);
  event.process = process;
  event.f = kFunctions[static_cast<std::size_t>(op.kind)];
  if (op.kind == Kind::kInsert || op.kind == Kind::kUpdate)
    event.value = check::Value::integer(op.id);
  events_.push_back(event);
  return begun_;
}

void World::forget(std::uint64_t number) {
  open_.erase(number);
  ++outcome.info;
}

void World::end(std::uint64_t number, const Result& result) {
  const Open open = open_.at(number);
  open.mark ? phase.ended(*open.mark) : phase.progress();
  const Planned& op = open.op;
  const std::string what = std::string("the ") + to_string(op.kind) + " " + std::to_string(op.id) +
                           " of key " + std::to_string(op.key);
  if (result.outcome == Outcome::kFailed) {
    const bool is_unavailable = result.error->code() == ErrorCode::kUnavailable;
    if (is_unavailable ? open.is_connected_late : open.is_after_faults)
      violation("error", what + " fails after all faults: " + result.error->what());
    if (result.error->code() == ErrorCode::kInvalidArgument ||
        result.error->code() == ErrorCode::kInternal ||
        result.error->code() == ErrorCode::kExhausted)
      violation("error", what + ": " + result.error->what());
    if (!result.error->definite()) return forget(number);
  }
  open_.erase(number);
  check::Event event = events_[open.event];
  event.time = cluster->now();
  event.type = check::EventType::kOk;
  event.value = check::Value::none();
  const bool is_ok = result.outcome == Outcome::kOk;
  if (result.outcome == Outcome::kFailed) {
    event.type = check::EventType::kFail;
    ++outcome.fail;
  } else {
    ++outcome.ok;
    if (op.kind == Kind::kInsert || op.kind == Kind::kRemove) {
      event.value = check::Value::boolean(is_ok);
    } else if (op.kind == Kind::kUpdate && !is_ok) {
      // It says that the key is absent, as a lookup does.
      events_[open.event].f = event.f = check::Function::kGet;
      events_[open.event].value = check::Value::none();
    } else if (op.kind == Kind::kLookup && is_ok) {
      std::uint32_t id = 0;
      if (result.value.size() >= kLeastValue) std::memcpy(&id, result.value.data(), kLeastValue);
      const Bytes whole = value_of(id, static_cast<std::uint32_t>(result.value.size()));
      if (!std::ranges::equal(result.value, whole))
        violation("payload", what + " returns bytes that none wrote");
      event.value = check::Value::integer(id);
    }
  }
  events_.push_back(event);
  free_processes_.insert(open.process);
}

// ---- nodes ----

void World::kill(NodeId node, Fault fault, Time after) {
  if (down.contains(node)) return;
  ++outcome.faults.fired[static_cast<std::size_t>(fault)];
  ++outcome.faults.reached[static_cast<std::size_t>(fault)];
  phase.crashed();
  down.insert(node);
  const auto& setting = options.faults[fault];
  const Time least = std::max<Time>(setting.min, 1), most = std::max(setting.max, least + 1);
  Rng rng(options.seed, static_cast<std::int64_t>(outcome.crashed_after.size()), "fuzz race down");
  const Time back =
      after + least + static_cast<Time>(rng.below(static_cast<std::uint64_t>(most - least)));
  if (after != 0)
    cluster->kill_later(node, after);
  else
    cluster->kill(node);
  cluster->restart_later(node, back);
}

bool World::all_done() const {
  return std::ranges::all_of(is_done, [](bool done) { return done; });
}

std::string World::describe() const {
  std::string text = ": " + std::to_string(std::ranges::count(is_done, true)) + " of " +
                     std::to_string(is_done.size()) + " clients are done";
  for (const NodeId node : down) text += ", node " + std::to_string(node) + " is down";
  for (const auto& [number, open] : open_)
    text += "\n  open: " + std::string(to_string(open.op.kind)) + " " + std::to_string(open.op.id) +
            " of key " + std::to_string(open.op.key);
  return text;
}

void World::check() {
  outcome.info += open_.size();
  check::History history;
  for (const check::Event& event : events_) history.append(event);
  fuzz::judge(outcome, options, history, "kv", cluster->now());
}

}  // namespace pyrdma::krcore::race::scenario
