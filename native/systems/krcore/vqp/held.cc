// Requests that wait in their virtual queue pair: for a physical one, for room, for the end of a
// transfer, or to be posted again.
//
// A lease bounds how long after its check a request may reach the memory (section 4.2). So one that
// has waited is checked again before its post, at the cost of a look into the MRStore. When that
// knows the region no more, the owner's next call looks it up, since a lookup waits for READs. Its
// own buffers are checked likewise: their memory is given to others after the same time.
#include <iterator>
#include <mutex>
#include <utility>

#include "fabric/post_rules.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

using fabric::Status;

// Requests that failed with a queue pair come back later than those that were posted since.
void Service::hold(CorePool& pool, Vqp& v, const Prepared& request) {
  auto at = v.pending.end();
  while (at != v.pending.begin() && std::prev(at)->order > request.order) --at;
  v.pending.insert(at, request);
  want_turn(pool, v);
}

bool Service::has_buffers(const Prepared& request, std::uint64_t domain, std::uint32_t first,
                          std::uint32_t pieces) const {
  if ((request.request.flags & fabric::kInline) != 0) return true;  // the payload has been taken
  const bool is_written = fabric::is_one_of(request.request.opcode, fabric::kReturning);
  for (std::uint32_t i = 0; i < pieces; ++i) {
    fabric::Sge piece = request.sges[first + i];
    piece.lkey = request.local_keys[i];
    if (!regions_->check(piece, is_written, domain, piece.lkey)) return false;
  }
  return true;
}

std::optional<Status> Service::check_held(CorePool& pool, const Vqp& v, Prepared& held) {
  const bool is_message = held.kind == Prepared::Kind::kMessage;
  if (options_.bugs.has(Bug::kNoCheck) && !is_message) return Status::kSuccess;
  if (!has_buffers(held, v.options.domain, is_message ? 1 : 0,
                   is_message ? held.pieces : held.request.sge_count))
    return Status::kLocalProtection;
  if (is_message || !options_.check_regions) return Status::kSuccess;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < held.request.sge_count; ++i) bytes += held.sges[i].length;
  CoreState& core = *core_states_[pool.core];
  const std::lock_guard<Mutex> lock(core.store_mutex);
  const MrStore::Entry* known = core.store.find(v.node, *v.life, held.remote_key, env_.now());
  if (known == nullptr) return std::nullopt;
  held.request.rkey = known->record.rkey;
  return allows(known->record, held.request.opcode, held.request.remote_addr, bytes)
             ? Status::kSuccess
             : Status::kRemoteAccess;
}

void Service::refuse_held(Vqp& v, Status status) {
  Prepared refused = v.pending.front();
  v.pending.pop_front();
  finish(refused, status, &v);
  fail_vqp(v);
}

// A queue pair whose physical one is gone takes the next. One without metadata waits for its
// owner's next call, which may ask for it.
void Service::flush_pending(CorePool& pool, Vqp& v) {
  // A transfer that had nothing to wait for has moved it to another core.
  if (v.pool.load(std::memory_order_relaxed) != &pool) return;
  if (v.transfer.stage == Transfer::kRunning) return;
  // Requests before these may still come back from the queue pair that has failed.
  if (v.qp != nullptr && v.qp->has_failed && v.qp->under_way() != 0) return;
  if (v.qp == nullptr || (v.qp->has_failed && !options_.bugs.has(Bug::kDeadQueuePairKept)))
    adopt(v, pool.next_to(v.node, v.to));
  if (v.qp == nullptr || v.transfer.stage == Transfer::kRunning) return;
  while (!v.pending.empty() && !v.qp->has_failed && v.qp->room() > 0) {
    const std::optional<Status> checked = check_held(pool, v, v.pending.front());
    v.unchecked = checked ? 0 : v.pending.front().remote_key;
    if (!checked) return;
    if (*checked != Status::kSuccess) return refuse_held(v, *checked);
    v.qp->push();
    Prepared& next = v.qp->at(v.qp->tail() - 1);
    next = v.pending.front();
    v.pending.pop_front();
    next.to = v.to;
    // It names the core that posts it.
    if (next.kind == Prepared::Kind::kMessage) address(v, pool, next.header);
    const std::size_t before = v.pending.size();
    post(pool, v, 1);
    if (v.pending.size() > before) return;  // the device took nothing
  }
}

// Asks others for what held requests need. The calls of their owner alone may wait for that.
void Service::serve_held(VqpId id, Vqp& v) {
  bool is_unplaced = false, is_unchecked = false;
  NodeId node = fabric::kNoNode;
  {
    const SendLock lock(v);
    node = v.node;
    is_unplaced = v.qp == nullptr && (!v.pending.empty() || !v.announced.empty() ||
                                      v.transfer.stage == Transfer::kRunning);
    is_unchecked = v.unchecked != 0;
    if (is_unplaced) want_turn(*lock.pool, v);  // it may have come from another core
  }
  // Its physical queue pair is gone, and it has no metadata for a dynamic one.
  if (is_unplaced && place(v) != ConnectResult::kConnected) {
    fail(id);
    fail_unplaced(node);
  }
  if (is_unchecked) look_up_held(v);
}

// The node has not answered this thread, which may have more queue pairs to it: each would ask
// again, for as long, while those to others wait.
void Service::fail_unplaced(NodeId node) {
  const std::lock_guard<Mutex> table(table_mutex_);
  for (const auto& place : table_) {
    Vqp* v = place.load(std::memory_order_acquire);
    if (v == nullptr || v->node != node) continue;
    const SendLock lock(*v);
    if (v->node == node && v->qp == nullptr && !v->to.is_dynamic() && !v->pending.empty())
      fail_vqp(*v);
  }
}

void Service::look_up_held(Vqp& v) {
  std::uint32_t key = 0;
  {
    const SendLock lock(v);
    key = std::exchange(v.unchecked, 0);
    if (key == 0) return;
  }
  env_.reached("krcore/checked_again");
  KnownRegion found;
  const Status status = find_region(v, key, env_.now(), found);
  const SendLock lock(v);
  // Another thread may have reset the queue pair, or what waited has ended with it.
  if (v.epoch != found.epoch || v.pending.empty() || v.pending.front().remote_key != key) return;
  if (status != Status::kSuccess) return refuse_held(v, status);
  want_turn(*lock.pool, v);
  progress(*lock.pool);
}

}  // namespace pyrdma::krcore
