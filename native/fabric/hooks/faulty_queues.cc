#include "fabric/hooks/faulty_queues.h"

#include <algorithm>

namespace pyrdma::fabric::hooks {
namespace {

bool names_remote_memory(Opcode opcode) {
  return opcode == Opcode::kWrite || opcode == Opcode::kWriteImm || opcode == Opcode::kRead ||
         opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}

}  // namespace

// ---- completion queue ----

FaultyCompletionQueue::FaultyCompletionQueue(HookState& hooks,
                                             std::unique_ptr<CompletionQueue> inner)
    : hooks_(hooks), inner_(std::move(inner)) {}

std::size_t FaultyCompletionQueue::poll(std::span<Completion> out) {
  if (!hooks_.late.empty()) [[unlikely]]
    hooks_.late.send_due(hooks_.gate.env());
  const std::size_t count = inner_->poll(out);
  if (count != 0 && counts_.load(std::memory_order_acquire)) count_all(out.first(count));
  return count;
}

void FaultyCompletionQueue::count_all(std::span<const Completion> polled) {
  const std::lock_guard lock(mutex_);
  for (const Completion& completion : polled) {
    const bool of_send =
        completion.status == Status::kSuccess && completion.opcode < Opcode::kReceive;
    if (!of_send) continue;
    if (const auto found = counted_.find(completion.qp_num); found != counted_.end())
      found->second->completed.fetch_add(1, std::memory_order_acq_rel);
  }
}

void FaultyCompletionQueue::count(std::uint32_t qp_num, std::shared_ptr<SendCount> into) {
  const std::lock_guard lock(mutex_);
  counted_[qp_num] = std::move(into);
  counts_.store(true, std::memory_order_release);
}

void FaultyCompletionQueue::forget(std::uint32_t qp_num) {
  const std::lock_guard lock(mutex_);
  counted_.erase(qp_num);
  counts_.store(!counted_.empty(), std::memory_order_release);
}

// ---- queue pair ----

FaultyQueuePair::FaultyQueuePair(HookState& hooks, std::unique_ptr<QueuePair> inner,
                                 ProtectionDomain& domain, FaultyCompletionQueue& send_queue,
                                 const QpOptions& options)
    : hooks_(hooks),
      inner_(std::move(inner)),
      send_queue_(send_queue),
      has_handles_(hooks.copies_datagrams() &&
                   (options.transport == Transport::kUd || options.transport == Transport::kDc)) {
  const bool copies = hooks.copies_datagrams() && options.transport == Transport::kUd;
  if (copies || hooks.gate.on(Fault::queue_full)) {
    count_ = std::make_shared<SendCount>();
    send_queue_.count(inner_->qp_num(), count_);
  }
  if (copies) datagrams_ = std::make_unique<Datagrams>(hooks, domain, *inner_, options, *count_);
}

FaultyQueuePair::~FaultyQueuePair() {
  if (datagrams_ != nullptr) datagrams_->close();
  const std::uint32_t number = inner_->qp_num();
  inner_.reset();  // before the memory of the copies, which it may still read
  if (count_ != nullptr) send_queue_.forget(number);
}

void FaultyQueuePair::modify(QpState next, const QpAddress* peer) {
  inner_->modify(next, peer);
  if (count_ != nullptr)  // requests without a successful completion never get one
    count_->completed.store(count_->signaled.load(std::memory_order_acquire),
                            std::memory_order_release);
}

bool FaultyQueuePair::has_pending() const {
  return inner_->state() == QpState::kReadyToSend &&
         count_->completed.load(std::memory_order_acquire) <
             count_->signaled.load(std::memory_order_acquire);
}

PostResult FaultyQueuePair::post(std::span<const WorkRequest> requests) {
  if (requests.empty()) return inner_->post(requests);
  FaultGate& gate = hooks_.gate;
  if (gate.on(Fault::qp_error) && inner_->state() == QpState::kReadyToSend &&
      gate.fire(Fault::qp_error)) {
    modify(QpState::kError, nullptr);
    gate.reach(Fault::qp_error);
  }
  // A caller that waits for room waits for a completion, so one must be on its way.
  if (!gate.on(Fault::queue_full) || !has_pending() || !gate.fire(Fault::queue_full))
    return carry(requests);
  const std::size_t fitting = gate.below(Fault::queue_full, requests.size());
  PostResult result;
  if (fitting != 0) result = carry(requests.first(fitting));
  if (result.error != PostError::kNone) return result;
  result.error = PostError::kQueueFull;
  gate.reach(Fault::queue_full);
  return result;
}

PostResult FaultyQueuePair::carry(std::span<const WorkRequest> requests) {
  malformed_.clear();
  if (hooks_.gate.on(Fault::malformed)) requests = malform_some(requests);
  PostResult result;
  if (datagrams_ != nullptr) {
    result = datagrams_->post(requests);
  } else if (has_handles_) {
    if (requests.data() != requests_.data()) requests_.assign(requests.begin(), requests.end());
    for (WorkRequest& request : requests_) request.address_handle = unwrap(request.address_handle);
    result = post_counted(requests_);
  } else {
    result = post_counted(requests);
  }
  for (const std::size_t at : malformed_)
    if (at < result.accepted) hooks_.gate.reach(Fault::malformed);
  return result;
}

PostResult FaultyQueuePair::post_counted(std::span<const WorkRequest> requests) {
  const PostResult result = inner_->post(requests);
  if (count_ == nullptr) return result;
  std::uint64_t signaled = 0;
  for (const WorkRequest& request : requests.first(result.accepted))
    signaled += (request.flags & kSignaled) != 0;
  count_->signaled.fetch_add(signaled, std::memory_order_acq_rel);
  return result;
}

std::span<const WorkRequest> FaultyQueuePair::malform_some(std::span<const WorkRequest> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (hooks_.gate.fire(Fault::malformed)) malformed_.push_back(i);
  if (malformed_.empty()) return requests;
  requests_.assign(requests.begin(), requests.end());
  std::size_t room = 0;
  for (const std::size_t at : malformed_) room += requests[at].sge_count;
  sges_.clear();
  sges_.reserve(room);
  std::erase_if(malformed_, [this](std::size_t at) { return !malform(requests_[at]); });
  return requests_;
}

// Makes one field wrong that NICs check. Returns false when the request has no such field, as an
// inline send.
bool FaultyQueuePair::malform(WorkRequest& request) {
  std::uint32_t piece = request.sge_count;  // a buffer that the NIC checks
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; request.sges != nullptr && i < request.sge_count; ++i) {
    bytes += request.sges[i].length;
    if (request.sges[i].length != 0 && (request.flags & kInline) == 0) piece = i;
  }
  const bool local = piece < request.sge_count;
  const bool remote = names_remote_memory(request.opcode) && bytes != 0;
  if (!local && !remote) return false;
  const std::uint64_t which = remote ? hooks_.gate.below(Fault::malformed, local ? 4 : 2)
                                     : 2 + hooks_.gate.below(Fault::malformed, 2);
  if (which == 0) {
    request.rkey ^= 1U << hooks_.gate.below(Fault::malformed, 32);
    return true;
  }
  if (which == 1) {  // far outside, or around the end of the address space
    request.remote_addr = hooks_.gate.below(Fault::malformed, 2) == 0
                              ? request.remote_addr + (std::uint64_t{1} << 48)
                              : ~std::uint64_t{0} - 7;
    return true;
  }
  const std::size_t begin = sges_.size();
  sges_.insert(sges_.end(), request.sges, request.sges + request.sge_count);
  request.sges = sges_.data() + begin;
  Sge& sge = sges_[begin + piece];
  if (which == 2)
    sge.lkey ^= 1U << hooks_.gate.below(Fault::malformed, 32);
  else
    sge.length = ~0U;
  return true;
}

}  // namespace pyrdma::fabric::hooks
