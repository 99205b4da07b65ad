#include "fabric/sim/receiver.h"

#include <cstring>
#include <utility>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
bool carries_data(const Message& message) { return message.header.opcode != Opcode::kWriteImm; }
}  // namespace

ReceiverState::ReceiverState(Nic& nic, SimCompletionQueue& completions, const QpOptions& options,
                             std::uint32_t domain, SimSharedReceiveQueue* shared)
    : own_(shared != nullptr ? nullptr
                             : std::make_unique<ReceiveQueue>(
                                   nic.contexts.posted_receives(), options.receive_entries,
                                   options.max_sges, options.receive_strides)),
      queue_(shared != nullptr ? &shared->queue : own_.get()),
      domain_(shared != nullptr ? shared->domain : domain),
      completions_(completions) {}

std::optional<std::uint64_t> ReceiverState::flush_one() {
  if (std::exchange(in_progress_.is_taken, false)) return in_progress_.entry.wr_id;
  if (const auto first = of_initiators_.begin(); first != of_initiators_.end()) {
    const std::uint64_t wr_id = first->second.entry.wr_id;
    of_initiators_.erase(first);
    return wr_id;
  }
  if (own_ == nullptr || own_->empty()) return std::nullopt;
  const std::uint64_t wr_id = own_->take(in_progress_.sges).wr_id;
  own_->end_receive();
  return wr_id;
}

Receiver::Delivery Receiver::deliver(Message& message, QueuePairCore& target) {
  nic_.weak_memory.drain(*message.initiator);
  ReceiverState& state = target.receiver;
  const bool is_whole = (message.chunk.first && message.chunk.last) || !carries_data(message);
  if (target.options.transport != Transport::kDc || is_whole)
    return deliver_to(state.in_progress_, message, target);
  const std::uint64_t initiator = message.initiator->serial;
  // What is still under way from an initiator that has left would take a receive for ever.
  const bool is_known = message.chunk.first || state.of_initiators_.contains(initiator);
  if (!is_known || message.initiator->destroyed) return Delivery::kGap;
  ReceiveInProgress& receive = state.of_initiators_[initiator];
  const Delivery result = deliver_to(receive, message, target);
  if (!receive.is_taken) state.of_initiators_.erase(initiator);
  return result;
}

Receiver::Delivery Receiver::deliver_to(ReceiveInProgress& receive, const Message& message,
                                        QueuePairCore& target) {
  if (!receive.is_taken) {
    if (!message.chunk.first && carries_data(message)) return Delivery::kGap;
    if (!take_receive(target, receive)) return Delivery::kNotReady;
  }
  const std::uint32_t header_bytes = target.options.transport == Transport::kUd ? kGrhBytes : 0;
  if (carries_data(message)) {
    std::uint64_t room = 0;
    for (const Sge& sge : receive.sges) room += sge.length;
    if (room < std::uint64_t{message.header.total} + header_bytes) {
      fail(target, receive, Status::kLocalLength);
      return Delivery::kTooLong;
    }
    if (!place(message, target, receive, header_bytes)) {
      fail(target, receive, Status::kLocalProtection);
      return Delivery::kBadBuffer;
    }
  }
  if (!message.chunk.last) return Delivery::kDone;
  return complete(message, target, receive, header_bytes);
}

// The flush comes at once, ahead of what is under way: the model has no message that ends a
// connection.
void Receiver::end(const QueuePairCore& initiator) {
  if (nic_.dead()) return;
  nic_.queue_pairs.for_each([&](QueuePairCore& target) {
    const auto found = target.receiver.of_initiators_.find(initiator.serial);
    if (found == target.receiver.of_initiators_.end()) return;
    fail(target, found->second, Status::kFlushed);
    target.receiver.of_initiators_.erase(found);
  });
}

bool Receiver::take_receive(QueuePairCore& target, ReceiveInProgress& receive) {
  if (target.receiver.queue_->empty()) return false;
  NicFaults* faults = nic_.faults();
  if (faults != nullptr && faults->stream.fire(Fault::rnr)) {
    faults->stream.reach(Fault::rnr);
    return false;
  }
  receive.take(*target.receiver.queue_);
  return true;
}

// Returns the region of a receive's buffer, or null when the NIC must not write there.
const Region* Receiver::writable(const Sge& sge, const QueuePairCore& target) const {
  const Region* region = nic_.regions.find(sge.lkey);
  const bool may = region != nullptr && region->domain == target.receiver.domain_ &&
                   (region->access & kLocalWrite) != 0 && region->covers(sge.addr, sge.length);
  return may ? region : nullptr;
}

// Copies the chunk to the receive's buffers, behind the space of the header. The NIC checks the
// header's space, too, but does not write the header.
bool Receiver::place(const Message& message, const QueuePairCore& target,
                     const ReceiveInProgress& receive, std::uint32_t header_bytes) const {
  const std::vector<Sge>& sges = receive.sges;
  std::uint32_t checked = 0;
  for (const Sge& sge : sges) {
    if (checked >= header_bytes) break;
    if (sge.length > 0 && writable(sge, target) == nullptr) return false;
    checked += sge.length;
  }
  return for_each_piece(
      sges.data(), static_cast<std::uint32_t>(sges.size()),
      std::uint64_t{message.chunk.offset} + header_bytes, message.chunk.length,
      [&](const Sge& sge, std::uint64_t addr, std::uint32_t bytes, std::uint32_t done) {
        const Region* region = writable(sge, target);
        if (region == nullptr) return false;
        if (message.chunk.has_payload) {
          nic_.placed(bytes, message.initiator->nic);
          std::memcpy(region->at(addr), message.payload() + done, bytes);
        }
        return true;
      });
}

Receiver::Delivery Receiver::complete(const Message& message, QueuePairCore& target,
                                      ReceiveInProgress& receive, std::uint32_t header_bytes) {
  const RequestHeader& header = message.header;
  receive.is_taken = false;
  Completion completion;
  completion.wr_id = receive.entry.wr_id;
  completion.opcode = carries_data(message) ? Opcode::kReceive : Opcode::kReceiveWriteImm;
  completion.qp_num = target.number;
  completion.byte_count = header.total + header_bytes;
  completion.stride = receive.entry.stride;
  if (header.opcode == Opcode::kSendImm || header.opcode == Opcode::kWriteImm) {
    completion.flags |= kHasImmediate;
    completion.immediate = header.immediate;
  }
  if (header_bytes != 0) {
    completion.flags |= kHasGrh;
    completion.source_qpn = header.source_number;
    completion.source_node = message.initiator->nic.node();
    if (message.ecn_marked && target.nic.fabric().network.shows_marks())
      completion.flags |= kCongested;
  }
  if (target.receiver.completions().push(completion, nullptr, 0, &message)) return Delivery::kDone;
  target.enter_error();
  return Delivery::kOverrun;
}

void Receiver::fail(QueuePairCore& target, ReceiveInProgress& receive, Status status) {
  receive.is_taken = false;
  Completion completion;
  completion.wr_id = receive.entry.wr_id;
  completion.status = status;
  completion.qp_num = target.number;
  target.receiver.completions().push(completion, nullptr, 0);
  target.receiver.queue_->end_receive();  // the completion is for the whole receive
  // A DC target serves other initiators, too, so the DC target stays usable.
  if (target.options.transport != Transport::kDc) target.enter_error();
}

}  // namespace pyrdma::fabric::sim
