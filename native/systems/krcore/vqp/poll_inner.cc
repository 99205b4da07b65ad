// poll_inner and poll_cq_virtualized of algorithm 2 (section 4.4): takes completions of a shared
// queue pair and hands them to their owners. And what follows a failure, which the paper leaves to
// its checks: the requests behind it are posted again when they cannot have run.
#include <algorithm>
#include <mutex>

#include "fabric/overrun.h"
#include "systems/krcore/scopes.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

using fabric::Status;

namespace {

constexpr Time kLookAgain = 50 * kMicrosecond;

/// Whether the requests behind one that ended so have certainly not run: the responder has refused
/// it, or it has not left this node.
bool is_refusal(Status status) {
  switch (status) {
    case Status::kRemoteInvalidRequest:
    case Status::kRemoteAccess:
    case Status::kRemoteOperation:
    case Status::kRnrRetryExceeded:
    case Status::kLocalLength:
    case Status::kLocalQpOperation:
    case Status::kLocalProtection:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Service::poll_inner(CorePool& pool, PhysicalQp& qp) {
  const Scope step(env_, scope::poll_inner);
  CorePool::Batch& batch = pool.sent;
  // A full batch may leave some, for which nobody would come again.
  for (std::size_t count = batch.size(); count == batch.size();) {
    count = qp.completions().poll(batch);
    if (count == 0) note_overrun(qp.completions(), "the shared queue pairs of KRCore");
    for (const fabric::Completion& wc : std::span(batch).first(count)) {
      PhysicalQp* which = qp.is_dynamic() ? pool.by_number(wc.qp_num) : &qp;
      if (which == nullptr || which->under_way() == 0) continue;
      if (wc.status == Status::kSuccess && !which->has_failed)
        succeed(pool, *which, wc);
      else
        fail_request(pool, *which, wc);
    }
  }
  if (!pool.deferred.empty()) send_deferred(pool);
  if (!core_states_[pool.core]->waiting.empty()) progress(pool);
}

// Nothing ends any more. Whoever polls may hold locks, so the next call of a user throws.
void Service::note_overrun(const fabric::CompletionQueue& queue, const char* owner) {
  if (queue.overrun() && !failure_.has_failed()) [[unlikely]]
    failure_.keep(fabric::overrun_error(queue, env_.node(), owner));
}

// What was posted before a reset of the queue pair concerns its next connection no more.
Vqp* Service::owner_of(const Prepared& request, VqpId id) {
  Vqp* v = find(id);
  return v != nullptr && v->epoch == request.epoch ? v : nullptr;
}

// Lines 24 to 28.
void Service::succeed(CorePool& pool, PhysicalQp& qp, const fabric::Completion& wc) {
  const Scope step(env_, scope::dispatch_completion);
  const unsigned bits = options_.bugs.has(Bug::kCountUnpackedShort) ? RequestId::kFreesBits - 4
                                                                    : RequestId::kFreesBits;
  const RequestId id = RequestId::unpack(wc.wr_id, bits);
  qp.uncompleted -= std::min(qp.uncompleted, id.frees);
  Vqp* v = nullptr;
  for (std::uint32_t i = 0; i < id.frees && qp.under_way() != 0; ++i) {
    const Scope each_step(env_, scope::end_request);
    Prepared& request = qp.at(qp.head());
    // The signaled one is the last.
    const VqpId owner = i + 1 == id.frees && id.owner ? id.owner : request.owner;
    if (v == nullptr || owner != v->id || request.epoch != v->epoch) v = owner_of(request, owner);
    finish(request, Status::kSuccess, v);
    qp.pop();
    if (v == nullptr) continue;
    if (v->transfer.stage == Transfer::kRunning) end_transfer(pool, *v);
    if (i + 2 < id.frees) i += end_silent(qp, *v, id.frees - i - 2);
  }
}

// Ends the oldest requests as long as they are one-sided ones without a signal of this owner, at
// most so many. Most lists have only such ones before their last.
std::uint32_t Service::end_silent(PhysicalQp& qp, Vqp& v, std::uint32_t most) {
  const std::uint16_t epoch = v.epoch.load(std::memory_order_relaxed);
  CompletionRows& rows = v.completions;
  if (rows.has_failed()) return 0;
  std::uint32_t ended = 0;
  for (; ended < most && qp.under_way() != 0 && !rows.empty(); ++ended) {
    const Scope step(env_, scope::end_request);
    const Prepared& request = qp.at(qp.head());
    if (request.kind != Prepared::Kind::kUser || request.owner != v.id || request.epoch != epoch ||
        request.entry != rows.begin() || rows.front().is_signaled)
      break;
    rows.pop_front();
    qp.pop();
  }
  rows.pop_silent();
  return ended;
}

void Service::finish(Prepared& request, Status status, Vqp* v) {
  if (v == nullptr) {
    if (request.kind == Prepared::Kind::kLookup) request.lookup->end(status);
    return;
  }
  switch (request.kind) {
    case Prepared::Kind::kUser:
      complete(*v, request.entry, status);
      return;
    case Prepared::Kind::kMessage:
      // A zero-copy send ends with the READ of its receiver.
      if (request.ticket == 0 || status != Status::kSuccess ||
          options_.bugs.has(Bug::kReadBeforeReceive))
        complete(*v, request.entry, status);
      else
        await_read(*v, request);
      return;
    case Prepared::Kind::kInternal:
      if (request.header.kind != MessageKind::kFake || request.ticket != v->transfer.ticket) return;
      // If it failed, what was before it has ended, too, or waits to be posted again.
      if (status == Status::kSuccess) {
        v->transfer.fake_done = true;
      } else {
        note_placement(*v);
        await_placement(*v->pool.load(std::memory_order_relaxed), *v);
      }
      return;
    case Prepared::Kind::kFetch:
      request.fetched->store(status == Status::kSuccess ? InboxItem::kReady : InboxItem::kFailed,
                             std::memory_order_release);
      env_.notify(v->watch);
      return;
    case Prepared::Kind::kLookup:
      request.lookup->end(status);
      env_.notify(v->watch);
      return;
  }
}

// The receiver has the announcement, so one that comes again can overtake nothing that it has not.
// The READ may have ended before.
void Service::await_read(Vqp& v, const Prepared& announcement) {
  const std::uint64_t entry = announcement.entry;
  if (!v.completions.contains(entry) || v.completions[entry].is_ready) return;
  const Time first = std::min(options_.ask_again, options_.lease / 2);
  v.announced.push_back({announcement, env_.now() + first, first});
  want_answer(*v.pool.load(std::memory_order_relaxed), v);
}

// The printed listing marks the head of the queue, and so loses a second completion before the user
// takes the first (ambiguity algorithm2_head_ready).
void Service::complete(Vqp& v, std::uint64_t entry, Status status) {
  if (options_.bugs.has(Bug::kHeadReadyOnly)) entry = v.completions.begin();
  if (!v.completions.contains(entry)) return;
  v.completions.end(entry, status);
  const CompletionEntry& row = v.completions[entry];
  if (row.ticket != 0)
    std::erase_if(v.announced, [&](const Question& q) { return q.message.ticket == row.ticket; });
  const bool is_silent = row.is_silent();
  v.completions.pop_silent();
  if (!is_silent) tell_owner(v);
}

// The owner may wait for the queue from which this thread has taken the completion.
void Service::tell_owner(Vqp& v) {
  env_.notify(v.watch);
  if (v.qp != nullptr) env_.notify(v.qp->completions().watch());
}

void Service::complete_ticket(Vqp& v, std::uint64_t ticket, Status status) {
  for (std::uint64_t row = v.completions.begin(); row != v.completions.end(); ++row) {
    if (ticket == 0 || v.completions[row].ticket != ticket) continue;
    complete(v, row, status);
    return;
  }
}

void Service::fail_vqp(Vqp& v) {
  if (v.state.load(std::memory_order_relaxed) == VqpState::kError) return;
  v.state.store(VqpState::kError, std::memory_order_release);
  for (; !v.pending.empty(); v.pending.pop_front()) {
    finish(v.pending.front(), Status::kFlushed, &v);
  }
  // What waits for its receiver's READ has no other end.
  for (std::uint64_t number = v.completions.begin(); number != v.completions.end(); ++number) {
    const CompletionEntry& row = v.completions[number];
    if (row.ticket != 0 && !row.is_ready) v.completions.end(number, Status::kFlushed);
  }
  if (v.transfer.stage != Transfer::kNone) v.transfer = {};
  v.announced.clear();
  tell_owner(v);
}

// The first error completion of a queue pair is that of the request that failed, unless the queue
// pair was moved to the error state. All others are flushed, in order, each with a completion.
void Service::fail_request(CorePool& pool, PhysicalQp& qp, const fabric::Completion& wc) {
  const bool is_first = !qp.has_failed;
  if (is_first) {
    env_.reached("krcore/physical_failed");
    qp.has_failed = true;
    qp.behind_a_refusal = is_refusal(wc.status);
    qp.failure = wc.status;
    qp.failed_at.reset();
    qp.is_past_life = false;
    const RequestId id = RequestId::unpack(wc.wr_id);
    for (std::uint32_t i = 1; i < id.frees && qp.under_way() > 1; ++i) {
      Prepared& before = qp.at(qp.head());
      finish(before, Status::kSuccess, owner_of(before, before.owner));
      qp.pop();
    }
  }
  const Prepared& oldest = qp.at(qp.head());
  Vqp* v = owner_of(oldest, oldest.owner);
  if (is_first && wc.status != Status::kFlushed) {
    if (qp.is_dynamic()) qp.failed_at = oldest.to;
    v = fail_oldest(qp, wc, v);
  } else {
    flush_oldest(pool, qp, v);
  }
  qp.pop();
  if (v != nullptr && v->transfer.stage == Transfer::kRunning) end_transfer(pool, *v);
  if (qp.under_way() == 0) has_drained(pool, qp);
}

Vqp* Service::fail_oldest(PhysicalQp& qp, const fabric::Completion& wc, Vqp* v) {
  Prepared& failed = qp.at(qp.head());
  if (options_.bugs.has(Bug::kErrorByOpcode)) {
    for (std::uint64_t at = qp.head(); at < qp.tail(); ++at)
      if (qp.at(at).request.opcode == wc.opcode) v = find(qp.at(at).owner);
  }
  finish(failed, wc.status, v);
  if (v == nullptr || failed.kind == Prepared::Kind::kFetch) return v;
  const bool is_lost = wc.status == Status::kRetryExceeded;
  // A peer that does not answer the service does not answer its user either.
  const bool is_services =
      failed.kind == Prepared::Kind::kInternal || failed.kind == Prepared::Kind::kLookup;
  if (!is_services || is_lost) fail_vqp(*v);
  const bool is_from_peer = is_lost || wc.status == Status::kRemoteAccess ||
                            wc.status == Status::kRemoteInvalidRequest ||
                            wc.status == Status::kRemoteOperation;
  // Read once: a queue pair of another core may be reset meanwhile.
  const NodeId node = v->node;
  if (is_from_peer && node < cache_.size() && !options_.bugs.has(Bug::kStaleMetaKept)) {
    // The node may have begun another life.
    const std::lock_guard<Mutex> lock(cache_mutex_);
    cache_[node].has_meta = cache_[node].has_location = false;
  }
  return v;
}

// A dynamic queue pair reaches one target at a time, and turns to the next one when all requests to
// the last have ended. Each life of a node has targets of its own. So what leads to another life
// than the request that failed, and what is behind that, has not run. What leads to the silent life
// itself is not tried again: each attempt would hold up those that share the next queue pair for as
// long as the first.
void Service::flush_oldest(CorePool& pool, PhysicalQp& qp, Vqp* v) {
  Prepared& flushed = qp.at(qp.head());
  const bool is_dead = v == nullptr || v->state.load() == VqpState::kError;
  const bool is_own =
      flushed.kind == Prepared::Kind::kInternal && flushed.request.opcode == fabric::Opcode::kSend;
  const bool is_to_failed = qp.failed_at && qp.failed_at->node == flushed.to.node &&
                            qp.failed_at->meta.incarnation == flushed.to.meta.incarnation;
  qp.is_past_life |= qp.failed_at && !is_to_failed;
  const bool has_not_run = qp.behind_a_refusal || qp.is_past_life;
  const bool is_silent = qp.failure == Status::kRetryExceeded && is_to_failed;
  const bool is_harmless = flushed.request.opcode == fabric::Opcode::kRead;
  if (!is_dead && !is_own && !is_silent && (has_not_run || is_harmless)) {
    ++counters_.reposted;
    env_.reached("krcore/reposted");
    if (flushed.kind == Prepared::Kind::kFetch)
      pool.deferred.push_back(flushed);
    else if (flushed.kind == Prepared::Kind::kLookup)
      flushed.lookup->end_as(LookupRead::kAgain);  // its thread posts it again
    else
      hold(pool, *v, flushed);
    return;
  }
  finish(flushed, is_dead ? Status::kFlushed : qp.failure, v);
  const bool is_users =
      flushed.kind == Prepared::Kind::kUser || flushed.kind == Prepared::Kind::kMessage;
  if (!is_dead && is_users) fail_vqp(*v);
}

void Service::has_drained(CorePool& pool, PhysicalQp& qp) {
  qp.uncompleted = 0;
  qp.unsignaled = 0;
  add_job({Job::kRevive, {}, pool.core, qp.peer(), qp.qp().qp_num(), false});
}

// Gives those with pending posts their turn.
void Service::progress(CorePool& pool) {
  std::vector<VqpId>& waiting = core_states_[pool.core]->waiting;
  std::vector<VqpId> turn;
  turn.swap(waiting);
  for (const VqpId id : turn) {
    Vqp* v = find(id);
    if (v == nullptr) continue;
    v->is_waiting = false;
    if (v->pool.load(std::memory_order_relaxed) != &pool) continue;
    if (v->transfer.stage == Transfer::kWanted) begin_transfer(pool, *v);
    if (v->transfer.is_timed) end_transfer(pool, *v);
    flush_pending(pool, *v);
    if (v->pool.load(std::memory_order_relaxed) == &pool &&
        (!v->pending.empty() || v->transfer.stage == Transfer::kWanted || v->transfer.is_timed))
      want_turn(pool, *v);
  }
}

std::size_t Service::take_ready(Vqp& v, std::span<fabric::Completion> out) {
  std::size_t taken = 0;
  while (taken < out.size() && !v.completions.empty() && v.completions.front().is_ready) {
    const CompletionEntry row = v.completions.front();
    v.completions.pop_front();
    if (row.is_silent()) continue;
    fabric::Completion& wc = out[taken++];
    wc = {};
    wc.wr_id = row.wr_id;
    wc.status = row.status;
    wc.opcode = row.opcode;
    wc.qp_num = v.id.number();
  }
  return taken;
}

std::size_t Service::take(VqpId id, std::span<fabric::Completion> out) {
  Vqp* v = find(id);
  if (v == nullptr) return 0;
  const SendLock lock(*v);
  return take_ready(*v, out);
}

// Returns false if the queue pair needs a call that waits for others.
bool Service::poll_for(Vqp& v, std::vector<const fabric::CompletionQueue*>& polled) {
  const SendLock lock(v);
  if (v.qp == nullptr) return false;
  const fabric::CompletionQueue* queue = &v.qp->completions();
  if (std::ranges::find(polled, queue) == polled.end()) {
    polled.push_back(queue);
    poll_inner(*lock.pool, *v.qp);
  }
  return v.unchecked == 0;
}

std::size_t Service::poll_physical(std::span<const VqpId> ids) {
  failure_.check();
  std::vector<const fabric::CompletionQueue*> polled;
  for (const VqpId id : ids) {
    Vqp* v = find(id);
    if (v == nullptr) continue;
    if (!poll_for(*v, polled)) serve_held(id, *v);
  }
  return polled.size();
}

std::size_t Service::poll(VqpId id, std::span<fabric::Completion> out) {
  const Scope step(env_, scope::poll);
  Vqp* v = find(id);
  if (v == nullptr) return 0;
  std::size_t taken = 0;
  bool needs_others = false, waits_for_peer = false;
  {
    const SendLock lock(*v);
    if (v->qp != nullptr) poll_inner(*lock.pool, *v->qp);
    if (v->transfer.stage == Transfer::kWanted || !v->pending.empty()) {
      want_turn(*lock.pool, *v);
      progress(*lock.pool);
    }
    const bool has_work =
        !v->pending.empty() || !v->announced.empty() || v->transfer.stage == Transfer::kRunning;
    needs_others = (v->qp == nullptr && has_work) || v->unchecked != 0;
    taken = take_ready(*v, out);
    waits_for_peer =
        taken == 0 &&
        (!v->announced.empty() || (v->transfer.stage == Transfer::kRunning && !v->transfer.acked));
  }
  // The answer of the peer comes as a message.
  if (waits_for_peer) dispatch(*v->pool.load(std::memory_order_acquire));
  if (needs_others) serve_held(id, *v);
  if (taken == 0) failure_.check();  // nothing may ever come
  return taken;
}

// Of a dynamic queue pair, whose queue lives as long as its pool. Null for others.
Watch* Service::arrivals_of(VqpId id) {
  Vqp* v = find(id);
  if (v == nullptr) return nullptr;
  const SendLock lock(*v);
  return v->qp != nullptr && v->qp->is_dynamic() ? &v->qp->completions().watch() : nullptr;
}

std::size_t Service::wait(VqpId id, std::span<fabric::Completion> out, Time deadline) {
  std::size_t count = poll(id, out);
  const auto has_all = [&] {
    count += poll(id, out.subspan(count));
    return count == out.size();
  };
  // Looks again from time to time: the queue pair may have changed its queue.
  while (count != out.size()) {
    const Time now = env_.now();
    const bool is_last = deadline - now <= kLookAgain;
    env_.poll_until(has_all, is_last ? deadline : now + kLookAgain, arrivals_of(id));
    if (is_last) break;
  }
  return count;
}

bool Service::break_physical(VqpId id, Break how) {
  Vqp* v = find(id);
  if (v == nullptr) return false;
  const SendLock lock(*v);
  PhysicalQp* const qp = v->qp;
  if (qp == nullptr || (how == Break::kUnderRequests && qp->under_way() == 0)) return false;
  if (how != Break::kRefused) {
    qp->qp().modify(fabric::QpState::kError);
    return true;
  }
  if (!qp->is_dynamic() || qp->has_failed || qp->room() == 0) return false;
  Prepared refused;
  refused.kind = Prepared::Kind::kInternal;
  refused.to = v->to;
  refused.request.opcode = fabric::Opcode::kWrite;
  refused.request.rkey = ~0U;
  refused.request.sge_count = 1;
  refused.sges[0] = qp->header_place(qp->tail());
  return post_physical(*lock.pool, *qp, {&refused, 1}) == 1;
}

}  // namespace pyrdma::krcore
