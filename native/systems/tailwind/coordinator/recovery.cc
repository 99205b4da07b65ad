// How the coordinator has the log of a dead server recovered.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/coordinator/coordinator.h"
#include "systems/tailwind/coordinator/partitions.h"
#include "systems/tailwind/rpc/background.h"

namespace pyrdma::tailwind {

namespace {

// Clocks may run at rates that differ by so much, one part in so many.
constexpr Time kClockDrift = 16;

Bytes number_of(ServerId id) {
  Bytes bytes;
  ByteWriter(bytes).put(id.number());
  return bytes;
}

}  // namespace

std::shared_ptr<Coordinator::Gathered> Coordinator::ask(Opcode opcode,
                                                        const std::map<ServerId, Bytes>& requests,
                                                        Time deadline) {
  auto gathered = std::make_shared<Gathered>(env_);
  gathered->under_way = static_cast<std::uint32_t>(requests.size());
  for (const auto& [server, payload] : requests) {
    transport_.call(server, opcode, payload, deadline,
                    [gathered, to = server, env = &env_](CallEnd end, ByteView answer) {
                      if (end == CallEnd::kAnswered) {
                        const std::lock_guard<Mutex> lock(gathered->mutex);
                        gathered->answers[to] = {answer.begin(), answer.end()};
                      }
                      gathered->under_way.fetch_sub(1, std::memory_order_release);
                      env->notify(gathered->watch);
                    });
  }
  return gathered;
}

// Pings on the same connections find those that have broken.
void Coordinator::await(Gathered& gathered, const std::map<ServerId, Bytes>& requests) {
  const auto is_over = [&] {
    return gathered.under_way.load(std::memory_order_acquire) == 0 || is_stopping_.load();
  };
  while (!env_.poll_until(is_over, env_.now() + options_.ping_interval, &gathered.watch)) {
    for (const auto& [server, payload] : requests)
      transport_.call(server, Opcode::kPing, {}, env_.now() + options_.call_timeout,
                      [](CallEnd, ByteView) {});
  }
}

void Coordinator::recoveries_loop() {
  while (!is_stopping_.load(std::memory_order_acquire)) {
    const std::uint64_t seen = changes_.load();
    std::vector<ServerId> dead;
    const auto view = shown();
    for (const ListedServer& server : view->servers)
      if (server.state == ServerState::kDead) dead.push_back(server.id);
    bool has_failed = false;
    for (const ServerId server : dead) {
      if (is_stopping_.load()) return;
      has_failed = is_resting(server) || !recover(server) || has_failed;
    }
    const Time next = has_failed ? env_.now() + 10 * options_.retry_pause : kForever;
    const auto is_called = [&] { return changes_.load() != seen || is_stopping_.load(); };
    wait_quietly(env_, is_called, next, changed_, options_.idle_after, options_.retry_pause);
  }
}

// An attempt that fails for want of room has filled logs for nothing. Who lives and cleans them
// meanwhile needs time, so the pause grows.
void Coordinator::rest(ServerId dead) {
  constexpr std::uint32_t kMostDoublings = 7;
  Rest& rest = rests_[dead];
  rest.times = std::min(rest.times + 1, kMostDoublings);
  rest.until = env_.now() + (10 * options_.retry_pause << rest.times);
  rest.servers = up().size();
}

bool Coordinator::is_resting(ServerId dead) {
  const auto at = rests_.find(dead);
  return at != rests_.end() && env_.now() < at->second.until && up().size() <= at->second.servers;
}

bool Coordinator::fail(ServerId dead, const std::string& why) {
  env_.reached("tailwind/recovery_repeated");
  const std::lock_guard<Mutex> lock(mutex_);
  report_of(dead).problem = why;
  return false;
}

bool Coordinator::recover(ServerId dead) {
  KnownVersions versions;
  bool has_tablets = false;
  Time outwait = 0;
  {
    const std::lock_guard<Mutex> state_lock(state_mutex_);
    versions = state_.versions(dead);
    const std::lock_guard<Mutex> lock(mutex_);
    ++report_of(dead).attempts;
    for (const Tablet& tablet : view_->tablets) has_tablets = has_tablets || tablet.owner == dead;
    const auto granted = granted_.find(dead);
    const Time begin = granted == granted_.end() ? started_ : std::max(started_, granted->second);
    outwait = begin + options_.lease + options_.lease / kClockDrift;
  }
  transport_.close(dead);
  if (has_tablets) {
    const Told told = ask_backups(dead);
    if (is_stopping_.load()) return false;
    FoundLog log = find_log(told.found, versions);
    // A server that died before its log had begun has only empty tablets.
    const bool has_begun = !versions.empty();
    if (!has_begun) {
      env_.reached("tailwind/log_without_begin");
      log = {};
    }
    {
      const std::lock_guard<Mutex> lock(mutex_);
      report_of(dead).read = env_.now();
      report_of(dead).replicas = told.found.size();
      report_of(dead).lacks_data = !log.missing.empty();
    }
    if (!log.missing.empty()) {
      if (!told.is_all) return fail(dead, log.missing);
      // Waiting would make nothing come back, and nothing of the rest could be read.
      env_.reached("tailwind/salvaged");
      log = salvage_log(told.found);
    }
    env_.poll_until([&] { return is_stopping_.load(); }, outwait, &changed_);
    while (env_.now() < outwait && !is_stopping_.load()) env_.sleep_until(outwait);
    LogCut cut;
    // A closed segment counts as a whole: replicas of one that was compacted have other lengths.
    for (const FoundLog::Part& part : log.parts)
      cut.push_back({part.segment, part.is_closed ? ~std::uint32_t{0} : part.valid});
    {
      const Time outwaited = env_.now();
      const std::lock_guard<Mutex> state_lock(state_mutex_);
      const LogCut& kept = state_.record_cut(dead, cut);
      if (bugs_.keeps_cut()) cut = kept;
      const std::lock_guard<Mutex> lock(mutex_);
      report_of(dead).outwaited = outwaited;
      if (!log.lost.empty()) report_of(dead).lost = log.lost;
    }
    if (!assign(dead, cut, log, told)) return false;
  }
  std::map<ServerId, Bytes> requests;
  for (const ServerId each : up()) requests[each] = number_of(dead);
  await(*ask(Opcode::kForget, requests, env_.now() + options_.call_timeout), requests);
  if (is_stopping_.load()) return false;
  {
    const std::lock_guard<Mutex> state_lock(state_mutex_);
    state_.forget(dead);
    const std::lock_guard<Mutex> lock(mutex_);
    publish();
    report_of(dead).ended = env_.now();
    report_of(dead).problem.clear();
  }
  rests_.erase(dead);
  push();
  return true;
}

Coordinator::Told Coordinator::ask_backups(ServerId dead) {
  Told told;
  told.backups = up();
  std::map<ServerId, Bytes> requests;
  for (const ServerId each : told.backups) requests[each] = number_of(dead);
  const auto gathered =
      ask(Opcode::kStartReading, requests, env_.now() + 10 * options_.call_timeout);
  await(*gathered, requests);
  bool has_all = true;
  for (const auto& [backup, bytes] : gathered->answers) {
    ByteReader in(bytes);
    const auto inventory = Inventory::get(in);
    if (!inventory || !in.done()) continue;
    const auto index =
        static_cast<std::uint32_t>(std::ranges::find(told.backups, backup) - told.backups.begin());
    for (const HeldReplica& held : inventory->replicas) {
      told.found.push_back({index, held.segment, held.version, held.is_closed, held.is_copy,
                            held.valid, held.digest});
      told.records += held.entries;
    }
    told.rooms[backup] = inventory->room;
    has_all = has_all && !inventory->may_have_more;
  }
  told.records /= std::max(options_.replicas, 1U);
  told.is_all = has_all && told.rooms.size() == options_.servers;  // each node has one that is up
  return told;
}

// Every attempt uses the same cut: readers have not seen what lies beyond it. A segment of the cut
// that nobody has any more was not committed, as the log is whole without it, and nobody has seen
// it in the tablets that are left. They may get what was found now.
bool Coordinator::assign(ServerId dead, const LogCut& kept, const FoundLog& log, const Told& told) {
  const std::vector<ServerId> masters = up();
  if (masters.empty()) return fail(dead, "no server is up");
  const auto part_of = [&](std::uint64_t segment) {
    return std::ranges::find(log.parts, segment, &FoundLog::Part::segment);
  };
  const auto valid_in_cut = [&](std::uint64_t segment) {
    const auto at = std::ranges::find(kept, segment, &SegmentCut::segment);
    return at == kept.end() ? ~std::uint32_t{0} : at->valid;
  };
  const bool has_all = std::ranges::all_of(
      kept, [&](const SegmentCut& each) { return part_of(each.segment) != log.parts.end(); });
  if (!has_all) env_.reached("tailwind/cut_replaced");
  RecoverRequest work;
  work.dead = dead;
  std::uint64_t bytes = 0;
  for (const FoundLog::Part& part : log.parts) {
    const bool is_in_cut =
        std::ranges::find(kept, part.segment, &SegmentCut::segment) != kept.end();
    if (has_all && !is_in_cut) continue;
    const std::uint32_t valid = std::min(valid_in_cut(part.segment), part.valid);
    // The longest replica may be gone since. What it alone had was not committed, either.
    if (valid < valid_in_cut(part.segment) && !part.is_closed)
      env_.reached("tailwind/cut_shortened");
    work.parts.push_back({part.segment, valid, {}});
    for (const FoundReplica* replica : part.replicas)
      work.parts.back().backups.push_back(told.backups.at(replica->backup));
    bytes += valid;
  }
  std::vector<Tablet> tablets;
  const auto view = shown();
  for (const Tablet& tablet : view->tablets)
    if (tablet.owner == dead) tablets.push_back(tablet);
  std::vector<std::uint64_t> rooms;
  std::uint64_t room = 0;
  for (const ServerId master : masters) {
    const auto at = told.rooms.find(master);
    rooms.push_back(at == told.rooms.end() ? options_.log_bytes : at->second);
    room += rooms.back();
  }
  const std::uint64_t most_live = std::min(bytes, options_.log_bytes);  // the rest is of no use
  const auto crowded = rests_.find(dead);
  const Shares planned = shares(
      tablets, {most_live, told.records, options_.partition_bytes, options_.partition_records},
      rooms, rng_.below(masters.size()),
      crowded == rests_.end() ? 1 : masters.size() << crowded->second.times);
  std::map<ServerId, Bytes> requests;
  std::map<ServerId, std::vector<HashRange>> given;
  for (std::size_t i = 0; i < masters.size(); ++i)
    if (!planned.of_owners[i].empty()) given[masters[i]] = planned.of_owners[i];
  for (const auto& [master, ranges] : given) {
    work.tablets.clear();
    for (const HashRange& range : ranges) {
      const auto of = std::ranges::find_if(tablets, [&](const Tablet& tablet) {
        return tablet.range.has(range.table, range.first);
      });
      work.tablets.push_back({range, dead, of->since});
    }
    requests[master] = encoded_bytes(work);
  }
  {
    const std::lock_guard<Mutex> lock(mutex_);
    report_of(dead).assigned = env_.now();
    report_of(dead).partitions = static_cast<std::uint32_t>(planned.parts);
  }
  const auto gathered = ask(Opcode::kRecover, requests, kForever);
  await(*gathered, requests);
  if (is_stopping_.load()) return false;
  std::string problem;
  bool is_crowded = false;
  for (const auto& [master, ranges] : given) {
    const auto bytes_of = gathered->answers.find(master);
    std::optional<RecoverAnswer> answer;
    if (bytes_of != gathered->answers.end()) {
      ByteReader in(bytes_of->second);
      answer = RecoverAnswer::get(in);
    }
    if (!answer || !answer->is_done) {
      is_crowded = is_crowded || (answer && answer->lost_segment == 0);
      problem = !answer ? to_string(master) + " has not answered"
                : answer->lost_segment != 0
                    ? "no backup gives segment " + std::to_string(answer->lost_segment)
                    : to_string(master) + " could not store the objects: the logs have room for " +
                          std::to_string(room) + " of at most " + std::to_string(most_live) +
                          " B; start more servers, or remove objects";
      continue;
    }
    const std::lock_guard<Mutex> state_lock(state_mutex_);
    if (!state_.move_tablets(dead, ranges, master, answer->since)) {
      problem = to_string(master) + " died";
      continue;
    }
    const std::lock_guard<Mutex> lock(mutex_);
    publish();
    report_of(dead).objects += answer->objects;
    report_of(dead).bytes += answer->bytes;
  }
  push();
  if (is_crowded) rest(dead);
  return problem.empty() || fail(dead, problem);
}

}  // namespace pyrdma::tailwind
