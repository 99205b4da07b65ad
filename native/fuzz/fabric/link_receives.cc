// Completions and receives of a link.
#include <algorithm>

#include "fuzz/fabric/link.h"

namespace pyrdma::fuzz {

using fabric::Completion;
using fabric::Opcode;
using fabric::Status;

namespace {

constexpr std::uint64_t kReliableBit = 1ULL << 32;
constexpr int kTries = 100;

}  // namespace

void Link::post_receive(bool reliable, std::uint32_t index) {
  fabric::QueuePair& qp = reliable ? *reliable_ : *unreliable_;
  const fabric::Sge into{reinterpret_cast<std::uint64_t>(receive_buffer(reliable, index)),
                         kReceiveBytes, node_.local->lkey()};
  const std::uint64_t wr_id = Channel::kReceiveTag | (reliable ? kReliableBit : 0) | index;
  for (int tries = 0; tries < kTries; ++tries)
    if (qp.receive(into, wr_id)) return;
  world_.violation("post", std::string("the queue pair refused a receive ") +
                               std::to_string(kTries) + " times in state " + to_string(qp.state()));
}

bool Link::take_completions() {
  if (queue_->overrun()) {
    broken_ = true;
    return true;
  }
  const std::size_t count = queue_->poll(completions_);
  for (std::size_t i = 0; i < count; ++i) take(completions_[i]);
  return count > 0;
}

void Link::take(const Completion& completion) {
  if ((completion.wr_id & Channel::kReceiveTag) != 0) return received(completion);
  Channel& channel =
      unreliable_channel_.owns(completion.wr_id) ? unreliable_channel_ : reliable_channel_;
  if (!channel.owns(completion.wr_id))
    return world_.violation("completion", "a completion has wr_id " +
                                              std::to_string(completion.wr_id) + ", which node " +
                                              std::to_string(node_.id) + " never gave out");
  channel.complete(completion, [this](const Pending& pending, bool known, const std::byte* slot) {
    ended(pending, known, slot);
  });
  if (completion.status != Status::kSuccess) {
    broken_ = true;
    if (node_.tracing()) node_.trace("fails", channel.name() + ", " + to_string(completion.status));
  }
}

void Link::received(const Completion& completion) {
  const bool reliable = (completion.wr_id & kReliableBit) != 0;
  const auto index = static_cast<std::uint32_t>(completion.wr_id);
  if (index >= (reliable ? kReliableReceives : kUnreliableReceives))
    return world_.violation("completion", "a receive completed with wr_id " +
                                              std::to_string(completion.wr_id) +
                                              ", which was never posted");
  if (completion.status != Status::kSuccess) {
    broken_ = true;
    return;
  }
  const std::byte* buffer = receive_buffer(reliable, index);
  if (reliable)
    judge_reliable(completion, buffer);
  else
    judge_unreliable(completion, buffer);
  post_receive(reliable, index);
}

// Checks that this is the peer's next send on this connection, and whole, and that all earlier
// writes of the peer are visible.
void Link::judge_reliable(const Completion& completion, const std::byte* buffer) {
  Stream& stream = peer_state_.reliable[generation_ % 2];
  const auto complain = [&](const std::string& text) {
    world_.violation("send", "node " + std::to_string(node_.id) + " from " + std::to_string(peer_) +
                                 ": " + text);
  };
  if (stream.generation != generation_ || stream.delivered >= stream.sent.size())
    return complain("the message was never sent, or was received before");
  const Sent& sent = stream.sent[stream.delivered++];
  const bool write = sent.kind == Kind::kWriteImm;
  const bool immediate = write || sent.kind == Kind::kSendImm;
  const bool has_immediate = (completion.flags & fabric::kHasImmediate) != 0;
  if (completion.opcode != (write ? Opcode::kReceiveWriteImm : Opcode::kReceive) ||
      completion.byte_count != sent.length || has_immediate != immediate ||
      (immediate && completion.immediate != sent.version))
    return complain("expected " + std::string(to_string(sent.kind)) + " of " +
                    std::to_string(sent.length) + " bytes, version " +
                    std::to_string(sent.version) + "; got " + to_string(completion.opcode) +
                    " of " + std::to_string(completion.byte_count) + ", immediate " +
                    (has_immediate ? std::to_string(completion.immediate) : std::string("none")));
  if (!write) {
    const Versions found =
        read_stamps(buffer, sent.length, {peer_state_.id, kSendRecord, node_.incarnation});
    if (found.least != sent.version || found.most != sent.version)
      return complain("the payload of version " + std::to_string(sent.version) +
                      " holds versions " + std::to_string(found.least) + " to " +
                      std::to_string(found.most));
  }
  if (sent.record_version == 0 || world_.any_order) return;
  const Versions there =
      read_stamps(node_.shared->data() + world_.layout.record(peer_, sent.record),
                  kRecordBytes[sent.record], {peer_state_.id, sent.record, node_.incarnation});
  const RecordState& record = world_.record(node_.id, peer_, sent.record);
  if (there.most == kNoVersion || there.least < sent.record_version || there.most > record.posted)
    complain("version " + std::to_string(sent.record_version) + " of record " +
             std::to_string(sent.record) + " was written before version " +
             std::to_string(sent.version) + " was sent; the reader sees versions " +
             std::to_string(there.least) + " to " + std::to_string(there.most));
}

// Checks that this is a message that the peer has sent, whole, in order and once.
void Link::judge_unreliable(const Completion& completion, const std::byte* buffer) {
  Stream& stream = peer_state_.unreliable[generation_ % 2];
  const auto complain = [&](const std::string& text) {
    world_.violation("send", "node " + std::to_string(node_.id) + " from " + std::to_string(peer_) +
                                 ", unreliable: " + text);
  };
  const Versions found = read_stamps(buffer, completion.byte_count,
                                     {peer_state_.id, kUcSendRecord, node_.incarnation});
  if (stream.generation != generation_ || found.least != found.most)
    return complain("a message of " + std::to_string(completion.byte_count) +
                    " bytes holds versions " + std::to_string(found.least) + " to " +
                    std::to_string(found.most));
  auto& at = stream.delivered;
  while (at < stream.sent.size() && stream.sent[at].version < found.least) ++at;
  if (at == stream.sent.size() || stream.sent[at].version != found.least)
    return complain("version " + std::to_string(found.least) +
                    " came twice, out of order, or was never sent");
  if (stream.sent[at].length != completion.byte_count)
    complain("version " + std::to_string(found.least) + " has " +
             std::to_string(completion.byte_count) + " bytes of " +
             std::to_string(stream.sent[at].length));
  ++at;
}

}  // namespace pyrdma::fuzz
