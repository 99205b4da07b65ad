#include "systems/tailwind/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/rpc/background.h"

namespace pyrdma::tailwind {

Coordinator::Coordinator(Env& env, const Options& options, Bugs bugs)
    : env_(env),
      options_((check(options, env.nodes()), options)),
      bugs_(bugs),
      started_(env.now()),
      transport_(env, options_, ServerId::of_server(env.node(), env.incarnation(), 0), kReceives,
                 bugs),
      state_mutex_(env),
      state_(env.storage(), "tailwind-coordinator", options_.first_epoch),
      mutex_(env),
      view_(std::make_shared<const ClusterView>(state_.view())),
      rng_(env.rng("tailwind/coordinator")),
      dispatcher_(transport_, 1, [this](Worker&, const Incoming& request, Bytes& answer) {
        serve(request, answer);
      }) {
  for (const ListedServer& server : view_->servers)
    if (server.state == ServerState::kDead) note_dead(server.id);
  members_thread_ = env_.spawn(
      "tailwind/members", [this] { run_thread(&Coordinator::members); }, core_beside(env, 1));
  recovery_thread_ = env_.spawn(
      "tailwind/recovery", [this] { run_thread(&Coordinator::recoveries_loop); },
      core_beside(env, 2));
}

// The threads may wait for answers, which only the dispatch thread takes.
Coordinator::~Coordinator() {
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(changed_);
}

void Coordinator::run(FunctionRef<bool()> is_over) {
  push();
  dispatcher_.run([&] { return is_over() || has_failed_.load(std::memory_order_acquire); });
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(changed_);
  const std::lock_guard<Mutex> lock(mutex_);
  if (failure_) throw Error(*failure_);
}

void Coordinator::run_thread(void (Coordinator::*body)()) {
  try {
    (this->*body)();
  } catch (const Error& error) {
    const std::lock_guard<Mutex> lock(mutex_);
    if (!failure_) failure_ = error;
    has_failed_.store(true, std::memory_order_release);
    env_.notify(transport_.watch());
  }
}

ClusterView Coordinator::view() { return *shown(); }

std::shared_ptr<const ClusterView> Coordinator::shown() {
  const std::lock_guard<Mutex> lock(mutex_);
  return view_;
}

void Coordinator::publish() {
  if (view_->epoch != state_.view().epoch)
    view_ = std::make_shared<const ClusterView>(state_.view());
}

std::vector<RecoveryReport> Coordinator::recoveries() {
  const std::lock_guard<Mutex> lock(mutex_);
  return reports_;
}

std::vector<ServerId> Coordinator::up() {
  const auto view = shown();
  std::vector<ServerId> ids;
  for (const ListedServer& server : view->servers)
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
    case Opcode::kRenew:
      return out.put(static_cast<std::uint8_t>(renew(request.from)));
    case Opcode::kSuspect: {
      const ServerId server = ServerId::of(in.get<std::uint64_t>());
      if (!in.done() || !request.from.is_server()) return;
      {
        const std::lock_guard<Mutex> lock(mutex_);
        if (!view_->is_up(server) || !checking_.insert(server).second) return;
        report_of(server).suspected = env_.now();
      }
      return check_life(server, options_.pings);
    }
    case Opcode::kRaiseVersion: {
      const std::uint64_t segment = in.get<std::uint64_t>(), version = in.get<std::uint64_t>();
      if (!in.done()) return;
      const std::lock_guard<Mutex> lock(state_mutex_);
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
        const std::lock_guard<Mutex> state_lock(state_mutex_);
        out.put(state_.create_table(text, owners));
        const std::lock_guard<Mutex> lock(mutex_);
        publish();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
        out.put(std::uint64_t{0});
        return out.put(std::as_bytes(std::span(std::string_view(error.what()))));
      }
      return push();
    }
    case Opcode::kLocate: {
      std::uint64_t number = 0;
      if (in.left() == 1) {  // one byte asks for a client's number
        const std::lock_guard<Mutex> lock(state_mutex_);
        number = state_.new_client();
      }
      out.put(number);
      return shown()->put(out);
    }
    default:
      return;
  }
}

// A lease that was granted while the disk writes that its server is dead would outlast what
// recover() waits for.
bool Coordinator::renew(ServerId server) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (!view_->is_up(server) || ending_.contains(server)) return false;
  granted_[server] = env_.now();
  return true;
}

// The answer is the view, so that the server knows at once whether it is listed. An earlier life of
// its node ends.
void Coordinator::enlist(ServerId server, Bytes& answer) {
  {
    const std::lock_guard<Mutex> state_lock(state_mutex_);
    {
      const std::lock_guard<Mutex> lock(mutex_);
      for (const ListedServer& each : view_->servers)
        if (each.state == ServerState::kUp && each.id.node == server.node &&
            each.id.life < server.life)
          ending_.insert(each.id);
    }
    if (!state_.enlist(server)) return;
    const std::lock_guard<Mutex> lock(mutex_);
    publish();
    granted_[server] = env_.now();
    for (const ListedServer& each : view_->servers) {
      if (each.state != ServerState::kDead || each.id.node != server.node) continue;
      ending_.erase(each.id);
      note_dead(each.id);
      transport_.close(each.id);  // a recovery may wait for an answer of it
    }
    ByteWriter out(answer);
    view_->put(out);
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

void Coordinator::declare_dead(ServerId server) {
  const std::lock_guard<Mutex> state_lock(state_mutex_);
  const bool is_declared = state_.declare_dead(server);
  const std::lock_guard<Mutex> lock(mutex_);
  publish();
  if (is_declared) note_dead(server);
  ending_.erase(server);
  checking_.erase(server);
}

void Coordinator::members() {
  while (!is_stopping_.load(std::memory_order_acquire)) {
    const std::uint64_t seen = changes_.load();
    std::optional<ServerId> server;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      if (!to_declare_.empty()) {
        server = to_declare_.front();
        to_declare_.pop_front();
        ending_.insert(*server);
      }
    }
    if (server) {
      declare_dead(*server);
      transport_.close(*server);
      changes_.fetch_add(1);
      env_.notify(changed_);
      push();
      continue;
    }
    const auto is_called = [&] { return changes_.load() != seen || is_stopping_.load(); };
    wait_quietly(env_, is_called, kForever, changed_, options_.idle_after, options_.retry_pause);
  }
}

// ---- the view ----

void Coordinator::push() {
  const std::lock_guard<Mutex> lock(mutex_);
  const ClusterView& view = *view_;
  const auto bytes = std::make_shared<const Bytes>(encoded_bytes(view));
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

}  // namespace pyrdma::tailwind
