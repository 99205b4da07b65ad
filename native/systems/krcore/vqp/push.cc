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

std::uint64_t bytes_of(const fabric::WorkRequest& request) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  return bytes;
}

// Fields of a row are set one by one: a copy would wait for them.
void set_row(CompletionEntry& row, const Checked& request) {
  row.wr_id = request.request->wr_id;
  row.ticket = request.ticket;
  row.opcode = request.is_notice() ? Opcode::kWriteImm : request.opcode;
  row.status = Status::kSuccess;
  row.is_signaled = request.is_signaled;
  row.is_ready = false;
}

// Zero-copy sends get their tickets here, in their order, so that the receiver sees no gap.
void add_rows(Vqp& v, std::span<Checked> requests) {
  CompletionRows& rows = v.completions;
  rows.reserve(requests.size());
  bool has_messages = false;
  for (Checked& each : requests) {
    if (each.kind == Prepared::Kind::kMessage) {
      has_messages = true;
      if (each.message == MessageKind::kZeroCopy) each.ticket = v.next_announced++;
    }
    set_row(rows.extend(), each);
  }
  v.has_sent_messages |= has_messages;
}

}  // namespace

// Most requests are a READ or a WRITE of one buffer in the region that the queue pair used last.
inline Service::Usual Service::usual(const Vqp& v, Time now) const {
  return {v.region.entry.record, v.region.key, v.options.domain,
          options_.check_regions && !options_.bugs.has(Bug::kNoCheck) && knows_region(v, now)};
}

// Returns false if the full check must decide.
inline bool Service::is_usual(const Usual& usual, const fabric::WorkRequest& request,
                              Checked& out) const {
  const bool is_read = request.opcode == Opcode::kRead;
  if (!usual.is_known || (!is_read && request.opcode != Opcode::kWrite) || request.sge_count != 1 ||
      request.sges == nullptr || (request.flags & fabric::kInline) != 0 ||
      request.rkey != usual.key)
    return false;
  const fabric::Sge& sge = *request.sges;
  const std::uint32_t right = is_read ? fabric::kRemoteRead : fabric::kRemoteWrite;
  if ((usual.region.access & right) == 0 ||
      !covers(usual.region, request.remote_addr, sge.length) || sge.length > max_message_ ||
      !regions_->check(sge, is_read, usual.domain, out.lkeys[0]))
    return false;
  out.request = &request;
  out.bytes = sge.length;
  out.pieces = 1;
  out.ticket = 0;
  out.rkey = usual.region.rkey;
  out.kind = Prepared::Kind::kUser;
  out.message = MessageKind::kData;
  out.opcode = request.opcode;
  out.is_signaled = (request.flags & fabric::kSignaled) != 0;
  return true;
}

inline void Service::fill(CorePool& pool, const Vqp& v, const Checked& from, std::uint64_t entry,
                          std::uint64_t order, Prepared& out) const {
  const fabric::WorkRequest& request = *from.request;
  out.request = request;
  out.request.sges = out.sges.data();
  out.request.opcode = from.opcode;
  out.request.rkey = from.rkey;
  out.owner = v.id;
  out.epoch = v.epoch.load(std::memory_order_relaxed);
  out.kind = from.kind;
  out.is_signaled = from.is_signaled;
  out.order = order;
  out.entry = entry;
  out.to = v.to;
  if (from.kind == Prepared::Kind::kMessage) {
    fill_message(pool, v, from, out);
    return;
  }
  out.remote_key = request.rkey;
  for (std::uint32_t i = 0; i < from.pieces; ++i) {
    out.sges[i] = {request.sges[i].addr, request.sges[i].length, from.lkeys[i]};
    out.local_keys[i] = request.sges[i].lkey;
  }
  if ((request.flags & fabric::kInline) != 0) [[unlikely]]
    keep_payload(out);
}

[[gnu::noinline]] void Service::fill_message(CorePool& pool, const Vqp& v, const Checked& from,
                                             Prepared& out) const {
  const fabric::WorkRequest& request = *from.request;
  out.ticket = from.ticket;
  out.pieces = from.is_notice() ? 0 : from.pieces;
  for (std::uint32_t i = 0; i < out.pieces; ++i) {
    out.sges[i + 1] = {request.sges[i].addr, request.sges[i].length, from.lkeys[i]};
    out.local_keys[i] = request.sges[i].lkey;
  }
  out.header = header_of(v, from.message, pool);
  if (request.opcode != Opcode::kSend) out.header.flags |= MessageHeader::kHasImmediate;
  out.header.immediate = request.immediate;
  out.header.length = static_cast<std::uint32_t>(from.bytes);
  if (from.message == MessageKind::kZeroCopy) {
    out.header.address = request.sges[0].addr;
    out.header.key = from.lkeys[0];
    out.header.ticket = from.ticket;
  }
  if ((request.flags & fabric::kInline) != 0) keep_payload(out);
}

// The owner may change its buffers when push() returns, and the request may be posted later, or
// again.
void Service::keep_payload(Prepared& request) {
  const bool is_message = request.kind == Prepared::Kind::kMessage;
  const std::span<fabric::Sge> pieces =
      std::span(request.sges)
          .subspan(is_message ? 1 : 0, is_message ? request.pieces : request.request.sge_count);
  std::vector<std::byte> bytes;
  for (const fabric::Sge& piece : pieces) {
    const auto* at = reinterpret_cast<const std::byte*>(piece.addr);
    bytes.insert(bytes.end(), at, at + piece.length);
  }
  request.kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  if (pieces.empty()) return;
  pieces.front() = {reinterpret_cast<std::uint64_t>(request.kept->data()),
                    static_cast<std::uint32_t>(request.kept->size()), 0};
  (is_message ? request.pieces : request.request.sge_count) = 1;
}

// Finds `checked` of a list; returns what refuses it.
PushResult Service::check_list(Vqp& v, Time now, std::span<const fabric::WorkRequest> list,
                               std::size_t& count) {
  // The places stay: to make one takes longer than to fill it. A write with immediate takes two.
  if (v.checked.size() < 2 * list.size()) v.checked.resize(2 * list.size());
  Checked* next = v.checked.data();
  Usual expected;
  bool is_expected = false;  // messages need no region
  for (const fabric::WorkRequest& request : list) {
    const Scope step(env_, scope::check_request);
    if (!fabric::is_one_of(request.opcode, fabric::kSends)) {
      if (!is_expected) expected = usual(v, now);
      is_expected = true;
      if (is_usual(expected, request, *next)) {
        ++next;
        continue;
      }
    }
    const Status status = check(v, request, now, *next);
    is_expected = false;  // it may have found another region
    if (status != Status::kSuccess) {
      if (options_.bugs.has(Bug::kErrorMidList)) {
        const SendLock lock(v);
        add_rows(v, {v.checked.data(), next});
      }
      return {static_cast<std::uint32_t>(&request - list.data()), fabric::PostError::kInvalid,
              status};
    }
    // A write with immediate is a write, and a message behind it.
    if (request.opcode == Opcode::kWriteImm) {
      Checked& write = *next++;
      *next = write;
      next->kind = Prepared::Kind::kMessage;
      next->message = MessageKind::kWriteNotice;
      next->opcode = Opcode::kSend;
      write.opcode = Opcode::kWrite;
      write.is_signaled = false;
    }
    ++next;
  }
  count = static_cast<std::size_t>(next - v.checked.data());
  return {};
}

PushResult Service::push(VqpId id, std::span<const fabric::WorkRequest> list) {
  const Scope step(env_, scope::push);
  failure_.check();
  Vqp* const v = find(id);
  if (v == nullptr) return {0, fabric::PostError::kInvalidState, Status::kFlushed};
  if (v->state.load(std::memory_order_acquire) == VqpState::kCreated)
    return {0, fabric::PostError::kInvalidState, Status::kSuccess};
  if (list.empty()) return {};
  // A longer list would never fit, and would make its places in vain.
  if (list.size() > v->options.send_entries)
    return {0, fabric::PostError::kInvalid, Status::kLocalQpOperation};
  const std::uint16_t epoch = v->epoch.load(std::memory_order_acquire);
  std::size_t count = 0;
  const Time checked_at = env_.now();  // for the leases of the whole list
  v->region.was_looked_up = false;
  const PushResult refused = check_list(*v, checked_at, list, count);
  if (refused.error != fabric::PostError::kNone) return refused;
  // Nor would these.
  if (count > v->options.send_entries)
    return {0, fabric::PostError::kInvalid, Status::kLocalQpOperation};
  const std::span<Checked> checked = std::span(v->checked).first(count);
  const PushResult all{static_cast<std::uint32_t>(list.size()), fabric::PostError::kNone,
                       Status::kSuccess};
  // Lines 2 to 3: room comes with completions. The lock is free meanwhile, since a peer may wait
  // for what this node does under it. Pieces are as long as the queue is deep.
  std::uint64_t entry = kNoEntry, order = 0;
  // A lookup for one request may have waited while the leases of the others went on.
  bool is_late = v->region.was_looked_up && lease_.is_late(checked_at, env_.now());
  for (std::size_t done = 0; done < count;) {
    {
      const SendLock lock(*v);
      if (v->epoch != epoch) {
        // Another thread has reset the queue pair, which ends what has rows.
        if (entry != kNoEntry) return all;
        return {0, fabric::PostError::kInvalidState, Status::kSuccess};
      }
      if (entry == kNoEntry) {
        if (!has_rows(*lock.pool, *v, count))
          return {0, fabric::PostError::kQueueFull, Status::kSuccess};
        // Completions may have ended a transfer to another core, whose lock guards it now.
        if (v->pool.load(std::memory_order_relaxed) != lock.pool) continue;
        entry = v->completions.end();
        order = v->next_order;
        v->next_order += count;
        add_rows(*v, checked);
      }
      const auto goes_on = [&] {
        return v->transfer.stage != Transfer::kRunning && v->pending.empty() && v->qp != nullptr &&
               !v->qp->has_failed && !is_late;
      };
      const auto piece = [&] { return std::min<std::size_t>(count - done, v->qp->depth()); };
      // What ends here may fail the queue pair, or begin a transfer, so the looks come later. It
      // may also end a transfer to another core, whose lock guards it now.
      if (goes_on() && v->qp->room() < piece()) poll_inner(*lock.pool, *v->qp);
      if (v->pool.load(std::memory_order_relaxed) != lock.pool) continue;
      if (v->state.load(std::memory_order_relaxed) == VqpState::kError) {
        for (; done < count; ++done) complete(*v, entry + done, Status::kFlushed);
        return all;
      }
      if (!goes_on()) {
        for (; done < count; ++done) {
          Prepared held;
          fill(*lock.pool, *v, checked[done], entry + done, order + done, held);
          hold(*lock.pool, *v, held);
        }
        progress(*lock.pool);
        return all;
      }
      if (const std::size_t next = piece(); v->qp->room() >= next) {
        post_piece(*lock.pool, *v, checked.subspan(done, next), entry + done, order + done);
        done += next;
        continue;
      }
    }
    env_.reached("krcore/queue_full");
    const std::size_t left = count - done;
    const auto has_room = [this, v, left] {
      const SendLock lock(*v);
      if (v->qp == nullptr || v->qp->has_failed) return true;
      poll_inner(*lock.pool, *v->qp);
      return v->qp == nullptr || v->qp->has_failed ||
             v->qp->room() >= std::min<std::size_t>(left, v->qp->depth());
    };
    // Without a Watch: that of the queue pair may go with it meanwhile.
    env_.poll_until(has_room, env_.now() + 10 * kMicrosecond);
    is_late = lease_.is_late(checked_at, env_.now());
  }
  return all;
}

void Service::post_piece(CorePool& pool, Vqp& v, std::span<const Checked> piece,
                         std::uint64_t entry, std::uint64_t order) {
  PhysicalQp& qp = *v.qp;
  const std::uint64_t first = qp.tail();
  qp.push(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const Scope step(env_, scope::fill_request);
    fill(pool, v, piece[i], entry + i, order + i, qp.at(first + i));
  }
  post(pool, v, piece.size());
}

// Requests that have ended may leave room once their completions are here.
bool Service::has_rows(CorePool& pool, Vqp& v, std::size_t count) {
  if (v.completions.size() + count <= v.options.send_entries) return true;
  if (v.qp != nullptr) poll_inner(pool, *v.qp);
  return v.completions.size() + count <= v.options.send_entries;
}

// Lines 5 to 20, for a list that fits.
void Service::post(CorePool& pool, Vqp& v, std::size_t count) {
  PhysicalQp& qp = *v.qp;
  const std::uint64_t first = qp.tail() - count;
  const std::uint32_t accepted = post_newest(pool, qp, count);
  // A simulated thread that is killed while it is preempted runs on until its next wait. The owner
  // may have ended before.
  if (qp.is_dynamic() && v.node != fabric::kNoNode) pool.dynamic_requests[v.node] += accepted;
  for (std::uint64_t i = accepted; i < count; ++i) hold(pool, v, qp.at(first + i));
  qp.unpush(count - accepted);
}

std::uint32_t Service::post_physical(CorePool& pool, PhysicalQp& qp,
                                     std::span<const Prepared> list) {
  const std::uint64_t first = qp.tail();
  qp.push(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) qp.at(first + i) = list[i];
  const std::uint32_t accepted = post_newest(pool, qp, list.size());
  qp.unpush(list.size() - accepted);
  return accepted;
}

std::uint32_t Service::post_newest(CorePool& pool, PhysicalQp& qp, std::size_t count) {
  const Scope step(env_, scope::post_physical);
  std::vector<fabric::WorkRequest>& requests = pool.requests;
  if (requests.size() < count) requests.resize(count);
  const std::uint64_t first = qp.tail() - count;
  const bool is_dynamic = qp.is_dynamic();
  std::uint32_t unsignaled = qp.unsignaled;
  for (std::size_t i = 0; i < count; ++i) {
    const Scope each_step(env_, scope::post_request);
    const bool is_last = i + 1 == count;
    Prepared& each = qp.at(first + i);
    fabric::WorkRequest& request = requests[i];
    request = each.request;
    const bool is_users = each.kind == Prepared::Kind::kUser;
    if (!is_users && request.opcode == Opcode::kSend) {
      const bool carries = each.header.kind == MessageKind::kData;
      each.header.to_life = is_dynamic ? static_cast<std::uint16_t>(each.to.meta.incarnation)
                                       : MessageHeader::kAnyLife;
      std::memcpy(qp.header_data(first + i), &each.header, sizeof each.header);
      each.sges[0] = qp.header_place(first + i);
      request.sge_count = carries ? each.pieces + 1 : 1;
      // The NIC takes an inline payload at the post, and another one when a fence lets the request
      // begin.
      const bool is_fenced = (request.flags & (fabric::kFence | fabric::kInline)) == fabric::kFence;
      const bool fits = !is_fenced && sizeof(MessageHeader) + (carries ? each.header.length : 0) <=
                                          qp.max_inline();
      if (fits)
        request.flags |= fabric::kInline;
      else
        request.flags &= static_cast<std::uint8_t>(~fabric::kInline);
    } else if ((request.flags & fabric::kInline) != 0 && bytes_of(request) > qp.max_inline()) {
      request.flags &= static_cast<std::uint8_t>(~fabric::kInline);
    }
    if (is_dynamic) {
      request.address_handle = each.to.handle;
      request.remote_qpn = each.to.meta.number;
      request.remote_qkey = each.to.meta.key;
    }
    const bool off_by_one = options_.bugs.has(Bug::kCountOffByOne);
    const bool is_own = !is_users && each.kind != Prepared::Kind::kMessage;
    if (each.is_signaled || is_own) {
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
  const fabric::PostResult result = qp.qp().post(std::span(requests).first(count));
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

}  // namespace pyrdma::krcore
