// The wrong steps of the deliberate bugs.
#include "systems/loco/bugs.h"

#include <cstring>
#include <vector>

#include "runtime/runtime.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

namespace {

// Adds nothing on other nodes than the word's host.
std::optional<std::uint64_t> add_to(std::uint64_t* word, std::uint64_t addend) {
  if (word == nullptr) return std::nullopt;
  return __atomic_fetch_add(word, addend, __ATOMIC_ACQ_REL);
}

}  // namespace

// The fence waits for completions alone.
fabric::Status Bugs::await_thread(Caller& me) {
  fabric::Status status = fabric::Status::kSuccess;
  for (NodeId peer = 0; peer < me.runtime().nodes(); ++peer) {
    const fabric::Status found = me.await_pair(peer);
    if (status == fabric::Status::kSuccess) status = found;
  }
  return status;
}

fabric::Status Bugs::await_global(Caller& me) {
  fabric::Status status = fabric::Status::kSuccess;
  for (std::uint32_t i = 0; i < me.runtime().options().callers; ++i) {
    const fabric::Status found = await_thread(me.runtime().caller(i));
    if (status == fabric::Status::kSuccess) status = found;
  }
  return status;
}

std::optional<std::uint64_t> Bugs::add_by_cpu(const AtomicVars& words, std::uint64_t i,
                                              std::uint64_t addend) {
  return add_to(words.local(i), addend);
}

bool Bugs::take_by_cpu(AcquireOp& op) {
  const auto ticket = add_to(op.locks_->words_.local(op.at_.host, op.at_.next_ticket), 1);
  if (!ticket) return false;
  op.ticket_ = TicketLocks::ticket_of(*ticket);
  op.ask_serving();
  return true;
}

void Bugs::post_value(KvOperation& op) {
  const KvStore& store = *op.store_;
  const std::uint64_t sum = store.sum_of(op.slot_.block.data() + kSlotFrame, op.at_.counter);
  std::memcpy(op.slot_.block.data() + kSlotHead, &sum, sizeof sum);
  op.post_write(kSlotHead, static_cast<std::uint32_t>(store.slot_bytes_) - kSlotHead, false);
}

// The operation waits for the write later, without its lock.
void Bugs::write_and_release(KvOperation& op) {
  post_value(op);
  op.release();
}

// The NIC writes the value once more. The completion is taken for the placement.
void Bugs::write_again(KvOperation& op) {
  KvStore& store = *op.store_;
  const std::vector<std::byte> nothing(store.slot_bytes_);
  store.write_slot(op.at_.slot, op.at_.counter, false, nothing.data());
  post_value(op);
  op.slot_.key.wait();
}

void Bugs::acknowledge(RingBuffer& ring, Caller& me) { ring.acknowledge(me); }

}  // namespace pyrdma::loco
