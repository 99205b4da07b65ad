// Removal (paper, section 6) reverses an insertion. Under the lock of the key, the operation unsets
// the valid bit, which is the linearization point. It then removes the key from all indices. The
// node that has the slot then frees it, and fills it again with the next counter.
#include <cstring>

#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

bool KvOperation::remove_locked() {
  const Scope step(me_->env(), scope::remove_locked);
  check_indices();
  if (at_.node == store_->self()) {
    store_->set_valid(at_.slot, at_.counter, false);
    return announce();
  }
  const std::uint64_t state = state_word(at_.counter, false);
  std::memcpy(slot_.block.data(), &state, sizeof state);
  // The write is placed before other nodes get the message: the slot's node may then fill the slot
  // again.
  begin_write();
  post_write(0, sizeof state, store_->manager().bugs().places_removal());
  return false;
}

bool KvOperation::forget() {
  const Scope step(me_->env(), scope::forget);
  store_->index_.erase(key_);
  if (at_.node == store_->self()) store_->give_slot(at_.slot);
  if (settles_) [[unlikely]]
    return end_settled();
  step_ = Step::kUnlocking;  // an error of the release must not free the slot again
  outcome_ = Outcome::kOk;
  return unlock(outcome_);
}

}  // namespace pyrdma::loco
