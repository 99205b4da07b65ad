// post_send_virtualized of algorithm 2 (section 4.4): checks a list of requests, makes room, posts
// it to the shared queue pair.
//
// Corrections to the printed listing (claims file, ambiguities): the whole list is checked before
// any state changes; the depth of the completion queue counts too; a last request without a signal
// frees exactly what the loop has counted.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "fabric/post_rules.h"
#include "systems/krcore/scopes.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

using fabric::Opcode;
using fabric::Status;

namespace {

constexpr Time kAskAgain = 5 * kMillisecond;  // doubles

std::uint64_t bytes_of(const fabric::WorkRequest& request) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  return bytes;
}

}  // namespace

PushResult Service::push(VqpId id, std::span<const fabric::WorkRequest> list) {
  const Scope step(env_, scope::push);
  Vqp* v = find(id);
  if (v == nullptr) return {0, fabric::PostError::kInvalidState, Status::kFlushed};
  if (v->state.load(std::memory_order_acquire) == VqpState::kCreated)
    return {0, fabric::PostError::kInvalidState, Status::kSuccess};
  if (list.empty()) return {};
  // A longer list would never fit, and would make its places in vain.
  if (list.size() > v->options.send_entries)
    return {0, fabric::PostError::kInvalid, Status::kLocalQpOperation};
  KnownRegion region;
  region.now = env_.now();
  // The places stay: to make one takes longer than to fill it. A write with immediate takes two.
  if (v->prepared.size() < 2 * list.size()) v->prepared.resize(2 * list.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Scope check(env_, scope::check_request);
    Prepared& next = v->prepared[count++];
    const Status status = prepare(*v, list[i], next, region);
    if (status != Status::kSuccess) {
      const auto bad = static_cast<std::uint32_t>(i);
      if (!options_.bugs.has(Bug::kErrorMidList)) return {bad, fabric::PostError::kInvalid, status};
      const SendLock lock(*v);
      for (const Prepared& lost : std::span(v->prepared).first(count - 1))
        v->completions.push_back({lost.request.wr_id, 0, lost.request.opcode, Status::kSuccess,
                                  lost.is_signaled, false});
      return {bad, fabric::PostError::kInvalid, status};
    }
    // A write with immediate is a write, and a message behind it.
    if (list[i].opcode == Opcode::kWriteImm) {
      Prepared& notice = v->prepared[count++];
      prepare_message(*v, list[i], notice);
      notice.header.kind = MessageKind::kWriteNotice;
      notice.header.length = static_cast<std::uint32_t>(bytes_of(list[i]));
      notice.header.flags |= MessageHeader::kHasImmediate;
      notice.pieces = 0;
      next.request.opcode = Opcode::kWrite;
      next.request.flags &= static_cast<std::uint8_t>(~fabric::kSignaled);
      next.is_signaled = false;
    }
  }
  const std::span<Prepared> prepared = std::span(v->prepared).first(count);
  // Nor would these.
  if (prepared.size() > v->options.send_entries)
    return {0, fabric::PostError::kInvalid, Status::kLocalQpOperation};
  {
    const SendLock lock(*v);
    if (v->completions.size() + prepared.size() > v->options.send_entries) {
      // Requests that have ended may leave room once their completions are here.
      if (v->qp != nullptr) poll_inner(*lock.pool, *v->qp);
      if (v->completions.size() + prepared.size() > v->options.send_entries)
        return {0, fabric::PostError::kQueueFull, Status::kSuccess};
    }
    for (Prepared& each : prepared) {
      if (v->state.load(std::memory_order_relaxed) == VqpState::kError) {
        v->completions.push_back(
            {each.request.wr_id, 0, each.request.opcode, Status::kFlushed, each.is_signaled, true});
        continue;
      }
      each.owner = v->id;
      each.epoch = v->epoch;
      each.order = v->next_order++;
      each.to = v->to;
      const Opcode opcode =
          each.header.kind == MessageKind::kWriteNotice && each.kind == Prepared::Kind::kMessage
              ? Opcode::kWriteImm
              : each.request.opcode;
      each.entry = v->completions.push_back(
          {each.request.wr_id, each.ticket, opcode, Status::kSuccess, each.is_signaled, false});
      v->has_sent_messages |= each.kind == Prepared::Kind::kMessage;
    }
    if (v->state.load(std::memory_order_relaxed) == VqpState::kError) {
      env_.notify(v->watch);
      return {static_cast<std::uint32_t>(list.size()), fabric::PostError::kNone, Status::kSuccess};
    }
  }
  // Lines 2 to 3: room comes with completions. The lock is free meanwhile, since a peer may wait
  // for what this node does under it. Pieces are as long as the queue is deep.
  std::span<Prepared> rest = prepared;
  while (!rest.empty()) {
    bool is_done = false;
    {
      const SendLock lock(*v);
      if (v->state.load(std::memory_order_relaxed) == VqpState::kError) {
        for (const Prepared& each : rest) complete(*v, each.entry, Status::kFlushed);
        break;
      }
      if (v->transfer.stage == Transfer::kRunning || !v->pending.empty() || v->qp == nullptr ||
          v->qp->has_failed) {
        for (Prepared& each : rest) hold(*lock.pool, *v, each);
        progress(*lock.pool);
        break;
      }
      const std::size_t piece = std::min<std::size_t>(rest.size(), v->qp->depth());
      if (v->qp->room() < piece) poll_inner(*lock.pool, *v->qp);
      if (v->qp != nullptr && !v->qp->has_failed && v->pending.empty() && v->qp->room() >= piece) {
        post(*lock.pool, *v, rest.first(piece));
        rest = rest.subspan(piece);
        is_done = true;
      }
    }
    if (is_done) continue;
    env_.reached("krcore/queue_full");
    const auto has_room = [&] {
      const SendLock lock(*v);
      if (v->qp == nullptr || v->qp->has_failed) return true;
      poll_inner(*lock.pool, *v->qp);
      return v->qp == nullptr || v->qp->has_failed || v->qp->room() > 0;
    };
    // Without a Watch: that of the queue pair may go with it meanwhile.
    env_.poll_until(has_room, env_.now() + 10 * kMicrosecond);
  }
  return {static_cast<std::uint32_t>(list.size()), fabric::PostError::kNone, Status::kSuccess};
}

Status Service::prepare(Vqp& v, const fabric::WorkRequest& request, Prepared& out,
                        KnownRegion& region) {
  if (!fabric::is_one_of(request.opcode, fabric::allowed_opcodes(fabric::Transport::kRc)) ||
      !fabric::has_pieces_up_to(std::min(v.options.max_sges, kMostSges), request))
    return options_.bugs.has(Bug::kNoCheck) ? Status::kSuccess : Status::kLocalQpOperation;
  out.request = request;
  std::copy_n(request.sges, request.sge_count, out.sges.data());
  out.request.sges = out.sges.data();
  out.is_signaled = (request.flags & fabric::kSignaled) != 0;
  if (fabric::is_one_of(request.opcode, fabric::kSends)) return prepare_message(v, request, out);
  return prepare_one_sided(v, request, out, region);
}

Status Service::prepare_one_sided(Vqp& v, const fabric::WorkRequest& request, Prepared& out,
                                  KnownRegion& region) {
  out.kind = Prepared::Kind::kUser;
  out.ticket = 0;
  const std::uint64_t bytes = bytes_of(request);
  const bool returns = fabric::is_one_of(request.opcode, fabric::kReturning);
  const bool is_inline = (request.flags & fabric::kInline) != 0;
  if (is_inline && (returns || bytes > v.options.max_inline)) return Status::kLocalQpOperation;
  if (options_.bugs.has(Bug::kNoCheck)) return Status::kSuccess;
  for (std::uint32_t i = 0; !is_inline && i < request.sge_count; ++i)
    if (!regions_->check(out.sges[i], returns, v.options.domain)) return Status::kLocalProtection;
  if (bytes > max_message_) return Status::kLocalLength;
  if (fabric::is_one_of(request.opcode, fabric::kAtomics) && bytes != 8)
    return Status::kLocalLength;
  if (fabric::is_one_of(request.opcode, fabric::kAtomics) && request.remote_addr % 8 != 0)
    return Status::kRemoteInvalidRequest;
  // Most lists go to one region.
  if (!region.is_known || region.key != request.rkey) {
    const Status status = find_region(v, request.rkey, region);
    if (status != Status::kSuccess) return status;
  }
  if (options_.check_regions && !allows(region.record, request.opcode, request.remote_addr, bytes))
    return Status::kRemoteAccess;
  out.request.rkey = region.record.rkey;
  return Status::kSuccess;
}

// The receiver's buffers are the kernel's: a header tells it whose message this is. A long payload
// is announced, and the receiver reads it (section 4.5).
Status Service::prepare_message(Vqp& v, const fabric::WorkRequest& request, Prepared& out) {
  out.kind = Prepared::Kind::kMessage;
  out.ticket = 0;
  const std::uint64_t bytes = bytes_of(request);
  const bool is_inline = (request.flags & fabric::kInline) != 0;
  if (is_inline && bytes > v.options.max_inline) return Status::kLocalQpOperation;
  out.request = request;
  out.pieces = request.sge_count;
  out.header = {};
  out.header.immediate = request.immediate;
  if (request.opcode == Opcode::kSendImm) out.header.flags |= MessageHeader::kHasImmediate;
  out.header.length = static_cast<std::uint32_t>(bytes);
  out.is_signaled = (request.flags & fabric::kSignaled) != 0;
  out.request.opcode = Opcode::kSend;
  if (request.opcode == Opcode::kWriteImm) return Status::kSuccess;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    out.sges[i + 1] = request.sges[i];
    if (!is_inline && !regions_->check(out.sges[i + 1], false, v.options.domain))
      return Status::kLocalProtection;
  }
  out.request.sges = out.sges.data();
  if (bytes > max_message_) return Status::kLocalLength;
  if (bytes <= options_.zero_copy_above || is_inline) return Status::kSuccess;
  if (request.sge_count != 1)
    return bytes <= options_.message_bytes ? Status::kSuccess : Status::kLocalLength;
  out.header.kind = MessageKind::kZeroCopy;
  out.header.address = request.sges[0].addr;
  out.header.key = out.sges[1].lkey;
  out.ticket = next_number();
  out.header.ticket = out.ticket;
  return Status::kSuccess;
}

// In the core's MRStore, else in the ValidMR table of the node.
Status Service::find_region(Vqp& v, std::uint32_t key, KnownRegion& region) {
  region.key = key;
  region.is_known = false;
  CoreState& core = *core_states_[v.pool.load(std::memory_order_acquire)->core];
  {
    const std::lock_guard<Mutex> lock(core.store_mutex);
    if (const RegionRecord* known = core.store.find(v.node, key, region.now)) {
      region.record = *known;
      region.is_known = true;
      return Status::kSuccess;
    }
  }
  const Scope step(env_, scope::region_miss);
  ++counters_.region_misses;
  const Time asked = env_.now();
  const LookupResult result = look_up_region(v, key, region.record);
  if (result == LookupResult::kFailed) return Status::kRetryExceeded;
  if (result == LookupResult::kAbsent) return Status::kRemoteAccess;
  const Time from = options_.bugs.has(Bug::kLeaseFromAnswer) ? env_.now() : asked;
  const std::lock_guard<Mutex> lock(core.store_mutex);
  // Without checks the store only translates keys.
  core.store.put(v.node, key, region.record,
                 options_.check_regions ? from + options_.lease : kForever);
  region.is_known = true;
  return Status::kSuccess;
}

// Lines 5 to 20, for a list that fits.
void Service::post(CorePool& pool, Vqp& v, std::span<Prepared> list) {
  for (Prepared& each : list) {
    if (each.kind != Prepared::Kind::kMessage) continue;
    const MessageHeader own = each.header;
    each.header = header_of(v, own.kind, pool);
    each.header.flags = own.flags;
    each.header.length = own.length;
    each.header.immediate = own.immediate;
    each.header.address = own.address;
    each.header.key = own.key;
    each.header.ticket = own.ticket;
  }
  const std::uint32_t accepted = post_physical(pool, *v.qp, list);
  for (const Prepared& each : list.first(accepted)) {
    if (each.ticket == 0 || each.kind != Prepared::Kind::kMessage) continue;
    const Time now = env_.now();
    v.announced.push_back({each, now + kAskAgain, kAskAgain});
    want_answer(pool, v);
  }
  if (v.qp->is_dynamic()) pool.dynamic_requests[v.node] += accepted;
  for (Prepared& each : list.subspan(accepted)) hold(pool, v, each);
}

// Requests that failed with a queue pair come back later than those that were posted since.
void Service::hold(CorePool& pool, Vqp& v, const Prepared& request) {
  auto at = v.pending.end();
  while (at != v.pending.begin() && std::prev(at)->order > request.order) --at;
  v.pending.insert(at, request);
  want_turn(pool, v);
}

std::uint32_t Service::post_physical(CorePool& pool, PhysicalQp& qp, std::span<Prepared> list) {
  const Scope step(env_, scope::post_physical);
  std::vector<fabric::WorkRequest>& requests = pool.requests;
  requests.resize(list.size());
  std::uint32_t unsignaled = qp.unsignaled;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool is_last = i + 1 == list.size();
    const std::uint64_t position = qp.tail();
    Prepared& each = qp.push(list[i]);
    // A copy of what has just been changed field by field would wait for these stores.
    fabric::WorkRequest& request = requests[i];
    request = list[i].request;
    request.sges = each.sges.data();
    if (each.kind == Prepared::Kind::kMessage ||
        (each.kind == Prepared::Kind::kInternal && request.opcode == Opcode::kSend)) {
      const bool carries = each.header.kind == MessageKind::kData;
      each.header.to_life = qp.is_dynamic() ? static_cast<std::uint16_t>(each.to.meta.incarnation)
                                            : MessageHeader::kAnyLife;
      std::memcpy(qp.header_data(position), &each.header, sizeof each.header);
      each.sges[0] = qp.header_place(position);
      request.sge_count = carries ? each.pieces + 1 : 1;
      const bool fits =
          sizeof(MessageHeader) + (carries ? each.header.length : 0) <= qp.max_inline();
      if (fits)
        request.flags |= fabric::kInline;
      else
        request.flags &= static_cast<std::uint8_t>(~fabric::kInline);
    } else if ((request.flags & fabric::kInline) != 0 && bytes_of(request) > qp.max_inline()) {
      request.flags &= static_cast<std::uint8_t>(~fabric::kInline);
    }
    if (qp.is_dynamic()) {
      request.address_handle = each.to.handle;
      request.remote_qpn = each.to.meta.number;
      request.remote_qkey = each.to.meta.key;
    }
    const bool off_by_one = options_.bugs.has(Bug::kCountOffByOne);
    if (each.is_signaled || each.kind == Prepared::Kind::kInternal ||
        each.kind == Prepared::Kind::kFetch) {
      request.flags |= fabric::kSignaled;
      request.wr_id = RequestId{each.owner, unsignaled + 1}.pack();
      unsignaled = 0;
    } else {
      ++unsignaled;
      request.flags &= static_cast<std::uint8_t>(~fabric::kSignaled);
      request.wr_id = RequestId{each.owner, unsignaled}.pack();
      if (is_last) {
        request.flags |= fabric::kSignaled;
        request.wr_id = RequestId{{}, unsignaled + (off_by_one ? 1 : 0)}.pack();
        unsignaled = 0;
      }
    }
  }
  const fabric::PostResult result = qp.qp().post(requests);
  for (std::size_t i = result.accepted; i < list.size(); ++i) qp.unpush();
  // Those at the end of what was accepted are freed by the next completion.
  std::uint32_t at_end = result.accepted == 0 ? qp.unsignaled : 0;
  for (std::uint32_t i = result.accepted; i-- > 0;) {
    if ((requests[i].flags & fabric::kSignaled) != 0) break;
    at_end = i == 0 ? at_end + 1 + qp.unsignaled : at_end + 1;
  }
  qp.unsignaled = at_end;
  qp.uncompleted += result.accepted;
  qp.requests += result.accepted;
  return result.accepted;
}

void Service::want_answer(CorePool& pool, Vqp& v) {
  if (v.is_asking) return;
  v.is_asking = true;
  core_states_[pool.core]->asking.push_back(v.id);
}

void Service::want_turn(CorePool& pool, Vqp& v) {
  if (v.is_waiting) return;
  v.is_waiting = true;
  core_states_[pool.core]->waiting.push_back(v.id);
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
  if (v.qp == nullptr) return;
  while (!v.pending.empty() && !v.qp->has_failed && v.qp->room() > 0) {
    Prepared next = v.pending.front();
    v.pending.pop_front();
    next.to = v.to;
    const std::size_t before = v.pending.size();
    post(pool, v, {&next, 1});
    if (v.pending.size() > before) return;  // the device took nothing
  }
}

}  // namespace pyrdma::krcore
