// Requests of a link: the plan defines them, and the link judges them when they end.
#include <algorithm>
#include <cstring>

#include "fuzz/fabric/link.h"

namespace pyrdma::fuzz {

using fabric::Opcode;

namespace {

constexpr std::uint32_t kRegisterRecord = 0x80;

Opcode opcode_of(Kind kind) {
  switch (kind) {
    case Kind::kWriteImm:
      return Opcode::kWriteImm;
    case Kind::kRead:
    case Kind::kReadOther:
      return Opcode::kRead;
    case Kind::kFetchAdd:
      return Opcode::kFetchAdd;
    case Kind::kCompareSwap:
      return Opcode::kCompareSwap;
    case Kind::kSend:
    case Kind::kUcSend:
      return Opcode::kSend;
    case Kind::kSendImm:
      return Opcode::kSendImm;
    default:
      return Opcode::kWrite;
  }
}

}  // namespace

void Link::prepare(Channel& channel, const PlannedOperation& op, std::size_t index) {
  Pending pending;
  pending.op = &op;
  pending.plan_index = index;
  pending.target = peer_;
  pending.incarnation = there_.incarnation;
  fabric::WorkRequest request;
  request.opcode = opcode_of(op.kind);
  request.flags = op.flags;
  request.rkey = there_.shared.rkey;
  std::uint32_t length = 8;
  std::size_t offset = 0;
  switch (op.kind) {
    case Kind::kWrite:
    case Kind::kWriteImm:
    case Kind::kUcWrite:
      length = kRecordBytes[op.place];
      offset = world_.layout.record(node_.id, op.place);
      pending.version = ++next_version_;
      write_stamps(channel.next_slot(), length, place_there(op.place), pending.version);
      break;
    case Kind::kRead:
      length = kRecordBytes[op.place];
      offset = world_.layout.record(node_.id, op.place);
      break;
    case Kind::kReadOther:
      length = kRecordBytes[op.place];
      offset = world_.layout.record(op.target, op.place);
      break;
    case Kind::kFetchAdd:
      offset = world_.layout.counter(op.place);
      request.compare_add = 1;
      break;
    case Kind::kCompareSwap:
      offset = world_.layout.cell(op.place);
      pending.version = ++next_version_;
      pending.expected = last_seen_[op.place];
      pending.desired = stamp(place_there(kRegisterRecord), pending.version, op.place);
      request.compare_add = pending.expected;
      request.swap = pending.desired;
      break;
    default:  // sends
      length = op.length;
      pending.version = ++next_version_;
      write_stamps(channel.next_slot(), length,
                   place_there(op.kind == Kind::kUcSend ? kUcSendRecord : kSendRecord),
                   pending.version);
  }
  request.immediate = pending.version;
  request.remote_addr = there_.shared.addr + offset;
  if (length > channel.max_inline()) request.flags &= static_cast<std::uint8_t>(~fabric::kInline);
  if (pending.version == 0 || op.kind == Kind::kCompareSwap)
    std::memset(channel.next_slot(), 0xdd, length);  // the result must replace it
  channel.prepare(pending, request, length);
}

void Link::accepted(Pending& pending) {
  const PlannedOperation& op = *pending.op;
  if (!op.probe) world_.begins();
  if (pending.version > 0) state_.version = pending.version;
  // A resent read may see later writes, unless they wait for it by a fence (ibv_post_send(3),
  // IBV_SEND_FENCE).
  if ((op.flags & fabric::kFence) != 0 && route_of(op.kind) == Route::kRc)
    reliable_channel_.for_each([this](Pending& read) {
      if (read.op->kind != Kind::kRead || read.closed) return;
      read.most = world_.record(peer_, node_.id, read.op->place).posted;
      read.closed = true;
    });
  switch (op.kind) {
    case Kind::kWrite:
    case Kind::kWriteImm:
    case Kind::kUcWrite: {
      RecordState& record = world_.record(peer_, node_.id, op.place);
      record.posted = record.here = pending.version;
      if (op.kind == Kind::kUcWrite) break;
      last_written_ = {static_cast<std::uint8_t>(op.place), pending.version};
      if (op.kind == Kind::kWriteImm)
        sent(true).sent.push_back({pending.version, kRecordBytes[op.place], op.kind,
                                   last_written_.record, last_written_.version});
      break;
    }
    case Kind::kRead: {
      const RecordState& record = world_.record(peer_, node_.id, op.place);
      pending.least = record.here > 0 && !world_.any_order ? record.here : record.sure;
      pending.most = record.posted;
      pending.closed = !world_.options.faults.any();
      break;
    }
    case Kind::kReadOther: {
      const RecordState& record = world_.record(peer_, op.target, op.place);
      if (record.incarnation == pending.incarnation) pending.least = record.sure;
      break;
    }
    case Kind::kSend:
    case Kind::kSendImm:
      sent(true).sent.push_back(
          {pending.version, op.length, op.kind, last_written_.record, last_written_.version});
      break;
    case Kind::kUcSend:
      sent(false).sent.push_back({pending.version, op.length, op.kind, 0, 0});
      break;
    default:
      break;
  }
  if (node_.tracing())
    node_.trace("posts", std::string(to_string(op.kind)) + " " + std::to_string(op.id) +
                             ", version " + std::to_string(pending.version) + ", to node " +
                             std::to_string(peer_));
}

bool Link::must_succeed() const {
  const Time heal_at = world_.options.faults.heal_at;
  const PairState& pair = world_.pair(node_.id, peer_);
  return pair.sides[0].published_at >= heal_at && pair.sides[1].published_at >= heal_at;
}

void Link::ended(const Pending& pending, bool known, const std::byte* slot) {
  const PlannedOperation& op = *pending.op;
  ++(known ? world_.outcome.ok : world_.outcome.info);
  if (!known && must_succeed())
    world_.violation("liveness", std::string(to_string(op.kind)) + " " + std::to_string(op.id) +
                                     " from node " + std::to_string(node_.id) + " to " +
                                     std::to_string(peer_) +
                                     " failed on a connection made after all faults had ended");
  switch (op.kind) {
    case Kind::kRead:
    case Kind::kReadOther:
      if (known) read_ended(pending, slot);
      break;
    case Kind::kFetchAdd:
    case Kind::kCompareSwap:
      atomic_ended(pending, known, slot);
      break;
    case Kind::kSend:
    case Kind::kSendImm:
    case Kind::kWriteImm:
      if (known) ++sent(true).acknowledged;
      break;
    default:
      break;
  }
  if (op.probe) probe_ended(pending, known);
}

void Link::read_ended(const Pending& pending, const std::byte* slot) {
  const PlannedOperation& op = *pending.op;
  const bool own = op.kind == Kind::kRead;
  const NodeId source = own ? node_.id : op.target;
  RecordState& record = world_.record(peer_, source, op.place);
  const Place place{source * world_.options.nodes + (op.place < kFirstDc ? peer_ : source),
                    op.place, pending.incarnation};
  if (source == peer_ && op.place < kFirstDc) return;  // no client writes those
  const Versions found = read_stamps(slot, kRecordBytes[op.place], place);
  std::uint32_t most = pending.closed ? pending.most : record.posted;
  if (!own) {
    if (record.incarnation > pending.incarnation)
      return;  // the writer's state is of a later incarnation
    most = record.incarnation == pending.incarnation ? record.posted : 0;
  }
  world_.judge_read(own ? "read" : "read of another's record", found, pending.least, most, state_,
                    op);
  // The read has drained all earlier writes of this connection.
  if (own && found.most != kNoVersion && record.incarnation == pending.incarnation)
    record.sure = std::max(record.sure, found.least);
}

void Link::atomic_ended(const Pending& pending, bool known, const std::byte* slot) {
  const PlannedOperation& op = *pending.op;
  const bool counter = op.kind == Kind::kFetchAdd;
  AtomicOperation done;
  done.invoked = pending.invoked;
  done.expected = pending.expected;
  done.desired = pending.desired;
  done.client = state_.id;
  done.operation = op.id;
  if (known) {
    done.returned = world_.now();
    std::memcpy(&done.old, slot, 8);
    if (!counter && pending.incarnation == there_.incarnation)
      last_seen_[op.place] = done.old == pending.expected ? pending.desired : done.old;
  }
  world_.word(peer_, pending.incarnation, counter, op.place).operations.push_back(done);
}

void Link::probe_ended(const Pending& pending, bool known) {
  if (!known) {
    state_.next = std::min(state_.next, pending.plan_index);
    return;
  }
  if (pending.plan_index + 1 == state_.plan.size() && !state_.done) world_.finish(state_);
}

}  // namespace pyrdma::fuzz
