#include "systems/tailwind/server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pyrdma::tailwind {

namespace {

constexpr std::uint32_t kReceives = 1024;

}  // namespace

Bytes key_of(std::uint64_t number, std::uint32_t bytes) {
  Bytes key(bytes);
  std::memcpy(key.data(), &number, sizeof number);
  std::uint64_t rest = mix64(number);
  for (std::uint32_t i = sizeof number; i < bytes; ++i, rest = rest << 56 | rest >> 8)
    key[i] = static_cast<std::byte>(rest);
  return key;
}

Server::Server(Env& env, const Options& options, std::uint32_t life, Bugs bugs)
    : env_(env),
      options_((check(options, env.nodes()), keep_saved_memory(env.storage()), options)),
      id_(ServerId::of_server(env.node(), env.incarnation(), life)),
      coordinator_{options.coordinator, Transport::kNewest},
      bugs_(bugs),
      transport_(env, options_, id_, kReceives, bugs),
      backup_(env, transport_.domain(), options_, bugs),
      log_(transport_, options_, bugs),
      objects_(env, log_, options_.keys, bugs),
      rng_(env.rng("tailwind/server/" + std::to_string(life))),
      view_mutex_(env),
      cleaner_(env, options_, log_, objects_, bugs),
      dispatcher_(
          transport_, options_.workers,
          [this](Worker& worker, const Incoming& request, Bytes& answer) {
            serve(worker, request, answer);
          },
          options_.group_commit
              ? Dispatcher::ServeTogether(std::bind_front(&Server::serve_together, this))
              : nullptr,
          encoded_bytes(StoreAnswer{})) {
  log_.on_broken = [this](ServerId backup) { suspect(backup); };
}

Server::~Server() = default;

Server::View Server::view() const {
  const std::lock_guard<Mutex> lock(view_mutex_);
  return view_;
}

void Server::run(FunctionRef<bool()> is_over) {
  const auto ends = [&] {
    if (is_over() || dispatcher_.has_failed()) log_.depose();  // waits for a commit end
    return log_.is_deposed();
  };
  ends_ = ends;
  enlist();
  every_tick();
  dispatcher_.run(ends);
}

// ---- the coordinator ----

void Server::enlist() {
  Bytes payload;
  ByteWriter(payload).put(id_.number());
  transport_.call(coordinator_, Opcode::kEnlist, payload, env_.now() + options_.call_timeout,
                  [this](CallEnd end, ByteView answer) {
                    if (end == CallEnd::kRefused || (end == CallEnd::kAnswered && answer.empty())) {
                      exclude();
                    } else if (end != CallEnd::kAnswered) {
                      transport_.defer(env_.now() + options_.retry_pause, [this] { enlist(); });
                    } else {
                      take_view(answer);
                      is_enlisted_.store(true, std::memory_order_release);
                    }
                  });
}

// The lease counts from when it was asked for.
void Server::renew() {
  is_renewing_ = true;
  const Time asked = env_.now();
  next_renewal_ = asked + options_.lease / 4;
  transport_.call(coordinator_, Opcode::kRenew, {}, asked + options_.lease / 2,
                  [=, this](CallEnd end, ByteView answer) {
                    is_renewing_ = false;
                    if (end == CallEnd::kRefused) return exclude();
                    if (end != CallEnd::kAnswered || answer.size() != 1) return;
                    if (answer[0] == std::byte{0}) return exclude();
                    lease_until_.store(asked + options_.lease, std::memory_order_release);
                  });
}

// RAMCloud's failure detector: each server probes a random other one.
void Server::probe() {
  next_probe_ = env_.now() + options_.ping_interval;
  std::vector<ServerId> others;
  const View view = this->view();
  for (const ListedServer& server : view->servers)
    if (server.state == ServerState::kUp && server.id != id_) others.push_back(server.id);
  if (others.empty()) return;
  const ServerId chosen = others[rng_.below(others.size())];
  is_probing_ = true;
  transport_.call(chosen, Opcode::kPing, {}, env_.now() + options_.ping_timeout,
                  [=, this](CallEnd end, ByteView) {
                    is_probing_ = false;
                    if (end != CallEnd::kAnswered) suspect(chosen);
                  });
}

void Server::suspect(ServerId server) {
  Time& last = suspected_[server];
  if (last != 0 && env_.now() < last + options_.ping_timeout) return;
  last = env_.now();
  Bytes payload;
  ByteWriter(payload).put(server.number());
  transport_.call(coordinator_, Opcode::kSuspect, payload, env_.now() + options_.call_timeout,
                  [](CallEnd, ByteView) {});
}

/// The logs here whose servers are not in the view, neither up nor dead.
std::vector<std::uint64_t> Server::unlisted_logs(const ClusterView& view) {
  std::vector<std::uint64_t> logs = backup_.logs();
  std::erase_if(logs, [&](std::uint64_t log) {
    return std::ranges::any_of(view.servers, [&](const ListedServer& server) {
      return server.id.number() == log &&
             (bugs_.keeps_dead_logs() || server.state == ServerState::kUp);
    });
  });
  return logs;
}

// Whoever was down when a log was recovered still has replicas of it. A primary is listed before it
// opens replicas. So a log was recovered that is here and then is not in the coordinator's list.
void Server::free_unlisted() {
  next_freeing_ = env_.now() + options_.lease;
  const std::vector<std::uint64_t> logs = unlisted_logs(*view());
  if (logs.empty()) return;
  is_freeing_ = true;
  transport_.call(coordinator_, Opcode::kLocate, {}, env_.now() + options_.call_timeout,
                  [=, this](CallEnd end, ByteView answer) {
                    is_freeing_ = false;
                    ByteReader in(answer);
                    in.get<std::uint64_t>();  // the number of a client
                    const auto now = ClusterView::get(in);
                    if (end != CallEnd::kAnswered || !now || !in.done()) return;
                    for (const std::uint64_t log : unlisted_logs(*now)) {
                      if (std::ranges::find(logs, log) == logs.end()) continue;
                      env_.reached("tailwind/log_freed_late");
                      backup_.forget(ServerId::of(log));
                    }
                  });
}

// A primary that lives has made new replicas in the places of those that a life of this node had.
void Server::free_inherited() {
  next_asking_ = env_.now() + options_.lease;
  const View view = this->view();
  for (const std::uint64_t log : backup_.inherited_logs()) {
    const ServerId primary = ServerId::of(log);
    if (!view->is_up(primary)) continue;
    transport_.call(
        primary, Opcode::kAskWhole, {}, env_.now() + options_.call_timeout,
        [=, this](CallEnd end, ByteView answer) {
          if (end != CallEnd::kAnswered || answer.size() != 1 || answer[0] != std::byte{1}) return;
          env_.reached("tailwind/inherited_freed");
          backup_.forget_inherited(primary);
        });
  }
}

void Server::report(ServerId primary, const ReplicaName& name) {
  if (!view()->is_up(primary)) return;
  transport_.call(primary, Opcode::kDamaged, encoded_bytes(name),
                  env_.now() + options_.call_timeout, [=, this](CallEnd end, ByteView) {
                    if (end == CallEnd::kAnswered) return;
                    transport_.defer(env_.now() + options_.retry_pause,
                                     [=, this] { report(primary, name); });
                  });
}

void Server::exclude() {
  env_.reached("tailwind/excluded");
  lease_until_.store(0, std::memory_order_release);
  log_.depose();
  is_excluded_.store(true, std::memory_order_release);
}

void Server::every_tick() {
  const Time now = env_.now();
  if (ends_()) return;  // without workers the dispatch thread may be amid a request
  if (is_enlisted_.load(std::memory_order_relaxed)) {
    if (!is_renewing_ && now >= next_renewal_) renew();
    if (!is_probing_ && now >= next_probe_) probe();
    if (!is_freeing_ && now >= next_freeing_) free_unlisted();
    if (now >= next_asking_) free_inherited();
  }
  for (const BackupService::Damaged& each : backup_.take_damaged()) report(each.primary, each.name);
  log_.tick();
  transport_.defer(now + transport_.tick(), [this] { every_tick(); });
}

void Server::take_view(ByteView bytes) {
  const auto given = whole<ClusterView>(bytes);
  if (!given) return;
  View before;
  {
    const std::lock_guard<Mutex> lock(view_mutex_);
    if (given->epoch <= view_->epoch) return;
    // The versions of a new key are above all that earlier owners of its tablet gave, also to keys
    // whose tombstones are gone: an owner begins in an epoch that those before it have not seen.
    if (bugs_.keeps_removed_version())
      objects_.raise_gone(given->epoch << ClusterView::kVersionBits);
    before = std::exchange(view_, std::make_shared<ClusterView>(*given));
  }
  for (const ServerId life : gone(*before, *given)) {
    if (life == id_) return exclude();
    transport_.close(life);
  }
  for (const ListedServer& server : given->servers) {
    if (server.state == ServerState::kUp) continue;
    if (server.id == id_) return exclude();
    if (bugs_.closes_first()) transport_.close(server.id);
  }
  log_.update(*given);
}

// ---- set-up ----

bool Server::await_table(std::uint64_t table, Time deadline) {
  return env_.poll_until(
             [&] {
               const View view = this->view();
               return std::ranges::any_of(
                          view->tablets,
                          [&](const Tablet& tablet) { return tablet.range.table == table; }) ||
                      log_.is_deposed();
             },
             deadline) &&
         !log_.is_deposed();
}

std::uint64_t Server::fill(std::uint64_t table, std::uint64_t first, std::uint64_t count,
                           std::uint32_t key_bytes, std::uint32_t value_bytes, bool is_replicated) {
  constexpr std::uint64_t kBatch = 4096;  // objects between two waits
  Bytes value(std::max<std::size_t>(value_bytes, sizeof(std::uint64_t)), std::byte{0x5a});
  const View view = this->view();
  std::uint64_t stored = 0;
  log_.hold();
  for (std::uint64_t number = first; number < first + count; ++number) {
    const Bytes key = key_of(number, key_bytes);
    const std::uint64_t hash = key_hash(table, key);
    if (!owns(*view, table, hash)) continue;
    std::memcpy(value.data(), &number, sizeof number);
    const Outcome outcome = objects_.write(table, hash, key, value, {});
    if (outcome.status != StoreStatus::kOk) {
      log_.release();
      throw Error(ErrorCode::kExhausted,
                  "server " + std::to_string(id_.node) + " has stored " + std::to_string(stored) +
                      " objects, then its log of " + std::to_string(options_.log_bytes) +
                      " bytes was full; give a larger log_bytes or fewer objects");
    }
    if (++stored % kBatch != 0) continue;
    if (log_.is_deposed()) break;
    if (is_replicated) {
      log_.release();
      env_.poll_until([&] { return log_.is_committed(outcome.position) || log_.is_deposed(); },
                      kForever);
      log_.hold();
    }
  }
  log_.release(!is_replicated);
  const Position end = log_.end();
  env_.poll_until([&] { return log_.is_committed(end) || log_.is_deposed(); }, kForever);
  return stored;
}

}  // namespace pyrdma::tailwind
