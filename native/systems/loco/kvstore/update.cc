// Update (paper, section 6). Under the lock of the key, the operation writes the new value and its
// checksum into the slot, and keeps counter and valid bit. The write is placed before the lock is
// released (section 5.3), and before the operation ends, because lookups take no lock.
#include <cstring>

#include "base/remote_word.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

bool KvOperation::update_locked() {
  const Scope step(me_->env(), scope::update_locked);
  const auto bytes = static_cast<std::uint32_t>(store_->slot_bytes_) - kSlotHead;
  std::byte* from = slot_.block.data();
  const std::uint64_t sum = store_->sum_of(from + kSlotFrame, at_.counter);
  if (at_.node == store_->self()) {
    // The NIC sees writes of the CPU at once.
    store_->manager().env().charge_copy(bytes, &store_->footprint_);
    std::byte* to = store_->slot(at_.slot);
    copy_to_shared(to + kSlotFrame, from + kSlotFrame, bytes - 8);
    store_release(reinterpret_cast<std::uint64_t*>(to + kSlotHead), sum);
    return unlock(Outcome::kOk);
  }
  std::memcpy(from + kSlotHead, &sum, sizeof sum);
  begin_write();
  store_->manager().bugs().write_update(*this, [&] { write_update(bytes); });
  return false;
}

[[gnu::always_inline]] inline void KvOperation::write_update(std::uint32_t bytes) {
  const bool placed = store_->manager().bugs().places_update(store_->options_.fence);
  const TicketLockOptions& lock = store_->options_.lock;
  if (placed && lock.one_doorbell && lock.unawaited_release &&
      store_->locks_.host_of(lock_.index()) == at_.node) {
    // Lock and value are at one node. Its queue pair keeps the order of the two writes, so the
    // release need not wait. A pair fence would wait for all requests of this caller in flight to
    // that node.
    const fabric::Sge sge = slot_.block.sge(bytes, kSlotHead);
    Requests write;
    write.push_back(write_request(sge, kSlotHead));
    fabric::WorkRequest flush;
    flush.opcode = fabric::Opcode::kRead;
    slot_.key = store_->locks_.release(*me_, lock_.index(), Fence::kBefore, write);
    holds_lock_ = false;
    slot_.key.unite(me_->post(at_.node, {&flush, 1}));
    posted_ = true;
    return;
  }
  post_write(kSlotHead, bytes, placed);
}

}  // namespace pyrdma::loco
