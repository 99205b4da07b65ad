#include "systems/tailwind/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/coordinator/partitions.h"

namespace pyrdma::tailwind {

namespace {

// Clocks may run at rates that differ by so much, one part in so many.
constexpr Time kClockDrift = 16;

template <class Message>
Bytes encode(const Message& message) {
  Bytes bytes;
  ByteWriter out(bytes);
  message.put(out);
  return bytes;
}

Bytes number_of(ServerId id) {
  Bytes bytes;
  ByteWriter(bytes).put(id.number());
  return bytes;
}

}  // namespace

Coordinator::Coordinator(Env& env, const Options& options)
    : env_(env),
      options_((check(options, env.nodes()), options)),
      started_(env.now()),
      transport_(env, options_, {env.node(), env.incarnation() * ServerId::kLives}, kReceives),
      mutex_(env),
      state_(env.storage(), "tailwind-coordinator"),
      rng_(env.rng("tailwind/coordinator")),
      dispatcher_(transport_, 1, [this](Worker&, const Incoming& request, Bytes& answer) {
        serve(request, answer);
      }) {
  for (const ListedServer& server : state_.view().servers)
    if (server.state == ServerState::kDead) note_dead(server.id);
  members_thread_ = env_.spawn("tailwind/members", [this] { members(); });
  recovery_thread_ = env_.spawn("tailwind/recovery", [this] { recoveries_loop(); });
}

// The threads may wait for answers, which only the dispatch thread takes.
Coordinator::~Coordinator() {
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(changed_);
}

void Coordinator::run(FunctionRef<bool()> is_over) {
  push();
  dispatcher_.run(is_over);
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(changed_);
}

ClusterView Coordinator::view() {
  const std::lock_guard<Mutex> lock(mutex_);
  return state_.view();
}

std::vector<RecoveryReport> Coordinator::recoveries() {
  const std::lock_guard<Mutex> lock(mutex_);
  return reports_;
}

std::vector<ServerId> Coordinator::up() {
  const std::lock_guard<Mutex> lock(mutex_);
  std::vector<ServerId> ids;
  for (const ListedServer& server : state_.view().servers)
    if (server.state == ServerState::kUp) ids.push_back(server.id);
  return ids;
}

// ---- requests ----

void Coordinator::serve(const Incoming& request, Bytes& answer) {
  ByteReader in(request.payload());
  ByteWriter out(answer);
  switch (request.opcode) {
    case Opcode::kEnlist: {
      const ServerId server = ServerId::of(in.get<std::uint64_t>());
      if (in.done() && server == request.from && server.node < options_.servers)
        enlist(server, answer);
      return;
    }
    case Opcode::kRenew: {
      const std::lock_guard<Mutex> lock(mutex_);
      const bool is_up = state_.view().is_up(request.from);
      if (is_up) granted_[request.from] = env_.now();
      return out.put(static_cast<std::uint8_t>(is_up));
    }
    case Opcode::kSuspect: {
      const ServerId server = ServerId::of(in.get<std::uint64_t>());
      if (!in.done()) return;
      {
        const std::lock_guard<Mutex> lock(mutex_);
        if (!state_.view().is_up(server) || !checking_.insert(server).second) return;
        report_of(server).suspected = env_.now();
      }
      return check_life(server, options_.pings);
    }
    case Opcode::kRaiseVersion: {
      const std::uint64_t segment = in.get<std::uint64_t>(), version = in.get<std::uint64_t>();
      if (!in.done()) return;
      const std::lock_guard<Mutex> lock(mutex_);
      return out.put(
          static_cast<std::uint8_t>(state_.raise_version(request.from, segment, version)));
    }
    case Opcode::kCreateTable: {
      std::vector<ServerId> owners;
      const std::uint32_t count = in.get<std::uint32_t>();
      if (count > in.left() / sizeof(std::uint64_t)) return;
      for (std::uint32_t i = 0; i < count; ++i)
        owners.push_back(ServerId::of(in.get<std::uint64_t>()));
      const ByteView name = in.bytes(in.left());
      const std::string text(reinterpret_cast<const char*>(name.data()), name.size());
      try {
        const std::lock_guard<Mutex> lock(mutex_);
        out.put(state_.create_table(text, owners));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
        return;
      }
      return push();
    }
    case Opcode::kLocate: {
      const std::lock_guard<Mutex> lock(mutex_);
      out.put(in.left() == 1 ? state_.new_client() : 0);  // one byte asks for a client's number
      return state_.view().put(out);
    }
    default:
      return;
  }
}

// The answer is the view, so that the server knows at once whether it is listed.
void Coordinator::enlist(ServerId server, Bytes& answer) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (!state_.enlist(server)) return;
    granted_[server] = env_.now();
    for (const ListedServer& each : state_.view().servers)
      if (each.state == ServerState::kDead && each.id.node == server.node) note_dead(each.id);
    ByteWriter out(answer);
    state_.view().put(out);
  }
  changes_.fetch_add(1);
  env_.notify(changed_);
  push();
}

// ---- who is dead ----

RecoveryReport& Coordinator::report_of(ServerId dead) {
  const auto at = std::ranges::find(reports_, dead, &RecoveryReport::dead);
  if (at != reports_.end()) return *at;
  reports_.push_back({});
  reports_.back().dead = dead;
  return reports_.back();
}

void Coordinator::note_dead(ServerId dead) {
  RecoveryReport& report = report_of(dead);
  if (report.declared == 0) report.declared = env_.now();
}

// A server that has restarted answers with another life.
void Coordinator::check_life(ServerId server, std::uint32_t left) {
  if (left == 0) {
    {
      const std::lock_guard<Mutex> lock(mutex_);
      to_declare_.push_back(server);
    }
    changes_.fetch_add(1);
    env_.notify(changed_);
    return;
  }
  transport_.call(server, Opcode::kPing, {}, env_.now() + options_.ping_timeout,
                  [=, this](CallEnd end, ByteView) {
                    if (end == CallEnd::kAnswered) {
                      const std::lock_guard<Mutex> lock(mutex_);
                      checking_.erase(server);
                      return;
                    }
                    // A connection that breaks at once says less than silence.
                    transport_.defer(env_.now() + options_.ping_timeout / 4,
                                     [=, this] { check_life(server, left - 1); });
                  });
}

void Coordinator::members() {
  while (!is_stopping_.load(std::memory_order_acquire)) {
    std::optional<ServerId> server;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      if (!to_declare_.empty()) {
        server = to_declare_.front();
        to_declare_.pop_front();
        if (state_.declare_dead(*server)) note_dead(*server);
        checking_.erase(*server);
      }
    }
    if (server) {
      transport_.close(*server);
      changes_.fetch_add(1);
      env_.notify(changed_);
      push();
      continue;
    }
    const std::uint64_t seen = changes_.load();
    env_.poll_until([&] { return changes_.load() != seen || is_stopping_.load(); },
                    env_.now() + options_.ping_timeout, &changed_);
  }
}

// ---- the view ----

void Coordinator::push() {
  const std::lock_guard<Mutex> lock(mutex_);
  const ClusterView& view = state_.view();
  const auto bytes = std::make_shared<const Bytes>(encode(view));
  for (const ListedServer& server : view.servers) {
    if (server.state != ServerState::kUp || pushed_[server.id] >= view.epoch ||
        !pushing_.insert(server.id).second)
      continue;
    push_to(server.id, bytes, view.epoch);
  }
}

void Coordinator::push_to(ServerId server, std::shared_ptr<const Bytes> view, std::uint64_t epoch) {
  transport_.call(server, Opcode::kUpdate, *view, env_.now() + options_.call_timeout,
                  [=, this](CallEnd end, ByteView) {
                    {
                      const std::lock_guard<Mutex> lock(mutex_);
                      pushing_.erase(server);
                      if (end == CallEnd::kAnswered)
                        pushed_[server] = std::max(pushed_[server], epoch);
                    }
                    if (end == CallEnd::kAnswered) return push();
                    transport_.defer(env_.now() + options_.retry_pause, [this] { push(); });
                  });
}

// ---- recovery ----

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
    {
      const std::lock_guard<Mutex> lock(mutex_);
      for (const ListedServer& server : state_.view().servers)
        if (server.state == ServerState::kDead) dead.push_back(server.id);
    }
    bool has_failed = false;
    for (const ServerId server : dead) {
      if (is_stopping_.load()) return;
      has_failed = !recover(server) || has_failed;
    }
    const Time next = has_failed ? env_.now() + 10 * options_.retry_pause : kForever;
    env_.poll_until([&] { return changes_.load() != seen || is_stopping_.load(); }, next,
                    &changed_);
  }
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
    const std::lock_guard<Mutex> lock(mutex_);
    ++report_of(dead).attempts;
    versions = state_.versions(dead);
    for (const Tablet& tablet : state_.view().tablets)
      has_tablets = has_tablets || tablet.owner == dead;
    const auto granted = granted_.find(dead);
    const Time begin = granted == granted_.end() ? started_ : std::max(started_, granted->second);
    outwait = begin + options_.lease + options_.lease / kClockDrift;
  }
  transport_.close(dead);
  if (has_tablets) {
    const std::vector<ServerId> backups = up();
    std::map<ServerId, Bytes> requests;
    for (const ServerId each : backups) requests[each] = number_of(dead);
    const auto gathered =
        ask(Opcode::kStartReading, requests, env_.now() + 10 * options_.call_timeout);
    await(*gathered, requests);
    if (is_stopping_.load()) return false;
    std::vector<FoundReplica> found;
    std::uint64_t records = 0;
    for (const auto& [backup, bytes] : gathered->answers) {
      ByteReader in(bytes);
      const auto inventory = Inventory::get(in);
      if (!inventory || !in.done()) continue;
      const auto index =
          static_cast<std::uint32_t>(std::ranges::find(backups, backup) - backups.begin());
      for (const HeldReplica& held : inventory->replicas) {
        found.push_back({index, held.segment, held.version, held.is_closed, held.is_copy,
                         held.valid, held.digest});
        records += held.entries;
      }
    }
    const FoundLog log = find_log(found, versions);
    {
      const std::lock_guard<Mutex> lock(mutex_);
      report_of(dead).read = env_.now();
      report_of(dead).replicas = found.size();
    }
    if (!log.missing.empty()) return fail(dead, log.missing);
    env_.poll_until([&] { return is_stopping_.load(); }, outwait, &changed_);
    while (env_.now() < outwait && !is_stopping_.load()) env_.sleep_until(outwait);
    LogCut cut;
    for (const FoundLog::Part& part : log.parts) cut.push_back({part.segment, part.valid});
    {
      const std::lock_guard<Mutex> lock(mutex_);
      report_of(dead).outwaited = env_.now();
      cut = state_.record_cut(dead, cut);
    }
    if (!assign(dead, cut, log, backups, records / std::max(options_.replicas, 1U))) return false;
  }
  std::map<ServerId, Bytes> requests;
  for (const ServerId each : up()) requests[each] = number_of(dead);
  await(*ask(Opcode::kForget, requests, env_.now() + options_.call_timeout), requests);
  if (is_stopping_.load()) return false;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    state_.forget(dead);
    report_of(dead).ended = env_.now();
    report_of(dead).problem.clear();
  }
  push();
  return true;
}

// Every attempt uses the same cut: readers have not seen what lies beyond it.
bool Coordinator::assign(ServerId dead, const LogCut& cut, const FoundLog& log,
                         const std::vector<ServerId>& backups, std::uint64_t records) {
  const std::vector<ServerId> masters = up();
  if (masters.empty()) return fail(dead, "no server is up");
  RecoverRequest work;
  work.dead = dead;
  std::uint64_t bytes = 0;
  for (const SegmentCut& each : cut) {
    const auto part = std::ranges::find(log.parts, each.segment, &FoundLog::Part::segment);
    if (part == log.parts.end() || part->valid < each.valid)
      return fail(dead, "segment " + std::to_string(each.segment) + " is shorter than before");
    work.parts.push_back({each.segment, each.valid, {}});
    for (const FoundReplica* replica : part->replicas)
      work.parts.back().backups.push_back(backups.at(replica->backup));
    bytes += each.valid;
  }
  std::vector<Tablet> tablets;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    for (const Tablet& tablet : state_.view().tablets)
      if (tablet.owner == dead) tablets.push_back(tablet);
  }
  const auto shares =
      partitions(tablets, {bytes, records, options_.partition_bytes, options_.partition_records});
  std::map<ServerId, Bytes> requests;
  std::map<ServerId, std::vector<HashRange>> given;
  const std::size_t first = rng_.below(masters.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    auto& ranges = given[masters[(first + i) % masters.size()]];
    ranges.insert(ranges.end(), shares[i].begin(), shares[i].end());
  }
  for (const auto& [master, ranges] : given) {
    work.tablets.clear();
    for (const HashRange& range : ranges) {
      const auto of = std::ranges::find_if(tablets, [&](const Tablet& tablet) {
        return tablet.range.has(range.table, range.first);
      });
      work.tablets.push_back({range, dead, of->since});
    }
    requests[master] = encode(work);
  }
  {
    const std::lock_guard<Mutex> lock(mutex_);
    report_of(dead).assigned = env_.now();
    report_of(dead).partitions = static_cast<std::uint32_t>(shares.size());
  }
  const auto gathered = ask(Opcode::kRecover, requests, kForever);
  await(*gathered, requests);
  if (is_stopping_.load()) return false;
  std::string problem;
  for (const auto& [master, ranges] : given) {
    const auto bytes_of = gathered->answers.find(master);
    std::optional<RecoverAnswer> answer;
    if (bytes_of != gathered->answers.end()) {
      ByteReader in(bytes_of->second);
      answer = RecoverAnswer::get(in);
    }
    if (!answer || !answer->is_done) {
      problem = !answer ? to_string(master) + " has not answered"
                : answer->lost_segment != 0
                    ? "no backup gives segment " + std::to_string(answer->lost_segment)
                    : to_string(master) + " could not store the objects: is its log full?";
      continue;
    }
    const std::lock_guard<Mutex> lock(mutex_);
    if (!state_.move_tablets(dead, ranges, master, answer->since)) {
      problem = to_string(master) + " died";
      continue;
    }
    report_of(dead).objects += answer->objects;
    report_of(dead).bytes += answer->bytes;
  }
  push();
  return problem.empty() || fail(dead, problem);
}

}  // namespace pyrdma::tailwind
