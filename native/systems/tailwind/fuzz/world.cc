#include "systems/tailwind/fuzz/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fuzz/simulation.h"

namespace pyrdma::tailwind::scenario {

namespace {

constexpr std::size_t kLeastValue = 4;  // bytes: the number of the write

std::byte byte_after(std::uint32_t id, std::size_t i) {
  return static_cast<std::byte>(mix64(id) >> i % 8 * 8) ^ static_cast<std::byte>(i);
}

std::vector<std::vector<Planned>> plans_of(const fuzz::Options& options, const Shape& shape,
                                           std::uint32_t pace) {
  Rng rng(options.seed, -1, "fuzz tailwind plan");
  std::vector<std::vector<Planned>> plans(options.nodes - shape.first_client);
  for (std::uint32_t id = 0; id < options.operations; ++id) {
    Planned op;
    op.id = id + 1;
    const std::size_t client = rng.below(plans.size());
    const std::uint64_t kind = rng.below(100);
    op.opcode = kind < 45 ? Opcode::kWrite : kind < 60 ? Opcode::kRemove : Opcode::kRead;
    op.key = static_cast<std::uint32_t>(rng.below(shape.keys));
    const std::uint64_t most = rng.below(4) == 0 ? 64 : shape.most_value;
    op.bytes = static_cast<std::uint32_t>(kLeastValue + rng.below(most - kLeastValue));
    op.pause = static_cast<Time>(rng.below(20'000) * pace);
    plans[client].push_back(op);
  }
  return plans;
}

}  // namespace

// Two nodes have a server, and the coordinator beside the client. With five or more the coordinator
// has a node of its own.
Shape::Shape(const fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz tailwind shape");
  const NodeId clients = options.nodes >= 6 ? 1 + static_cast<NodeId>(rng.below(2)) : 1;
  first_client = options.nodes - clients;
  store.name = "fuzz";
  store.coordinator = options.nodes >= 5 ? first_client - 1 : first_client;
  store.servers = std::min(first_client, store.coordinator);
  auto preset = rng.below(kPresetNames.size());
  for (std::size_t i = 0; i < kPresetNames.size(); ++i) {
    if (options.preset == kPresetNames[i]) preset = i;
  }
  store.replication = preset == 0 ? Replication::kRamcloud : Replication::kTailwind;
  store.durability = preset == 2 ? Durability::kFlush : Durability::kCompletion;
  // Most runs have two servers more than replicas, so that one can be replaced.
  const std::uint32_t spare = rng.below(4) == 0 ? 1 : 2;
  store.replicas = std::min<std::uint32_t>(2 + static_cast<std::uint32_t>(rng.below(2)),
                                           store.servers > spare ? store.servers - spare : 0);
  store.placement = static_cast<Placement>(rng.below(kPlacementNames.size()));
  store.workers = static_cast<std::uint32_t>(rng.below(4));
  Rng beside(options.seed, -1, "fuzz tailwind shape beside");
  store.group_commit = store.workers == 0 && beside.below(2) == 0;
  store.idle_after = beside.below(2) == 0 ? kMillisecond : 100 * kMillisecond;
  store.log_bytes = 8U << 20;
  store.segment_bytes = (64U << 10) << rng.below(2);
  // Logs of dead servers keep theirs until they are recovered, which needs others.
  store.buffers = 32;
  store.keys = 1000;
  if (rng.below(4) == 0) store.flushable_bytes = (8 + beside.below(17)) * store.segment_bytes;
  store.ping_interval = static_cast<Time>(100 + rng.below(200)) * kMicrosecond;
  store.ping_timeout = 100 * kMicrosecond;
  store.pings = static_cast<std::uint32_t>(2 + rng.below(4));
  store.lease = static_cast<Time>(300 + rng.below(500)) * kMicrosecond;
  store.call_timeout = static_cast<Time>(500 + rng.below(1500)) * kMicrosecond;
  store.retry_pause = 20 * kMicrosecond;
  store.timeout_us = 16;
  store.retry_count = static_cast<std::uint32_t>(1 + rng.below(3));
  if (rng.below(2) == 0) store.partition_records = 3;
  keys = static_cast<std::uint32_t>(3 + rng.below(10));
  window = static_cast<std::uint32_t>(1 + rng.below(4));
  constexpr std::array<std::uint32_t, 4> kMostValues{200, 12'000, 12'000, 40'000};
  most_value = kMostValues[rng.below(kMostValues.size())];
  has_last_crash =
      store.replicas > 0 && rng.below(2) == 0 &&
      (options.faults[Fault::crash].rate > 0 || options.faults[Fault::host_crash].rate > 0 ||
       options.faults[Fault::battery_crash].rate > 0);
  has_outage =
      store.replicas > 0 && options.faults[Fault::battery_crash].rate > 0 && rng.below(2) == 0;
}

bool has_any(const fuzz::Options& options, std::initializer_list<Fault> faults) {
  return std::ranges::any_of(faults, [&](Fault fault) { return options.faults[fault].rate > 0; });
}

bool has_bad_disks(const fuzz::Options& options) {
  return has_any(options, {Fault::disk_unreadable, Fault::disk_misdirected, Fault::disk_rot,
                           Fault::disk_lies});
}

World::World(fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      shape(wanted),
      plans(plans_of(wanted, shape, faults.pace())),
      next(plans.size()),
      is_done(plans.size()),
      keys_(shape.keys) {}

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

std::uint64_t World::begin(const Planned& op) {
  if (free_processes_.empty()) free_processes_.insert(processes_++);
  const std::int32_t process = *free_processes_.begin();
  free_processes_.erase(free_processes_.begin());
  open_[++begun_] = {op, process, keys_[op.key].newest};
  const auto f = op.opcode == Opcode::kRead    ? check::Function::kGet
                 : op.opcode == Opcode::kWrite ? check::Function::kPut
                                               : check::Function::kDelete;
  const auto value =
      op.opcode == Opcode::kWrite ? check::Value::integer(op.id) : check::Value::none();
  history.invoke(cluster->now(), process, f, check::Value::integer(op.key), value);
  return begun_;
}

void World::end(std::uint64_t number, const Result& result) {
  const Open open = open_.at(number);
  open_.erase(number);
  const Planned& op = open.op;
  const auto key = check::Value::integer(op.key);
  const std::string what = std::string(to_string(op.opcode)) + " " + std::to_string(op.id) +
                           " of key " + std::to_string(op.key);
  const bool is_ok = result.status == StoreStatus::kOk;
  auto f = check::Function::kPut;
  auto value = check::Value::integer(op.id);
  auto type = check::EventType::kOk;
  std::optional<std::int64_t> stored;  // by the version of the answer
  if (!is_ok && (result.status != StoreStatus::kNoObject || op.opcode == Opcode::kWrite)) {
    type = check::EventType::kFail;
    ++outcome.fail;
    if (result.status != StoreStatus::kLogFull)
      violation("status",
                what + " ends with status " + std::to_string(static_cast<int>(result.status)));
  } else {
    ++outcome.ok;
  }
  if (op.opcode == Opcode::kWrite) {
    stored = op.id;
  } else if (op.opcode == Opcode::kRemove) {
    f = check::Function::kDelete;
    value = check::Value::boolean(is_ok);
  } else {
    f = check::Function::kGet;
    value = check::Value::none();
    if (is_ok) {
      std::uint32_t id = 0;
      if (result.value.size() >= kLeastValue) std::memcpy(&id, result.value.data(), kLeastValue);
      if (result.value != value_of(id, static_cast<std::uint32_t>(result.value.size())))
        violation("payload", what + " returns bytes that none wrote");
      value = check::Value::integer(id);
      stored = id;
    }
  }
  history.complete(cluster->now(), open.process, type, f, key, value);
  free_processes_.insert(open.process);
  if (!is_ok || may_forget()) return;
  // What ended before has older versions.
  Key& known = keys_[op.key];
  const bool is_late =
      op.opcode == Opcode::kWrite ? result.version <= open.floor : result.version < open.floor;
  if (is_late)
    violation("version", what + " has version " + std::to_string(result.version) +
                             ", and before it began " + std::to_string(open.floor) + " was seen");
  known.newest = std::max(known.newest, result.version);
  if (!stored) return;
  const auto [of, is_new] = known.values.try_emplace(result.version, *stored);
  if (!is_new && of->second != *stored)
    violation("version", what + ": version " + std::to_string(result.version) + " has value " +
                             std::to_string(*stored) + " and " + std::to_string(of->second));
}

// ---- lives ----

void World::server_began(ServerId server, bool is_new_process) {
  lives[server];
  down.erase(server.node);
  outcome.restarts += server.life != 0 && is_new_process;
  outcome.reconnects += !is_new_process;
}

void World::server_ended(ServerId server) {
  Life& life = lives[server];
  if (life.has_ended || is_over) return;
  life.has_ended = true;
  life.is_serving = false;
  if (unsettled() > shape.store.replicas) may_lose = true;
}

void World::restart(NodeId node) {
  constexpr Time kDown = 50 * kMicrosecond;
  down.insert(node);
  cluster->kill_later(node, 1);
  cluster->restart_later(node, kDown);
}

void World::note(Server& server) {
  Life& life = lives[server.id()];
  if (life.has_ended) return;
  const std::uint64_t epoch = server.epoch();
  // The log learns of a view after the server.
  life.is_whole = server.log().is_whole() && life.epoch == epoch;
  life.epoch = epoch;
  life.is_serving = server.is_serving();
  life.unflushed = server.backup().counters().unflushed;
  life.of_ended.clear();
  for (const auto& [id, other] : lives)
    if (other.has_ended && !other.is_settled) life.of_ended[id] = server.backup().replicas(id);
  life.logs = server.backup().logs();
  life.inherited_logs = server.backup().inherited_logs();
  life.to_replace = 0;
  for (const std::uint64_t log : life.inherited_logs)
    if (view.is_up(ServerId::of(log)))
      life.to_replace += server.backup().replicas(ServerId::of(log));
  settle();
}

void World::note(Coordinator& coordinator) {
  if (!has_salvaged()) events_before_salvage_ = history.events().size();
  view = coordinator.view();
  for (const ListedServer& server : view.servers)
    if (server.state == ServerState::kDead) server_ended(server.id);
  recoveries.clear();
  coordinator_problem.clear();
  for (const RecoveryReport& report : coordinator.recoveries()) {
    if (report.declared == 0 || report.ended != 0) continue;
    recoveries += "\n  " + to_string(report.dead) + ": attempts " +
                  std::to_string(report.attempts) + ", declared " +
                  std::to_string(report.declared) + ", read " + std::to_string(report.read) +
                  ", outwaited " + std::to_string(report.outwaited) + ", assigned " +
                  std::to_string(report.assigned) + " ns. " + report.problem;
    coordinator_problem += report.problem;
  }
  settle();
}

// The log of a dead server stays as it is until it is recovered, so each backup that it loses
// counts until then.
void World::settle() {
  bool others_are_whole = true;
  for (const ListedServer& server : view.servers) {
    if (server.state != ServerState::kUp) return;
    const auto life = lives.find(server.id);
    if (life == lives.end()) continue;
    if (life->second.has_ended) return;
    others_are_whole =
        others_are_whole && life->second.is_whole && life->second.epoch == view.epoch;
  }
  if (!others_are_whole) return;
  for (auto& [id, life] : lives) {
    if (!life.has_ended || life.is_settled) continue;
    life.is_settled = std::ranges::find(view.servers, id, &ListedServer::id) == view.servers.end();
  }
}

// What batteries have saved of a node is there again when it is up: together they are one loss,
// that of the primaries' memory.
std::uint32_t World::unsettled() const {
  std::uint32_t count = 0, saved = 0;
  for (const auto& [id, life] : lives) {
    if (!life.has_ended || life.is_settled) continue;
    if (life.is_saved)
      saved = 1;
    else
      ++count;
  }
  return count + saved;
}

bool World::is_whole() const {
  std::set<NodeId> serving;
  for (const auto& [id, life] : lives) {
    if (life.has_ended && !life.is_settled) return false;
    if (!life.has_ended && life.is_whole && life.is_serving && life.epoch == view.epoch)
      serving.insert(id.node);
  }
  return down.empty() && serving.size() == shape.store.servers &&
         std::ranges::all_of(view.servers, [](const ListedServer& server) {
           return server.state == ServerState::kUp;
         });
}

Time World::flush_time() const {
  // The most requests of the disk that Frames::write() needs.
  constexpr double kWrites = 5, kSyncs = 3;
  const fabric::sim::SimProfile& profile = options.profile;
  return static_cast<Time>((kWrites * profile.storage_write_us + kSyncs * profile.storage_sync_us) *
                               kMicrosecond +
                           8.0 / profile.storage_rate_gbps * shape.store.segment_bytes);
}

Time World::disk_work() const {
  // The most requests of the disk that BackupService needs for a file.
  constexpr double kReads = 4;
  const double request = options.profile.storage_write_us * kMicrosecond;
  const double byte = 8 / options.profile.storage_rate_gbps;
  const double read = kReads * request + byte * shape.store.segment_bytes;
  const auto write = static_cast<double>(flush_time());
  std::vector<double> works(shape.store.servers);
  for (NodeId node = 0; node < shape.store.servers; ++node) {
    const auto [files, bytes] = cluster->disk_use(node);
    works[node] = kReads * request * static_cast<double>(files) + byte * static_cast<double>(bytes);
  }
  for (const auto& [id, life] : lives) {
    if (life.has_ended || !life.is_serving) continue;
    works[id.node] = write * static_cast<double>(life.unflushed + life.to_replace);
    for (const auto& [ended, replicas] : life.of_ended)
      if (!lives.at(ended).is_settled)
        works[id.node] += (read + write) * static_cast<double>(replicas);
  }
  return static_cast<Time>(std::ranges::max(works));
}

std::string World::garbage() const {
  std::string text;
  for (const auto& [id, life] : lives) {
    if (life.has_ended) continue;
    for (const std::uint64_t log : life.logs) {
      if (std::ranges::find(view.servers, ServerId::of(log), &ListedServer::id) ==
          view.servers.end())
        text += "\n  " + to_string(id) + " has replicas of " + to_string(ServerId::of(log));
    }
    for (const std::uint64_t log : life.inherited_logs) {
      if (view.is_up(ServerId::of(log)))
        text +=
            "\n  " + to_string(id) + " still has old replicas of " + to_string(ServerId::of(log));
    }
  }
  return text;
}

bool World::all_done() const {
  return std::ranges::all_of(is_done, [](bool done) { return done; });
}

std::string World::describe() const {
  std::string text = "\n  replicas " + std::to_string(shape.store.replicas) + ", workers " +
                     std::to_string(shape.store.workers) + ", epoch " + std::to_string(view.epoch) +
                     ", done " + std::to_string(std::ranges::count(is_done, true)) + " of " +
                     std::to_string(is_done.size()) + ", open " + std::to_string(open_.size()) +
                     (may_lose ? ", data may be lost" : "");
  for (const NodeId node : down) text += ", node " + std::to_string(node) + " is down";
  for (const ListedServer& server : view.servers)
    text += "\n  listed " + to_string(server.id) +
            (server.state == ServerState::kDead ? " dead" : " up");
  for (const Tablet& tablet : view.tablets)
    text += "\n  tablet of " + to_string(tablet.owner) + " since " +
            std::to_string(tablet.since.segment);
  for (const auto& [id, life] : lives) {
    if (life.has_ended && life.is_settled) continue;
    text += "\n  " + to_string(id) + (life.has_ended ? " has ended" : " lives") +
            (life.is_serving ? ", serves" : "") + (life.is_whole ? ", whole" : "") + ", epoch " +
            std::to_string(life.epoch);
  }
  for (const auto& [number, open] : open_)
    text += "\n  open: " + std::string(to_string(open.op.opcode)) + " " +
            std::to_string(open.op.id) + " of key " + std::to_string(open.op.key);
  return text + recoveries;
}

bool World::has_salvaged() const { return cluster->branches().contains("tailwind/salvaged"); }

void World::battery_saves() {
  if (!std::exchange(has_saved_, true)) events_before_saved_ = history.events().size();
  const Options& store = shape.store;
  if (store.replication == Replication::kTailwind && store.durability != Durability::kFlush)
    forgets_completed_ = true;
}

bool World::may_lack_saved() const {
  const FaultCounters& faults = cluster->fault_counters();
  const bool flips_bits = faults.reached[static_cast<std::size_t>(Fault::disk_rot)] != 0;
  return forgets_completed_ || (has_saved_ && flips_bits);
}

bool World::may_forget() const { return may_lack_saved() || has_salvaged(); }

std::size_t World::events_to_judge() const {
  std::size_t events = history.events().size();
  if (may_lack_saved()) events = std::min(events, events_before_saved_);
  if (has_salvaged()) events = std::min(events, events_before_salvage_);
  return events;
}

void World::check() {
  outcome.info += open_.size();
  if (has_salvaged() && !may_miss())
    violation("loss", "a log was salvaged, though no more servers died than the store survives" +
                          describe());
  check::History judged;
  judged.header = history.header;
  for (std::size_t i = 0; i < events_to_judge(); ++i) judged.append(history.events()[i]);
  fuzz::judge(outcome, options, judged, "kv", cluster->now());
}

}  // namespace pyrdma::tailwind::scenario
