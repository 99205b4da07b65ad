// The threads of a service: one answers datagrams and looks after queues that nobody polls, one
// makes and ends queue pairs, which takes milliseconds and stays off the applications' way
// (section 4.3).
#include <algorithm>
#include <mutex>
#include <utility>

#include "systems/krcore/scopes.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

namespace {

constexpr Time kTurn = 100 * kMicrosecond;
constexpr Time kShortTurn = 10 * kMicrosecond;
constexpr Time kIdleTurn = 500 * kMicrosecond;
constexpr Time kIdleAfter = 10 * kMillisecond;  // without a message or a job
constexpr Time kFirstRetry = kMillisecond, kLongestRetry = 64 * kFirstRetry;
constexpr Time kReconnect = 100 * kMillisecond;  // attempts at a lost meta server
constexpr Time kPeerAnswers = 200 * kMillisecond;

}  // namespace

// Sends the inquiry if it is time. A peer that has not answered may have begun another life.
void Service::send_if_due(Inquiry& inquiry) {
  if (env_.now() < inquiry.again) return;
  const NodeId node = inquiry.request.to;
  if (inquiry.interval != 0) peers_->find_next(node);
  const Peers::Peer peer = peers_->of(node);
  if (peer.handle != nullptr) {
    const std::lock_guard<Mutex> lock(port_mutex_);
    port_->send(peer.handle, peer.port, inquiry.request);
  }
  inquiry.interval = std::clamp(2 * inquiry.interval, kFirstRetry, kLongestRetry);
  inquiry.again = env_.now() + inquiry.interval;
}

// The builder goes on with its work while it waits for an answer: two builders may ask each other.
bool Service::ask(NodeId node, ControlMessage request, ControlMessage& reply, Time timeout,
                  bool is_builder) {
  request.ticket = next_number();
  request.to = node;
  Inquiry inquiry(inquiries_, request, env_.now() + timeout);
  for (;;) {
    send_if_due(inquiry);
    if (is_builder) end_what_has_ended();
    std::optional<Job> job;
    bool can_advance = false;
    const auto has_news = [&] {
      if (is_builder) {
        job = next_job();
        can_advance = can_advance_makings();
      }
      return inquiry.is_answered() || job.has_value() || can_advance || has_ended();
    };
    const Time until = std::min(inquiry.end, inquiry.again);
    while (env_.poll_until(has_news, is_builder ? std::min(until, env_.now() + kIdleTurn) : until,
                           is_builder ? nullptr : &inquiries_.watch()) &&
           (job || can_advance)) {
      if (job) run_job(*std::exchange(job, std::nullopt));
      if (can_advance) advance_makings();
    }
    if (inquiry.is_answered()) {
      reply = inquiry.answer();
      return true;
    }
    if (has_ended() || env_.now() >= inquiry.end) return false;
  }
}

// No dead node that the builder asks keeps memory, and connections to lives that have ended.
void Service::end_what_has_ended() {
  regions_->free_ended(env_.now());
  for (const auto& pool : pools_) forget_earlier_lives(*pool);
}

std::optional<Job> Service::next_job() {
  const std::lock_guard<Mutex> lock(jobs_mutex_);
  if (jobs_.empty()) return std::nullopt;
  Job job = jobs_.front();
  jobs_.pop_front();
  return job;
}

void Service::answer(const ControlMessage& to, ControlMessage message) {
  message.to = to.from;
  message.from = env_.node();
  message.incarnation = env_.incarnation();
  message.to_incarnation = to.incarnation;
  message.ticket = to.ticket;
  const Peers::Peer peer = peers_->of(to.from);
  if (peer.life != to.incarnation || peer.handle == nullptr) return;
  const std::lock_guard<Mutex> lock(port_mutex_);
  port_->send(peer.handle, peer.port, message);
}

// A poll without a result makes the other pollers of the node look at what this thread has done.
void Service::let_pollers_look() {
  env_.poll_until([] { return false; }, env_.now() + 1);
}

std::optional<ControlMessage> Service::next_control() {
  const Scope step(env_, scope::control_look);
  const std::lock_guard<Mutex> lock(port_mutex_);
  return port_->take();
}

// What arrives for an application that does not ask must not fill the buffers of others. Returns
// whether the core has something left to do for which there was no room.
bool Service::look_after(CorePool& pool) {
  const Scope step(env_, scope::look_after);
  dispatch(pool);
  // It waits for the lock: threads that poll may hand it to each other for ever, and nobody else
  // asks again.
  const std::lock_guard<Mutex> lock(pool.mutex);
  if (!pool.dynamic.empty()) poll_inner(pool, *pool.dynamic.front());
  for (const auto& [node, qp] : pool.reliable) poll_inner(pool, *qp);
  for (const auto& qp : pool.leaving) poll_inner(pool, *qp);
  if (!pool.deferred.empty()) send_deferred(pool);
  return ask_again(pool);
}

void Service::run_control() {
  Time last = env_.now();
  while (!stops_.load(std::memory_order_acquire)) {
    while (const auto message = next_control()) {
      last = env_.now();
      attempt(env_, [&] { take_control(*message); });
    }
    bool has_more = false;
    for (const auto& pool : pools_) has_more |= look_after(*pool);
    let_pollers_look();
    const Time now = env_.now();
    env_.sleep_until(now + (has_more ? kShortTurn : now - last > kIdleAfter ? kIdleTurn : kTurn));
  }
}

void Service::take_control(const ControlMessage& message) {
  const bool has_queue_pair = message.kind == ControlKind::kConnect ||
                              message.kind == ControlKind::kConnectMeta ||
                              message.kind == ControlKind::kAccept;
  if (message.from >= env_.nodes() || message.to != env_.node() ||
      (has_queue_pair && message.queue_pair.node != message.from)) {
    ++counters_.malformed;
    return;
  }
  if (!peers_->is_genuine(message)) return;
  // An earlier life of this node may have used the same numbers. Its connections have ended: who
  // confirms one must not wait for it.
  if (message.to_incarnation != ControlMessage::kAnyLife &&
      message.to_incarnation != env_.incarnation()) {
    if (message.kind == ControlKind::kConfirm) answer(message, own_metadata(ControlKind::kRefuse));
    return;
  }
  switch (message.kind) {
    case ControlKind::kRegister: {
      if (meta_server_ == nullptr) return;
      bool is_added = false;
      {
        const std::lock_guard<Mutex> lock(meta_server_mutex_);
        is_added = meta_server_->add(message.from, message.meta, location_in(message));
      }
      if (is_added) answer(message, own_metadata(ControlKind::kRegistered));
      return;
    }
    case ControlKind::kQuery:
      answer(message, own_metadata(ControlKind::kMeta));
      return;
    case ControlKind::kConnect:
    case ControlKind::kConfirm:
    case ControlKind::kDisconnect:
      add_job({Job::kAccept, message, 0, message.from, 0, false});
      return;
    case ControlKind::kConnectMeta:
      if (meta_server_ != nullptr) add_job({Job::kAcceptMeta, message, 0, message.from, 0, false});
      return;
    case ControlKind::kRegistered:
    case ControlKind::kMeta:
    case ControlKind::kAccept:
    case ControlKind::kRefuse:
      inquiries_.answer(message);
      return;
    case ControlKind::kCount:
      return;
  }
}

void Service::run_builder() {
  Time next_sample = env_.now() + options_.sample_interval;
  Time next_reconnect = env_.now() + kReconnect;
  Time last = env_.now();  // of a job
  while (!stops_.load(std::memory_order_acquire)) {
    for (std::optional<Job> job = next_job(); job && !has_ended(); job = next_job()) {
      last = env_.now();
      run_job(*job);
    }
    advance_makings();
    const Time now = env_.now();
    if (now >= next_sample) {
      sample();
      next_sample = now + options_.sample_interval;
    }
    if (now >= next_reconnect && has_booted_.load(std::memory_order_acquire)) {
      register_at_meta_servers(kPeerAnswers, true);
      attempt(env_, [&] { reconnect_meta_servers(); });
      ask_for_registrations();
      next_reconnect = env_.now() + kReconnect;
    }
    {
      const Scope step(env_, scope::builder_turn);
      end_what_has_ended();
      end_left();
    }
    let_pollers_look();
    const Time end = env_.now();
    const Time next = end + (end - last > kIdleAfter && makings_.empty() ? kIdleTurn : kTurn);
    if (makings_.empty())
      env_.sleep_until(next);
    else
      env_.poll_until([this] { return can_advance_makings() || has_ended(); }, next);
  }
}

void Service::run_job(const Job& job) {
  switch (job.kind) {
    case Job::kAcceptMeta:
      attempt(env_, [&] { accept_meta(job.offer); });
      return;
    case Job::kAccept:
      attempt(env_, [&] { accept_reliable(job.offer); });
      return;
    case Job::kMake:
      begin_making(job);
      return;
    case Job::kRevive:
      revive(pool(job.core), job.number);
      return;
  }
}

// A failed queue pair that has nothing under way: a dynamic one serves again, a reliable one goes.
void Service::revive(CorePool& pool, std::uint32_t number) {
  const auto is_meant = [&](const std::unique_ptr<PhysicalQp>& qp) {
    return qp->qp().qp_num() == number && qp->has_failed && qp->under_way() == 0;
  };
  PhysicalQp* dynamic = nullptr;  // lives as long as its pool
  {
    const std::lock_guard<Mutex> lock(pool.mutex);
    const auto reliable = std::ranges::find_if(
        pool.reliable, [&](const auto& each) { return is_meant(each.second); });
    if (reliable != pool.reliable.end()) {
      pool.leaving.push_back(std::move(reliable->second));
      pool.reliable.erase(reliable);
      return;
    }
    const auto found = std::ranges::find_if(pool.dynamic, is_meant);
    if (found == pool.dynamic.end()) return;
    dynamic = found->get();
  }
  env_.reached("krcore/revived");
  pool.revive(*dynamic);
  const std::lock_guard<Mutex> lock(pool.mutex);
  dynamic->has_failed = dynamic->behind_a_refusal = false;
  progress(pool);
}

void Service::accept_meta(const ControlMessage& offer) {
  if (offer.incarnation != peers_->life_of(offer.from)) return;
  std::erase_if(meta_ends_, [&](const std::unique_ptr<MetaEnd>& end) {
    return end->node == offer.from && end->incarnation < offer.incarnation;
  });
  const fabric::QueuePair* qp = nullptr;
  for (const auto& end : meta_ends_)
    if (end->node == offer.from && end->ticket == offer.ticket) qp = end->qp.get();
  if (qp == nullptr) {
    auto end = std::make_unique<MetaEnd>();
    end->node = offer.from;
    end->ticket = offer.ticket;
    end->incarnation = offer.incarnation;
    end->completions = env_.device().create_completion_queue(1);
    fabric::QpOptions options;
    options.send_entries = options.receive_entries = 1;
    options.access = fabric::kRemoteRead;
    end->qp =
        env_.device().create_queue_pair(*domain_, *end->completions, *end->completions, options);
    end->qp->connect(offer.queue_pair);
    qp = end->qp.get();
    meta_ends_.push_back(std::move(end));
  }
  ControlMessage reply;
  reply.kind = ControlKind::kAccept;
  reply.queue_pair = qp->address();
  reply.tables[0] = meta_server_->targets();
  reply.tables[1] = meta_server_->locations();
  answer(offer, reply);
}

// A meta server that begins anew has lost its tables, and a node registers once: only one that
// reads the tables finds its connection dead, and registers again. So the server asks all whom it
// misses.
void Service::ask_for_registrations() {
  if (meta_server_ == nullptr || env_.incarnation() == 0) return;
  for (NodeId node = 0; node < env_.nodes() && !has_ended(); ++node) {
    DctMeta known;
    {
      const std::lock_guard<Mutex> lock(meta_server_mutex_);
      if (meta_server_->find_target(node, known)) continue;
    }
    ControlMessage reply;
    if (!ask(node, own_metadata(ControlKind::kQuery), reply, kNodeAnswers, true)) continue;
    env_.reached("krcore/asked_for_registration");
    const std::lock_guard<Mutex> lock(meta_server_mutex_);
    meta_server_->add(node, reply.meta, location_in(reply));
  }
}

void Service::reconnect_meta_servers() {
  for (const auto& state : core_states_) {
    for (const NodeId server : state->meta.missing()) {
      if (stops_.load(std::memory_order_acquire)) return;
      if (!connect_meta(state->meta, server, kPeerAnswers, true)) return;
    }
  }
}

}  // namespace pyrdma::krcore
