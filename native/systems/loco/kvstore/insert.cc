// Insertion (paper, section 6). Under the lock of the key, the operation writes the value into a
// free slot of this node, with the valid bit unset. It then writes the location into all indices.
// It then sets the valid bit, which is the linearization point.
#include "base/remote_word.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

bool KvOperation::insert_locked() {
  const Scope step(me_->env(), scope::insert_locked);
  check_indices();
  std::uint32_t number = 0;
  if (!store_->take_slot(number)) {
    me_->env().reached("store/full");
    return unlock(Outcome::kFull);
  }
  const std::uint64_t state =
      load_acquire(reinterpret_cast<const std::uint64_t*>(store_->slot(number)));
  std::uint32_t counter = static_cast<std::uint32_t>((state >> 1) + 1) & kCounterMask;
  if (counter == 0) counter = 1;
  if (counter != store_->options_.first_counter) me_->env().reached("store/slot used again");
  at_ = {store_->self(), number, counter};
  store_->manager().env().charge_copy(store_->slot_bytes_, &store_->footprint_);
  store_->write_slot(number, counter, false, slot_.block.data() + kSlotFrame);
  store_->index_.set(key_, at_);
  return announce();
}

bool KvOperation::publish() {
  const Scope step(me_->env(), scope::publish);
  return store_->manager().bugs().publish(*this, [&] {
    store_->set_valid(at_.slot, at_.counter, true);
    return unlock(Outcome::kOk);
  });
}

}  // namespace pyrdma::loco
