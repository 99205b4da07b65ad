#include "runtime/ack_key.h"

#include "base/assert.h"
#include "runtime/caller.h"
#include "runtime/runtime.h"

namespace pyrdma::runtime {

const AckBits* AckKey::failed() const {
  for (const AckBits* b = bits_; b != nullptr; b = b->next) {
    if (b->status.load(std::memory_order_acquire) != fabric::Status::kSuccess) return b;
  }
  return nullptr;
}

fabric::Status AckKey::status() const {
  const AckBits* bits = failed();
  return bits == nullptr ? fabric::Status::kSuccess : bits->status.load(std::memory_order_relaxed);
}

NodeId AckKey::failed_peer() const {
  const AckBits* bits = failed();
  return bits == nullptr ? fabric::kNoNode : bits->failed_peer;
}

fabric::Status AckKey::wait() {
  if (bits_ != nullptr && !query()) bits_->caller.runtime().turn(bits_->caller);
  if (bits_ != nullptr && !query()) {
    bits_->caller.wait_until([this] { return query(); }, "completion of its operations");
  }
  return status();
}

void AckKey::unite(AckKey&& other) {
  if (other.bits_ == nullptr) return;
  PYRDMA_ASSERT(bits_ == nullptr || &bits_->caller == &other.bits_->caller);
  AckBits* last = other.bits_;
  while (last->next != nullptr) last = last->next;
  last->next = bits_;
  bits_ = std::exchange(other.bits_, nullptr);
}

void AckKey::outlive(MemRef&& block) { bits_->caller.keep(std::move(block), std::move(*this)); }

void AckKey::release() {
  AckPool& pool = bits_->caller.ack_pool();
  while (bits_ != nullptr) {
    AckBits* next = bits_->next;
    pool.give_back(bits_);
    bits_ = next;
  }
}

void AckPool::give_back(AckBits* bits) {
  const bool ended = bits->ended();
  if (ended) bits->buffer = MemRef();
  AckBits*& list = ended ? free_ : abandoned_;
  bits->next = list;
  list = bits;
}

bool AckPool::reclaim() {
  AckBits* left = std::exchange(abandoned_, nullptr);
  while (left != nullptr) {
    AckBits* next = left->next;
    give_back(left);
    left = next;
  }
  return free_ != nullptr;
}

}  // namespace pyrdma::runtime
