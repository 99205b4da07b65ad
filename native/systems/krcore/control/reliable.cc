// Reliable connections to frequent peers, made in the background (sections 3.2 and 4.3).
//
// Both ends put the connection into their pools; the passive one after the active one has confirmed
// that both are ready. A pool that is full gives up the least recently used connection
// (control/leaving.cc).
#include <algorithm>
#include <mutex>
#include <utility>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

namespace {

constexpr Time kOfferAnswered = 500 * kMillisecond;
// Who offers asks so long for the accept, and as long for the answer to its confirm. Later it has
// given up.
constexpr Time kOfferKept = 4 * kOfferAnswered;
constexpr std::size_t kMostUnconfirmed = 2;  // offers of a node to a pool
constexpr Time kMade = 5 * kSecond;

}  // namespace

void Service::sample_peers(std::uint32_t frequent_requests) {
  options_.frequent_requests = frequent_requests;
  samples_.store(true, std::memory_order_release);
}

// Peers that took many requests over dynamic connections for some intervals get a reliable one.
void Service::sample() {
  if (options_.rc_policy != RcPolicy::kSampled && !samples_.load(std::memory_order_acquire)) return;
  const Time now = env_.now();
  for (const auto& pool : pools_) {
    const std::lock_guard<Mutex> lock(pool->mutex);
    for (auto& [node, qp] : pool->reliable) {
      if (qp->requests != 0) qp->last_use = now;
      qp->requests = 0;
    }
    for (NodeId node = 0; node < env_.nodes(); ++node) {
      const std::uint64_t count = std::exchange(pool->dynamic_requests[node], 0);
      pool->frequent[node] = count < options_.frequent_requests ? 0 : pool->frequent[node] + 1;
      if (pool->frequent[node] < options_.frequent_samples || node == env_.node()) continue;
      pool->frequent[node] = 0;
      want_reliable(pool->core, node);
    }
  }
}

// Reliable connections of a pool, with those whose peer has not confirmed.
std::size_t Service::held(CorePool& pool) {
  const auto accepted = std::ranges::count_if(accepted_, [&](const AcceptedOffer& each) {
    return each.qp != nullptr && each.answer.core == pool.core;
  });
  const std::lock_guard<Mutex> lock(pool.mutex);
  return pool.reliable.size() + pool.leaving.size() + static_cast<std::size_t>(accepted);
}

// Makes room for one more connection. Returns false if all are in use by more than that.
bool Service::make_room(CorePool& pool) {
  if (held(pool) < options_.rc_queue_pairs) return true;
  PhysicalQp* oldest = nullptr;
  {
    const std::lock_guard<Mutex> lock(pool.mutex);
    for (const auto& [node, qp] : pool.reliable)
      if (oldest == nullptr || qp->last_use < oldest->last_use) oldest = qp.get();
  }
  if (oldest != nullptr && env_.device().capabilities().dc) vacate(pool, *oldest);
  return false;
}

void Service::make_one_more(std::uint32_t core, NodeId node) {
  CorePool& own = pool(core);
  const auto count = [&] {
    const std::lock_guard<Mutex> lock(own.mutex);
    return own.reliable.count(node);
  };
  const std::size_t before = count();
  add_job({Job::kMake, {}, own.core, node, 0, true});
  env_.poll_until([&] { return count() > before; }, env_.now() + kMade);
}

// A job of the builder. Attempts of the same core and node are one.
void Service::begin_making(const Job& job) {
  auto making = std::make_unique<Making>();
  making->core = pool(job.core).core;
  making->node = job.node;
  making->is_one_more = job.is_one_more;
  makings_.push_back(std::move(making));
  advance_makings();
}

bool Service::can_advance_makings() {
  const Time now = env_.now();
  return std::ranges::any_of(makings_, [&](const std::unique_ptr<Making>& making) {
    Inquiry* const inquiry = making->inquiry.get();
    return inquiry != nullptr &&
           (inquiry->is_answered() || now >= inquiry->again || now >= inquiry->end);
  });
}

// No connection waits for the answer of another one's peer, which may be dead.
void Service::advance_makings() {
  for (std::size_t i = 0; i < makings_.size();) {
    Making& making = *makings_[i];
    std::optional<Made> ended;
    // A device that makes no further queue pair has no room.
    if (!attempt(env_, [&] { ended = advance(making); })) ended = Made::kNoRoom;
    if (!ended) {
      ++i;
      continue;
    }
    if (!making.is_one_more) {
      const std::lock_guard<Mutex> lock(jobs_mutex_);
      wanted_.erase({making.core, making.node});
    }
    attempts_[making.node].last = *ended;
    ++attempts_[making.node].ended;
    if (making.qp != nullptr) end(pool(making.core), std::move(making.qp));
    makings_.erase(makings_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::optional<Service::Made> Service::advance(Making& making) {
  if (making.inquiry == nullptr) return offer_reliable(making);
  CorePool& own = pool(making.core);
  if (!making.inquiry->is_answered()) {
    if (env_.now() < making.inquiry->end) {
      send_if_due(*making.inquiry);
      return std::nullopt;
    }
    if (making.is_confirming) {
      // The peer may have taken it for confirmed.
      const std::lock_guard<Mutex> lock(own.mutex);
      own.leaving.push_back(std::move(making.qp));
    }
    return Made::kNoAnswer;
  }
  const ControlMessage reply = making.inquiry->answer();
  if (!making.is_confirming) {
    if (reply.kind != ControlKind::kAccept) return Made::kNoRoom;
    confirm_reliable(making, reply);
    return std::nullopt;
  }
  if (reply.kind != ControlKind::kRegistered) return Made::kNoAnswer;
  ++counters_.rc_made;
  env_.reached("krcore/reliable_made");
  {
    const std::lock_guard<Mutex> lock(own.mutex);
    own.reliable.emplace(making.node, std::move(making.qp));
  }
  move_users(own, making.node);
  return Made::kConnection;
}

std::optional<Service::Made> Service::offer_reliable(Making& making) {
  CorePool& own = pool(making.core);
  forget_earlier_lives(own);
  {
    const std::lock_guard<Mutex> lock(own.mutex);
    if (own.reliable_to(making.node) != nullptr && !making.is_one_more) return Made::kConnection;
  }
  // Room that others are about to take may be free again soon.
  const auto offered = std::ranges::count_if(makings_, [&](const auto& each) {
    return each->inquiry != nullptr &&
           (each->core == own.core || options_.bugs.has(Bug::kOffersInTurn));
  });
  if (offered != 0 && (held(own) + static_cast<std::size_t>(offered) >= options_.rc_queue_pairs ||
                       options_.bugs.has(Bug::kOffersInTurn)))
    return std::nullopt;
  if (options_.rc_queue_pairs == 0 || !make_room(own)) return Made::kNoRoom;
  making.qp = own.make_reliable(making.node);
  if (making.node == env_.node()) return join_own_ends(own, std::move(making.qp));
  ControlMessage offer = own_metadata(ControlKind::kConnect);
  offer.queue_pair = making.qp->qp().address();
  offer.core = offer.from_core = own.core;
  begin(making.inquiry, making.node, offer, kOfferAnswered);
  return std::nullopt;
}

void Service::confirm_reliable(Making& making, const ControlMessage& accepted) {
  PhysicalQp& made = *making.qp;
  made.qp().connect(accepted.queue_pair);
  made.remote_core = accepted.core;
  made.life = accepted.incarnation;
  made.remote_number = accepted.queue_pair.qp_num;
  forget_farewells(making.node, made.remote_number);
  made.last_use = env_.now();
  ControlMessage confirm = own_metadata(ControlKind::kConfirm);
  confirm.to_incarnation = made.life;
  confirm.queue_pair = accepted.queue_pair;
  confirm.core = accepted.core;
  making.is_confirming = true;
  begin(making.inquiry, making.node, confirm, kOfferAnswered);
}

// Sends a message about a connection, whose answer a later step takes.
void Service::begin(std::unique_ptr<Inquiry>& inquiry, NodeId node, ControlMessage message,
                    Time patience) {
  message.ticket = next_number();
  message.to = node;
  inquiry = std::make_unique<Inquiry>(inquiries_, message, env_.now() + patience);
  send_if_due(*inquiry);
}

Service::Made Service::join_own_ends(CorePool& own, std::unique_ptr<PhysicalQp> one) {
  std::unique_ptr<PhysicalQp> other = own.make_reliable(env_.node());
  one->life = other->life = env_.incarnation();
  one->remote_core = other->remote_core = own.core;
  one->remote_number = other->qp().qp_num();
  other->remote_number = one->qp().qp_num();
  one->qp().connect(other->qp().address());
  other->qp().connect(one->qp().address());
  const std::lock_guard<Mutex> lock(own.mutex);
  own.reliable.emplace(env_.node(), std::move(one));
  own.reliable.emplace(env_.node(), std::move(other));
  return Made::kConnection;
}

// Transfers the queue pairs of a core that reach the node over dynamic connections.
void Service::move_users(CorePool& own, NodeId node) {
  const std::lock_guard<Mutex> table(table_mutex_);
  const std::lock_guard<Mutex> lock(own.mutex);
  for (const auto& place : table_) {
    Vqp* v = place.load(std::memory_order_acquire);
    if (v == nullptr || v->pool.load() != &own || v->node != node || v->qp == nullptr) continue;
    if (v->qp->is_dynamic()) want_transfer(*v, own, std::nullopt, false);
  }
  progress(own);
}

// A job may have waited until its sender had begun another life.
void Service::accept_reliable(const ControlMessage& offer) {
  if (offer.incarnation != peers_->life_of(offer.from)) return;
  switch (offer.kind) {
    case ControlKind::kConfirm:
      return answer(offer, own_metadata(has_confirmed(offer) ? ControlKind::kRegistered
                                                             : ControlKind::kRefuse));
    case ControlKind::kDisconnect:
      peer_leaves(offer);
      return answer(offer, own_metadata(ControlKind::kRegistered));
    default:
      return accept_offer(offer);
  }
}

void Service::accept_offer(const ControlMessage& offer) {
  // Tickets come again in another life of a node.
  const auto is_same = [&](const AcceptedOffer& known) {
    return known.node == offer.from && known.ticket == offer.ticket &&
           (known.life == offer.incarnation || options_.bugs.has(Bug::kOffersOfLastLife));
  };
  if (const auto known = std::ranges::find_if(accepted_, is_same); known != accepted_.end())
    return answer(offer, known->answer);
  CorePool& own = pool(offer.core);
  refuse_given_up(offer.from, own);
  AcceptedOffer accepted{offer.from, offer.incarnation, offer.ticket, env_.now(), {}, nullptr};
  accepted.answer.kind = ControlKind::kRefuse;
  const auto make_end = [&] {
    auto made = own.make_reliable(offer.from);
    made->qp().connect(offer.queue_pair);
    made->remote_core = offer.from_core;
    made->life = offer.incarnation;
    made->remote_number = offer.queue_pair.qp_num;
    forget_farewells(offer.from, made->remote_number);
    made->last_use = env_.now();
    accepted.answer.kind = ControlKind::kAccept;
    accepted.answer.queue_pair = made->qp().address();
    accepted.answer.core = own.core;
    accepted.qp = std::move(made);
  };
  if (options_.rc_queue_pairs != 0 && make_room(own)) attempt(env_, make_end);
  answer(offer, accepted.answer);
  accepted_.push_back(std::move(accepted));
}

// Makes room for one more offer of the node. It has given up the oldest: its core makes few
// connections to a node at a time. So no node fills a pool with what it does not confirm.
void Service::refuse_given_up(NodeId node, CorePool& own) {
  std::size_t unconfirmed = 0;
  for (auto each = accepted_.rbegin(); each != accepted_.rend(); ++each) {
    if (each->node != node || each->qp == nullptr || each->answer.core != own.core ||
        ++unconfirmed < kMostUnconfirmed)
      continue;
    each->answer.kind = ControlKind::kRefuse;
    end(own, std::move(each->qp));
  }
}

// Says so again if the first answer was lost. A queue pair that this life does not have, or that is
// connected to another one, is never confirmed: its other end would send to nobody.
bool Service::has_confirmed(const ControlMessage& offer) {
  if (options_.bugs.has(Bug::kUnknownConfirmed)) return true;
  CorePool& own = pool(offer.core);
  const auto is_meant = [&](const std::unique_ptr<PhysicalQp>& qp) {
    return qp != nullptr && is_between(*qp, offer);
  };
  const std::lock_guard<Mutex> lock(own.mutex);
  for (AcceptedOffer& accepted : accepted_) {
    if (!is_meant(accepted.qp)) continue;
    own.reliable.emplace(offer.from, std::move(accepted.qp));
    return true;
  }
  return std::ranges::any_of(own.leaving, is_meant) ||
         std::ranges::any_of(own.reliable, [&](const auto& each) { return is_meant(each.second); });
}

// A connection ends with the life of its peer, and an offer with the patience of who made it.
void Service::forget_earlier_lives(CorePool& own) {
  const Time now = env_.now();
  std::erase_if(accepted_, [&](AcceptedOffer& each) {
    const bool is_over = now - each.at > kOfferKept || (each.life < peers_->life_of(each.node) &&
                                                        !options_.bugs.has(Bug::kOffersOfLastLife));
    if (is_over && each.qp != nullptr) end(pool(each.answer.core), std::move(each.qp));
    return is_over;
  });
  leave_earlier_lives(own);
}

}  // namespace pyrdma::krcore
