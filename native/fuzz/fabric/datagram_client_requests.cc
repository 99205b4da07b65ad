// Requests and receives of the client that sends to all nodes.
#include <algorithm>
#include <cstring>

#include "fuzz/fabric/datagram_client.h"

namespace pyrdma::fuzz {

using fabric::Completion;
using fabric::Opcode;
using fabric::Status;

namespace {

constexpr std::uint32_t kDatagramRecord = 0xf2, kDcRecord = 0xf3;
constexpr std::uint64_t kSharedBit = 1ULL << 32;

}  // namespace

bool DatagramClient::prepare(Channel& channel, const PlannedOperation& op, std::size_t index) {
  const NodeId target =
      op.target == node_.id ? (node_.id + 1) % world_.options.nodes : NodeId{op.target};
  const Peer* peer = reach(target);
  if (peer == nullptr) return false;
  Pending pending;
  pending.op = &op;
  pending.plan_index = index;
  pending.target = target;
  pending.incarnation = peer->address.incarnation;
  fabric::WorkRequest request;
  request.flags = op.flags;
  request.address_handle = peer->handle.get();
  request.rkey = peer->address.shared.rkey;
  const bool datagram = op.kind == Kind::kDatagram;
  const fabric::QpAddress& to = datagram ? peer->address.datagrams : peer->address.dc_target;
  request.remote_qpn = to.qp_num;
  request.remote_qkey = to.qkey;
  std::uint32_t length = op.length;
  std::size_t offset = 0;
  switch (op.kind) {
    case Kind::kDcWrite:
    case Kind::kDcRead:
      length = kRecordBytes[op.place];
      offset = world_.layout.record(node_.id, op.place);
      if (op.kind == Kind::kDcRead) {
        request.opcode = Opcode::kRead;
        break;
      }
      request.opcode = Opcode::kWrite;
      pending.version = ++next_version_;
      write_stamps(channel.next_slot(), length, {state_.id, op.place, pending.incarnation},
                   pending.version);
      break;
    case Kind::kDcFetchAdd:
      request.opcode = Opcode::kFetchAdd;
      request.compare_add = 1;
      length = 8;
      offset = world_.layout.counter(op.place);
      break;
    default:
      request.opcode = Opcode::kSend;
      pending.version = ++next_version_;
      // Versions stay unique when the target restarts, so the stamp omits its incarnation.
      write_stamps(channel.next_slot(), length,
                   {state_.id, datagram ? kDatagramRecord : kDcRecord, 0}, pending.version);
  }
  request.remote_addr = peer->address.shared.addr + offset;
  if (length > channel.max_inline()) request.flags &= static_cast<std::uint8_t>(~fabric::kInline);
  if (pending.version == 0 || op.kind == Kind::kCompareSwap)
    std::memset(channel.next_slot(), 0xdd, length);  // the result must replace it
  channel.prepare(pending, request, length);
  return true;
}

void DatagramClient::accepted(Pending& pending) {
  const PlannedOperation& op = *pending.op;
  if (!op.probe) world_.begins();
  if (pending.version > 0) state_.version = pending.version;
  // A resent read may see later writes, unless they wait for it by a fence (ibv_post_send(3),
  // IBV_SEND_FENCE).
  if ((op.flags & fabric::kFence) != 0 && route_of(op.kind) == Route::kDc)
    dc_.for_each([this](Pending& read) {
      if (read.op->kind != Kind::kDcRead || read.closed) return;
      read.most = world_.record(read.target, node_.id, read.op->place).posted;
      read.closed = true;
    });
  if (op.kind == Kind::kDcWrite || op.kind == Kind::kDcRead) {
    RecordState& record = world_.record(pending.target, node_.id, op.place);
    if (op.kind == Kind::kDcWrite) {
      record.posted = record.here = pending.version;
    } else {
      pending.least = record.here > 0 && !world_.any_order ? record.here : record.sure;
      pending.most = record.posted;
      pending.closed = !world_.options.faults.any();
    }
  }
  if (node_.tracing())
    node_.trace("posts", std::string(to_string(op.kind)) + " " + std::to_string(op.id) +
                             ", version " + std::to_string(pending.version) + ", to node " +
                             std::to_string(pending.target));
}

void DatagramClient::ended(const Pending& pending, bool known, const std::byte* slot) {
  const PlannedOperation& op = *pending.op;
  ++(known ? world_.outcome.ok : world_.outcome.info);
  if (op.kind == Kind::kDcRead && known) read_ended(pending, slot);
  if (op.kind == Kind::kDcFetchAdd) atomic_ended(pending, known, slot);
  if (op.probe) probe_ended(pending, known);
}

void DatagramClient::read_ended(const Pending& pending, const std::byte* slot) {
  const PlannedOperation& op = *pending.op;
  RecordState& record = world_.record(pending.target, node_.id, op.place);
  if (record.incarnation != pending.incarnation) return;
  const Versions found =
      read_stamps(slot, kRecordBytes[op.place], {state_.id, op.place, pending.incarnation});
  world_.judge_read("DC read", found, pending.least, pending.closed ? pending.most : record.posted,
                    state_, op);
  if (found.most != kNoVersion) record.sure = std::max(record.sure, found.least);
}

void DatagramClient::atomic_ended(const Pending& pending, bool known, const std::byte* slot) {
  AtomicOperation done;
  done.invoked = pending.invoked;
  done.client = state_.id;
  done.operation = pending.op->id;
  if (known) {
    done.returned = world_.now();
    std::memcpy(&done.old, slot, 8);
  }
  world_.word(pending.target, pending.incarnation, true, pending.op->place)
      .operations.push_back(done);
}

void DatagramClient::probe_ended(const Pending& pending, bool known) {
  if (!known) state_.next = std::min(state_.next, pending.plan_index);
}

// ---- completions ----

bool DatagramClient::take_completions() {
  if (queue_->overrun()) {
    overrun_ = true;
    return true;
  }
  const std::size_t count = queue_->poll(completions_);
  for (std::size_t i = 0; i < count; ++i) take(completions_[i]);
  return count > 0;
}

void DatagramClient::take(const Completion& completion) {
  if ((completion.wr_id & Channel::kReceiveTag) != 0) return received(completion);
  Channel& channel = dc_.owns(completion.wr_id) ? dc_ : datagrams_;
  if (!channel.owns(completion.wr_id))
    return world_.violation("completion", "a completion has wr_id " +
                                              std::to_string(completion.wr_id) + ", which node " +
                                              std::to_string(node_.id) + " never gave out");
  channel.complete(completion, [this](const Pending& pending, bool known, const std::byte* slot) {
    ended(pending, known, slot);
  });
  if (completion.status != Status::kSuccess && node_.tracing())
    node_.trace("fails", channel.name() + ", " + to_string(completion.status));
}

std::byte* DatagramClient::receive_buffer(bool shared, std::uint32_t index) {
  return buffers_ + (kReliableWindow + kUnreliableWindow) * kMostBytes +
         ((shared ? kDatagramReceives : 0) + index) * kReceiveBytes;
}

bool DatagramClient::post_receive(bool shared, std::uint32_t index) {
  const fabric::Sge into{reinterpret_cast<std::uint64_t>(receive_buffer(shared, index)),
                         kReceiveBytes, node_.local->lkey()};
  const std::uint64_t wr_id = Channel::kReceiveTag | (shared ? kSharedBit : 0) | index;
  if (!shared) return ud_->receive(into, wr_id);
  const fabric::ReceiveRequest request{wr_id, &into, 1};
  return shared_receives_->post_receive({&request, 1}).accepted == 1;
}

void DatagramClient::fill_receives() {
  for (std::uint32_t i = 0; i < kDatagramReceives; ++i)
    if (!posted_[i]) posted_[i] = post_receive(false, i);
  if (!has_dc_) return;
  for (std::uint32_t i = 0; i < kSharedReceives; ++i)
    if (!shared_posted_[i]) shared_posted_[i] = post_receive(true, i);
}

void DatagramClient::received(const Completion& completion) {
  const bool shared = (completion.wr_id & kSharedBit) != 0;
  const auto index = static_cast<std::uint32_t>(completion.wr_id);
  auto complain = [&](const std::string& text) {
    world_.violation("datagram",
                     "node " + std::to_string(node_.id) + (shared ? " over DC: " : ": ") + text);
  };
  if (index >= (shared ? kSharedReceives : kDatagramReceives) ||
      !(shared ? shared_posted_[index] : posted_[index]))
    return complain("a receive completed that was not posted, wr_id " +
                    std::to_string(completion.wr_id));
  (shared ? shared_posted_[index] : posted_[index]) = false;
  if (completion.status != Status::kSuccess) return;
  const std::uint32_t header = shared ? 0 : fabric::kGrhBytes;
  const std::byte* payload = receive_buffer(shared, index) + header;
  const std::uint32_t length = completion.byte_count - header;
  // The first word names the sender.
  std::uint64_t word = 0;
  std::memcpy(&word, payload, 8);
  const auto writer = static_cast<std::uint32_t>(word >> 24) & 1023;
  const std::uint32_t n = world_.options.nodes;
  const Versions found =
      read_stamps(payload, length, {writer, shared ? kDcRecord : kDatagramRecord, 0});
  const bool known_writer = writer < n * n && writer / n == writer % n;
  if (!known_writer || found.least != found.most || found.most == kNoVersion ||
      completion.byte_count < header + 8 || length % 8 != 0) {
    ++world_.outcome.corrupt_datagrams;
    if (shared || !world_.happened(Fault::corruption))
      complain("a payload of " + std::to_string(length) + " bytes is corrupt");
    return;
  }
  ClientState& sender = world_.client(writer / n, writer / n);
  if (found.least > sender.version)
    return complain("version " + std::to_string(found.least) + " of node " +
                    std::to_string(writer / n) + " was never sent");
  if (sender.received.size() <= found.least) sender.received.resize(found.least + 64);
  if (sender.received[found.least] && (shared || !world_.happened(Fault::duplicate)))
    complain("version " + std::to_string(found.least) + " of node " + std::to_string(writer / n) +
             " came twice");
  sender.received[found.least] = true;
}

}  // namespace pyrdma::fuzz
