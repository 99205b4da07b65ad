// The data path: translates requests into the device's, in one call per batch.
#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "fabric/post_rules.h"
#include "fabric/verbs/ib/queue_pair.h"
#include "fabric/verbs/ib/shared_receive_queue.h"
#include "fabric/verbs/ib/translate.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr std::size_t kBatch = 64;  // requests per call of the library

/// Returns whether the handle is of another domain. Soft-RoCE checks it when it sends; other
/// devices never do.
bool has_foreign_handle(const WorkRequest& request, const QpOptions& options, const ibv_pd* pd) {
  return options.transport == Transport::kUd &&
         static_cast<const VerbsAddressHandle*>(request.address_handle)->handle()->pd != pd;
}

}  // namespace

inline void VerbsQueuePair::fill(const WorkRequest& request, ibv_send_wr* to) {
  to->sg_list = pieces(request.sges);
  to->num_sge = static_cast<int>(request.sge_count);
  to->opcode = opcode_to(request.opcode);
  to->send_flags = send_flags_to(request.flags);
  to->imm_data = htobe32(request.immediate);
  switch (request.opcode) {
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      to->wr.atomic.remote_addr = request.remote_addr;
      to->wr.atomic.rkey = request.rkey;
      to->wr.atomic.compare_add = request.compare_add;
      to->wr.atomic.swap = request.swap;
      break;
    case Opcode::kSend:
    case Opcode::kSendImm:
      if (options_.transport == Transport::kUd) {
        to->wr.ud.ah = static_cast<const VerbsAddressHandle*>(request.address_handle)->handle();
        to->wr.ud.remote_qpn = request.remote_qpn;
        to->wr.ud.remote_qkey = request.remote_qkey;
      }
      break;
    default:
      to->wr.rdma.remote_addr = request.remote_addr;
      to->wr.rdma.rkey = request.rkey;
  }
}

// Soft-RoCE adds lengths up in 32 bits and would carry the length modulo 4 GiB. It fills the first
// 8 bytes of an atomic's pieces, whatever they are. It reports success for a datagram that is too
// long.
bool VerbsQueuePair::has_wrong_length(const WorkRequest& request) const {
  if (longest_ == 0) return false;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  return bytes > longest_ || (is_one_of(request.opcode, kAtomics) && bytes != 8);
}

PostResult VerbsQueuePair::post(std::span<const WorkRequest> requests) {
  const QpState now = state_.load(std::memory_order_relaxed);
  if (now < QpState::kReadyToSend) [[unlikely]]
    return {0, PostError::kInvalidState};
  std::array<ibv_send_wr, kBatch> batch;
  std::uint32_t accepted = 0;
  PostError error = PostError::kNone;
  while (accepted < requests.size() && error == PostError::kNone) {
    const std::uint32_t used = sent_ - record_.sends_done.load(std::memory_order_acquire);
    const std::size_t room = options_.send_entries - std::min(used, options_.send_entries);
    const std::size_t wanted = std::min({kBatch, room, requests.size() - accepted});
    std::size_t count = 0;
    if (wanted == 0) error = PostError::kQueueFull;
    for (; count < wanted; ++count) {
      const WorkRequest& request = requests[accepted + count];
      if (!is_postable(request, options_, allowed_) || has_wrong_length(request) ||
          has_foreign_handle(request, options_, qp_->pd)) [[unlikely]] {
        error = PostError::kInvalid;
        break;
      }
      const std::uint32_t position = sent_ + static_cast<std::uint32_t>(count);
      record_.sends[position & record_.send_mask] = {request.wr_id, request.opcode};
      ibv_send_wr& wr = batch[count];
      wr.wr_id = Ticket{false, false, record_.generation.load(std::memory_order_relaxed),
                        record_.slot, position}
                     .packed();
      wr.next = &wr + 1;
      fill(request, &wr);
    }
    if (count == 0) break;
    batch[count - 1].next = nullptr;
    ibv_send_wr* bad = nullptr;
    const int failure = ibv_post_send(qp_, batch.data(), &bad);
    if (failure != 0) [[unlikely]] {
      count = bad != nullptr ? static_cast<std::size_t>(bad - batch.data()) : 0;
      error = failure == ENOMEM ? PostError::kQueueFull : PostError::kInvalid;
    }
    sent_ += static_cast<std::uint32_t>(count);
    accepted += static_cast<std::uint32_t>(count);
  }
  return {accepted, error};
}

PostResult VerbsQueuePair::post_receive(std::span<const ReceiveRequest> requests) {
  if (shared_completions_ != nullptr) return {0, PostError::kInvalid};
  if (state_.load(std::memory_order_relaxed) == QpState::kReset)
    return {0, PostError::kInvalidState};
  std::array<ibv_recv_wr, kBatch> batch;
  std::uint32_t accepted = 0;
  PostError error = PostError::kNone;
  while (accepted < requests.size() && error == PostError::kNone) {
    const std::uint32_t used = received_ - record_.receives_done.load(std::memory_order_acquire);
    const std::size_t room = options_.receive_entries - std::min(used, options_.receive_entries);
    const std::size_t wanted = std::min({kBatch, room, requests.size() - accepted});
    std::size_t count = 0;
    if (wanted == 0) error = PostError::kQueueFull;
    for (; count < wanted; ++count) {
      const ReceiveRequest& request = requests[accepted + count];
      if (!has_pieces_up_to(options_.max_sges, request)) {
        error = PostError::kInvalid;
        break;
      }
      const std::uint32_t position = received_ + static_cast<std::uint32_t>(count);
      record_.receives[position & record_.receive_mask] = request.wr_id;
      ibv_recv_wr& wr = batch[count];
      wr.wr_id = Ticket{true, false, record_.generation.load(std::memory_order_relaxed),
                        record_.slot, position}
                     .packed();
      wr.next = &wr + 1;
      wr.sg_list = pieces(request.sges);
      wr.num_sge = static_cast<int>(request.sge_count);
    }
    if (count == 0) break;
    batch[count - 1].next = nullptr;
    ibv_recv_wr* bad = nullptr;
    const int failure = ibv_post_recv(qp_, batch.data(), &bad);
    if (failure != 0) [[unlikely]] {
      count = bad != nullptr ? static_cast<std::size_t>(bad - batch.data()) : 0;
      error = failure == ENOMEM ? PostError::kQueueFull : PostError::kInvalid;
    }
    received_ += static_cast<std::uint32_t>(count);
    accepted += static_cast<std::uint32_t>(count);
  }
  return {accepted, error};
}

// ---- shared receive queues ----

PostResult VerbsSharedReceiveQueue::post_receive(std::span<const ReceiveRequest> requests) {
  const std::lock_guard lock(record_.mutex);
  std::uint32_t accepted = 0;
  for (const ReceiveRequest& request : requests) {
    if (!has_pieces_up_to(max_sges_, request)) return {accepted, PostError::kInvalid};
    if (record_.free.empty()) return {accepted, PostError::kQueueFull};
    const std::uint32_t position = record_.free.back();
    record_.receives[position] = request.wr_id;
    ibv_recv_wr wr{};
    wr.wr_id = Ticket{true, true, record_.generation.load(std::memory_order_relaxed), record_.slot,
                      position}
                   .packed();
    wr.sg_list = pieces(request.sges);
    wr.num_sge = static_cast<int>(request.sge_count);
    ibv_recv_wr* bad = nullptr;
    const int failure = ibv_post_srq_recv(srq_, &wr, &bad);
    if (failure != 0)
      return {accepted, failure == ENOMEM ? PostError::kQueueFull : PostError::kInvalid};
    record_.free.pop_back();
    ++accepted;
  }
  return {accepted, PostError::kNone};
}

}  // namespace pyrdma::fabric::verbs
