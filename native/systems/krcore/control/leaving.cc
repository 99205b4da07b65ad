// The ends of reliable connections (section 4.3): of one that a full pool gives up, that has
// failed, or whose peer has left it. Its virtual queue pairs go on by dynamic connections, and both
// ends are destroyed when both have left. Who leaves tells the other end, until that answers:
// nothing else would tell it, and who uses it next would fail.
#include <algorithm>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>

#include "fabric/ending.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

namespace {

constexpr Time kPeerGivenUp = 10 * kSecond;  // one that does not answer a farewell

}  // namespace

void Service::peer_leaves(const ControlMessage& offer) {
  CorePool& own = pool(offer.core);
  const std::lock_guard<Mutex> lock(own.mutex);
  for (auto each = own.reliable.begin(); each != own.reliable.end(); ++each) {
    if (!is_between(*each->second, offer)) continue;
    own.leaving.push_back(std::move(each->second));
    own.reliable.erase(each);
    break;
  }
  for (const auto& each : own.leaving)
    if (is_between(*each, offer)) each->peer_has_left = true;
}

// Any thread may call it.
void Service::leave_earlier_lives(CorePool& own) {
  const std::lock_guard<Mutex> lock(own.mutex);
  for (auto each = own.reliable.begin(); each != own.reliable.end();) {
    const auto next = std::next(each);
    PhysicalQp& qp = *each->second;
    if (qp.life < peers_->life_of(qp.peer())) {
      env_.reached("krcore/reliable_of_last_life");
      qp.peer_has_left = qp.has_said_so = true;
      own.leaving.push_back(std::move(each->second));
      own.reliable.erase(each);
    }
    each = next;
  }
}

// Nobody may choose the connection any more, and who uses it is transferred.
void Service::vacate(CorePool& own, PhysicalQp& qp) {
  DctMeta meta;
  if (resolve(qp.peer(), meta) != ConnectResult::kConnected) return;
  const fabric::AddressHandle* handle = peers_->handle_of(qp.peer());
  const std::lock_guard<Mutex> table(table_mutex_);
  const std::lock_guard<Mutex> lock(own.mutex);
  for (auto each = own.reliable.begin(); each != own.reliable.end(); ++each) {
    if (each->second.get() != &qp) continue;
    own.leaving.push_back(std::move(each->second));
    own.reliable.erase(each);
    ++counters_.rc_reclaimed;
    env_.reached("krcore/reliable_reclaimed");
    break;
  }
  for (const auto& place : table_) {
    Vqp* v = place.load(std::memory_order_acquire);
    if (v == nullptr || v->qp != &qp) continue;
    if (!v->to.is_dynamic()) v->to = {handle, meta, qp.peer()};
    want_transfer(*v, own, std::nullopt, false);
  }
  progress(own);
}

// Destroys what both ends have left.
void Service::end_left() {
  for (const auto& pool : pools_) {
    std::vector<std::unique_ptr<PhysicalQp>> ended;
    std::vector<std::pair<NodeId, ControlMessage>> farewells;
    {
      const std::lock_guard<Mutex> table(table_mutex_);
      const std::lock_guard<Mutex> lock(pool->mutex);
      for (auto& qp : pool->leaving) {
        if (qp->peer_has_left || qp->has_failed) {
          // Its queue pairs find another at their next call.
          for (const auto& place : table_) {
            Vqp* v = place.load(std::memory_order_acquire);
            if (v == nullptr || v->qp != qp.get() || qp->under_way() != 0) continue;
            if (!v->to.is_dynamic() || v->transfer.stage != Transfer::kRunning) {
              abandon(*v);
              if (v->transfer.stage == Transfer::kRunning) await_placement(*pool, *v);
            }
          }
        }
        if (qp->users != 0 || qp->under_way() != 0) continue;
        if (!qp->has_said_so) {
          qp->has_said_so = true;
          ControlMessage farewell = own_metadata(ControlKind::kDisconnect);
          farewell.to_incarnation = qp->life;
          farewell.queue_pair.qp_num = qp->remote_number;
          farewell.core = qp->remote_core;
          farewells.emplace_back(qp->peer(), farewell);
          qp->left_at = env_.now();
        }
        if (qp->peer_has_left || qp->has_failed || env_.now() - qp->left_at > kPeerGivenUp)
          ended.push_back(std::move(qp));
      }
      std::erase(pool->leaving, nullptr);
    }
    for (const auto& [peer, farewell] : farewells)
      begin(farewells_.emplace_back(), peer, farewell, kPeerGivenUp);
    for (auto& qp : ended) end(*pool, std::move(qp));
    destroy_ended(*pool);
  }
  send_farewells();
}

// Those that nobody waits for any more end: a later life of the peer knows nothing of the
// connection.
void Service::send_farewells() {
  std::erase_if(farewells_, [&](const std::unique_ptr<Inquiry>& each) {
    return each->is_answered() || env_.now() >= each->end ||
           each->request.to_incarnation < peers_->life_of(each->request.to);
  });
  for (const auto& each : farewells_) send_if_due(*each);
}

// The peer has a new connection under the number of the old one, which it has ended.
void Service::forget_farewells(NodeId peer, std::uint32_t number) {
  std::erase_if(farewells_, [&](const std::unique_ptr<Inquiry>& each) {
    return each->request.to == peer && each->request.queue_pair.qp_num == number;
  });
}

// Of the builder.
void Service::end(CorePool& pool, std::unique_ptr<PhysicalQp> qp) {
  if (qp->qp().state() == fabric::QpState::kReset) return;  // it has taken nothing
  qp->qp().fail();
  qp->left_at = env_.now();
  pool.ending.push_back(std::move(qp));
}

// The last completions name buffers with messages that have been acknowledged.
void Service::destroy_ended(CorePool& pool) {
  const auto may_go = [&](const std::unique_ptr<PhysicalQp>& each) {
    return fabric::has_flushed(each->qp(), each->left_at, env_.now());
  };
  const auto gone = std::partition(pool.ending.begin(), pool.ending.end(), std::not_fn(may_go));
  if (gone == pool.ending.end()) return;
  while (!has_ended() && !dispatch_all(pool)) let_pollers_look();
  pool.ending.erase(gone, pool.ending.end());
}

}  // namespace pyrdma::krcore
