#include "systems/tailwind/fuzz/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fuzz/simulation.h"

namespace pyrdma::tailwind::scenario {

namespace {

std::byte byte_after(std::uint32_t id, std::size_t i) {
  return static_cast<std::byte>(mix64(id) >> i % 8 * 8) ^ static_cast<std::byte>(i);
}

}  // namespace

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
  open_[++begun_] = {op, process, keys_[op.key].newest, keys_[op.key].losses};
  const auto f = op.opcode == Opcode::kRead    ? check::Function::kGet
                 : op.opcode == Opcode::kWrite ? check::Function::kPut
                                               : check::Function::kDelete;
  const auto value =
      op.opcode == Opcode::kWrite ? check::Value::integer(op.id) : check::Value::none();
  history.invoke(cluster->now(), process, f, check::Value::integer(op.key), value);
  return begun_;
}

void World::end(std::uint64_t number, const Result& result) {
  note_losses();
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
  Key& known = keys_[op.key];
  if (!is_ok || open.losses != known.losses || known.has_forgotten) return;
  // What ended before has older versions.
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
  outcome.restarts += server.incarnation() != 0 && is_new_process;
  outcome.reconnects += !is_new_process;
}

void World::server_ended(ServerId server) {
  Life& life = lives[server];
  if (life.has_ended || is_over) return;
  life.has_ended = true;
  life.is_serving = false;
  if (unsettled() <= shape.store.replicas) return;
  may_lose = true;
  for (auto& [id, each] : lives)
    each.may_lack = each.may_lack || (each.has_ended && !each.is_settled);
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
  if (!cluster->faults_are_on()) {
    life.held = server.log().replicas();
    life.replicas.clear();
    for (const std::uint64_t log : life.logs)
      life.replicas[ServerId::of(log)] = server.backup().replicas(ServerId::of(log));
  }
  life.to_replace = 0;
  for (const std::uint64_t log : life.inherited_logs)
    if (view.is_up(ServerId::of(log)))
      life.to_replace += server.backup().replicas(ServerId::of(log));
  settle();
}

void World::note(Coordinator& coordinator) {
  note_losses();
  view = coordinator.view();
  for (const ListedServer& server : view.servers)
    if (server.state == ServerState::kDead) server_ended(server.id);
  recoveries.clear();
  coordinator_problem.clear();
  waiting_for_data.clear();
  for (const RecoveryReport& report : coordinator.recoveries()) {
    if (!report.lost.empty() && !has_bad_disks(options) && !lives[report.dead].may_lack)
      violation("loss", "the log of " + to_string(report.dead) +
                            " was salvaged, though no more servers died than the store survives" +
                            describe());
    if (report.declared == 0 || report.ended != 0) continue;
    recoveries += "\n  " + to_string(report.dead) + ": attempts " +
                  std::to_string(report.attempts) + ", declared " +
                  std::to_string(report.declared) + ", read " + std::to_string(report.read) +
                  ", outwaited " + std::to_string(report.outwaited) + ", assigned " +
                  std::to_string(report.assigned) + " ns. " + report.problem;
    coordinator_problem += report.problem;
    if (report.lacks_data) waiting_for_data.push_back(report.dead);
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
    std::uint64_t count = 0;
    for (const auto& [other, backup] : lives)
      if (const auto at = backup.replicas.find(id);
          !backup.has_ended && at != backup.replicas.end())
        count += at->second;
    if (count != life.held)
      text += "\n  " + to_string(id) + " has " + std::to_string(life.held) +
              " replicas, and its backups have " + std::to_string(count);
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

// ---- losses ----

const Tablet* World::tablet_of(std::uint32_t key) const {
  return view.find(table, key_hash(table, std::as_bytes(std::span(&key, 1))));
}

bool World::is_served(std::uint32_t key) const {
  const Tablet* tablet = tablet_of(key);
  if (tablet == nullptr) return false;
  const auto owner = lives.find(tablet->owner);
  return owner != lives.end() && !owner->second.has_ended && owner->second.is_serving;
}

std::set<std::int64_t> World::all_keys() const {
  std::set<std::int64_t> keys;
  for (std::uint32_t key = 0; key < shape.keys; ++key) keys.insert(key);
  return keys;
}

void World::lose(const std::set<std::int64_t>& keys, Time durable) {
  for (const std::int64_t key : keys) {
    Key& known = keys_[static_cast<std::size_t>(key)];
    ++known.losses;
    known.newest = 0;
    known.values.clear();
  }
  losses_.push_back({history.events().size(), keys, durable});
}

// Completions come before the data are in memory, by what the memory model allows. A server that
// lives has them until it dies, too.
void World::battery_saves() {
  const Options& store = shape.store;
  const bool forgets_completed =
      store.replication == Replication::kTailwind && store.durability != Durability::kFlush;
  if (!forgets_completed && !has_any(options, {Fault::disk_rot})) return;
  const Time usual_delay = fabric::sim::MemoryModel::weak().max_delay_ns;
  const Time since = cluster->now() - std::max(options.memory.max_delay_ns, usual_delay);
  lose(all_keys(), has_any(options, {Fault::disk_rot}) ? -1 : std::max<Time>(0, since));
  for (Key& key : keys_) key.has_forgotten = true;
}

// The coordinator reaches a salvage before the tablets have new owners, so nobody has an answer
// from them yet.
void World::note_losses() {
  const auto found = cluster->branches().find("tailwind/salvaged");
  const std::uint64_t salvages = found == cluster->branches().end() ? 0 : found->second;
  if (salvages == std::exchange(salvages_, salvages)) return;
  std::set<std::int64_t> keys;
  for (std::uint32_t key = 0; key < shape.keys; ++key)
    if (!is_served(key)) keys.insert(key);
  lose(keys, -1);
}

void World::note_moment(Server& server) {
  if (!at_cleaning && !at_roll) return;
  Life& life = lives[server.id()];
  const std::uint64_t survivors = server.log().cleaner_counters().survivors;
  const bool has_moved = survivors > life.survivors.value_or(survivors);
  life.survivors = survivors;
  if (at_cleaning && has_moved) std::exchange(at_cleaning, nullptr)(server.id().node);
  const std::uint32_t end = server.log().end().end;
  if (at_roll && end + shape.most_value > shape.store.segment_bytes)
    std::exchange(at_roll, nullptr)(server.id().node);
}

void World::check_lost() {
  for (const ServerId dead : waiting_for_data) {
    if (has_bad_disks(options) || lives[dead].may_lack) continue;
    violation("loss", "the log of " + to_string(dead) +
                          " lacks data, though no more servers died than the store survives" +
                          describe());
  }
}

void World::check() {
  outcome.info += open_.size();
  fuzz::judge(outcome, options, with_losses(history, losses_), "kv", cluster->now());
}

}  // namespace pyrdma::tailwind::scenario
