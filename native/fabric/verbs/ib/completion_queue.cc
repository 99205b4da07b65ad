#include "fabric/verbs/ib/completion_queue.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

#include "fabric/verbs/ib/translate.h"

namespace pyrdma::fabric::verbs {

VerbsCompletionQueue::VerbsCompletionQueue(VerbsDevice& device, std::uint32_t entries)
    : device_(device),
      entries_(entries),
      cq_(Library::get().create_cq(device.context(), static_cast<int>(entries), this, nullptr, 0)) {
  if (cq_ == nullptr)
    throw_failed("create a completion queue of " + std::to_string(entries) + " entries", errno);
}

VerbsCompletionQueue::~VerbsCompletionQueue() { Library::get().destroy_cq(cq_); }

bool VerbsCompletionQueue::overrun() const {
  device_.take_events();  // the device reports an overrun by an event
  return overrun_.load(std::memory_order_acquire);
}

std::size_t VerbsCompletionQueue::poll(std::span<Completion> out) {
  std::size_t count = 0;
  if (has_taken_in_.load(std::memory_order_acquire)) [[unlikely]]
    count = take_over(out);
  return count + poll_device(out.subspan(count));
}

std::size_t VerbsCompletionQueue::take_over(std::span<Completion> out) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(out.size(), taken_in_.size());
  const auto end = taken_in_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(taken_in_.begin(), end, out.begin());
  taken_in_.erase(taken_in_.begin(), end);
  has_taken_in_.store(!taken_in_.empty(), std::memory_order_release);
  return count;
}

void VerbsCompletionQueue::take_in(std::uint32_t gone) {
  const std::lock_guard lock(mutex_);
  // A thread that polls now comes after this one.
  has_taken_in_.store(true, std::memory_order_release);
  const auto is_left = [gone](const Completion& c) { return c.qp_num == gone; };
  std::erase_if(taken_in_, is_left);
  std::array<Completion, 64> chunk;
  for (std::size_t got = chunk.size(); got == chunk.size();) {
    got = poll_device(chunk);
    std::remove_copy_if(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(got),
                        std::back_inserter(taken_in_), is_left);
  }
  has_taken_in_.store(!taken_in_.empty(), std::memory_order_release);
}

std::size_t VerbsCompletionQueue::poll_device(std::span<Completion> out) {
  constexpr std::size_t kChunk = 32;
  std::array<ibv_wc, kChunk> found;
  std::size_t count = 0;
  if (overrun_.load(std::memory_order_acquire)) [[unlikely]]
    return 0;
  while (count < out.size()) {
    const std::size_t wanted = std::min(kChunk, out.size() - count);
    const int got = ibv_poll_cq(cq_, static_cast<int>(wanted), found.data());
    if (got < 0) [[unlikely]]
      mark_overrun();
    if (got <= 0) break;
    for (int i = 0; i < got; ++i)
      count += translate(found[static_cast<std::size_t>(i)], &out[count]);
    if (static_cast<std::size_t>(got) < wanted) break;
  }
  return count;
}

// Returns false for a leftover of a queue that was destroyed or reset.
bool VerbsCompletionQueue::translate(const ibv_wc& from, Completion* to) {
  const Ticket ticket = Ticket::of(from.wr_id);
  Record* record = device_.records().find(ticket.slot);
  if (record == nullptr || !record->is_current(ticket)) [[unlikely]]
    return false;
  Completion completion;
  completion.qp_num = from.qp_num;
  completion.status = status_of(from.status, ticket.receive, device_.is_soft_roce());
  // Soft-RoCE reports the same status for a port that is down, where NICs report a missing answer.
  if (from.status == IBV_WC_LOC_QP_OP_ERR && device_.is_soft_roce() && !device_.is_port_up())
      [[unlikely]]
    completion.status = Status::kRetryExceeded;
  completion.vendor_error = from.vendor_err;
  if (!ticket.receive) {
    const Record::Sent& sent = record->sends[ticket.position & record->send_mask];
    completion.wr_id = sent.wr_id;
    completion.opcode = sent.opcode;
    record->finish_send(ticket.position);
  } else {
    completion.wr_id = record->receives[ticket.position & record->receive_mask];
    if (ticket.shared) {
      const std::lock_guard lock(record->mutex);
      record->free.push_back(ticket.position);
    } else {
      record->receives_done.fetch_add(1, std::memory_order_release);
    }
    completion.opcode =
        from.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? Opcode::kReceiveWriteImm : Opcode::kReceive;
    if (from.status == IBV_WC_SUCCESS) {
      completion.byte_count = from.byte_len;
      if ((from.wc_flags & IBV_WC_WITH_IMM) != 0) {
        completion.flags |= kHasImmediate;
        completion.immediate = be32toh(from.imm_data);
      }
      if (record->datagram) {
        // The buffer has the space of the header even where an InfiniBand datagram came without
        // one.
        completion.flags |= kHasGrh;
        completion.source_qpn = from.src_qp;
      }
    }
  }
  *to = completion;
  return true;
}

}  // namespace pyrdma::fabric::verbs
