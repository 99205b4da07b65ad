// Lookup (paper, section 6): the local index gives the location, then one read fetches the slot. It
// takes no lock.
#include <cstring>

#include "base/remote_word.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

bool KvOperation::find() {
  const Scope step(me_->env(), scope::find);
  const std::optional<Location> found = store_->index_.find(key_);
  if (!found) return end(Outcome::kMissing);
  at_ = *found;
  if (at_.node != store_->self()) {
    const auto bytes = static_cast<std::uint32_t>(store_->slot_bytes_);
    slot_.key = me_->read(at_.node, store_->values_.at(at_.node), at_.slot * store_->slot_bytes_,
                          slot_.block.sge(bytes));
    step_ = Step::kReading;
    return false;
  }
  // The checksum makes a plain copy safe: the checksum of a torn copy does not match.
  store_->manager().env().charge_copy(store_->slot_bytes_, &store_->footprint_);
  copy_from_shared(slot_.block.data(), store_->slot(at_.slot), store_->slot_bytes_);
  return judge(slot_.block.data());
}

// The checks follow appendix C.1: checksum, then counter, then valid bit. If the checksum does not
// match, an update is in progress: start again. If the counter differs, the key was removed after
// the index was read, and its slot was filled again. If the valid bit is unset, an insertion is not
// yet complete, or a removal is.
bool KvOperation::judge(const std::byte* slot) {
  const Scope step(me_->env(), scope::judge);
  std::uint64_t state = 0, sum = 0;
  std::memcpy(&state, slot, sizeof state);
  std::memcpy(&sum, slot + kSlotHead, sizeof sum);
  const auto counter = static_cast<std::uint32_t>(state >> 1);
  if (sum != store_->sum_of(slot + kSlotFrame, counter)) {
    me_->env().reached("store/torn slot");
    if (overdue()) [[unlikely]]
      throw_torn();
    // The next answer of the network, or the writer on this node, wakes a waiter.
    if (at_.node != store_->self()) return find();
    step_ = Step::kRetrying;
    return false;
  }
  if (counter != at_.counter) me_->env().reached("store/stale index");
  if (counter != at_.counter || (state & 1) == 0) return end(Outcome::kMissing);
  return end(Outcome::kOk);
}

}  // namespace pyrdma::loco
