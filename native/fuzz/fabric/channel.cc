#include "fuzz/fabric/channel.h"

#include <cstring>

namespace pyrdma::fuzz {

using fabric::Completion;
using fabric::PostError;
using fabric::Status;

Channel::Channel(World& world, std::string name, std::uint32_t tag, std::uint32_t window,
                 std::byte* slots, std::uint32_t lkey)
    : world_(world),
      name_(std::move(name)),
      tag_(tag),
      slots_(slots),
      lkey_(lkey),
      pending_(window) {
  prepared_.reserve(window);
  requests_.reserve(window);
  sges_.reserve(window);
}

void Channel::use(fabric::QueuePair* qp) {
  qp_ = qp;
  broken_ = false;
}

void Channel::prepare(const Pending& pending, fabric::WorkRequest request, std::uint32_t length) {
  const std::uint64_t index = tail_ + prepared_.size();
  sges_.push_back({reinterpret_cast<std::uint64_t>(slot(index)), length, lkey_});
  request.sge_count = 1;
  request.wr_id = (tag_ << 48) | index;
  requests_.push_back(request);
  prepared_.push_back(pending);
}

bool Channel::post(FunctionRef<void(Pending&)> accepted) {
  if (prepared_.empty()) return true;
  for (std::size_t i = 0; i < requests_.size(); ++i) requests_[i].sges = &sges_[i];
  requests_.back().flags |= fabric::kSignaled;
  const Time invoked = world_.now();
  const fabric::PostResult result = qp_->post(requests_);
  for (std::uint32_t i = 0; i < result.accepted; ++i) {
    Pending& pending = prepared_[i];
    pending.invoked = invoked;
    pending.signaled = (requests_[i].flags & fabric::kSignaled) != 0;
    accepted(pending);
    if ((requests_[i].flags & fabric::kInline) != 0)
      std::memset(slot(tail_), 0xdd, sges_[i].length);  // the slot is free again
    pending_[tail_++ % pending_.size()] = pending;
  }
  const bool alive = result.error == PostError::kNone || result.error == PostError::kQueueFull;
  if (!alive)
    world_.violation("post", name_ + ": " + to_string(requests_[result.accepted].opcode) +
                                 " was refused (" + to_string(result.error) + ") in state " +
                                 to_string(qp_->state()));
  prepared_.clear();
  requests_.clear();
  sges_.clear();
  return alive;
}

void Channel::complete(const Completion& completion, Ended ended) {
  const std::uint64_t index = completion.wr_id & ((1ULL << 48) - 1);
  const bool success = completion.status == Status::kSuccess;
  if (index < head_ || index >= tail_)
    return world_.violation("completion", name_ + ": request " + std::to_string(index) +
                                              " completed (" + to_string(completion.status) +
                                              ") while " + std::to_string(head_) + " to " +
                                              std::to_string(tail_) + " are outstanding");
  if (completion.qp_num != qp_->qp_num())
    world_.violation("completion", name_ + ": completion of queue pair " +
                                       std::to_string(completion.qp_num) + ", not " +
                                       std::to_string(qp_->qp_num()));
  if (success && broken_)
    world_.violation("order", name_ + ": request " + std::to_string(index) +
                                  " succeeded after an earlier one had failed");
  // A completion also ends the earlier requests; an unsignaled request has no other report. After a
  // failure the outcome of earlier unsignaled requests is unknown.
  for (; head_ < index; ++head_) {
    const Pending& before = pending_[head_ % pending_.size()];
    if (before.signaled || broken_)
      world_.violation("order", name_ + ": request " + std::to_string(index) +
                                    " completed before " + std::to_string(head_) + " (" +
                                    to_string(before.op->kind) + ")");
    ended(before, success && !broken_, slot(head_));
  }
  const Pending& pending = pending_[head_ % pending_.size()];
  if (success && !pending.signaled)
    world_.violation("completion", name_ + ": unsignaled request " + std::to_string(index) +
                                       " completed with success");
  ++head_;
  broken_ |= !success;
  ended(pending, success, slot(index));
}

void Channel::abandon(Ended ended) {
  for (; head_ < tail_; ++head_) ended(pending_[head_ % pending_.size()], false, nullptr);
}

void Channel::expect_idle(const char* when) {
  if (idle()) return;
  world_.violation("completion", name_ + ": " + std::to_string(tail_ - head_) +
                                     " requests never completed " + when + ", the first a " +
                                     to_string(pending_[head_ % pending_.size()].op->kind) +
                                     " in state " + (qp_ ? to_string(qp_->state()) : "none"));
}

}  // namespace pyrdma::fuzz
