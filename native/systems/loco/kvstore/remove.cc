// Removal (paper, section 6): the reverse of an insertion. Under the key's lock, the valid bit is
// unset, which is where it linearises; then the key leaves all indices; then its slot, which the
// node that has it fills again with the next counter.
#include <cstring>

#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco {

bool KvOperation::remove_locked() {
  if (at_.node == store_->self()) {
    store_->set_valid(at_.slot, at_.counter, false);
    return announce();
  }
  const std::uint64_t state = state_word(at_.counter, false);
  std::memcpy(slot_.data(), &state, sizeof state);
  // Placed before anybody hears of it: the slot's node fills it again when it does.
  step_ = Step::kWriting;
  post_write(0, sizeof state, !store_->manager().options().bugs.fences_trust_completions());
  return false;
}

bool KvOperation::forget() {
  store_->index_.erase(key_);
  if (at_.node == store_->self()) store_->give_slot(at_.slot);
  return unlock(Outcome::kOk);
}

}  // namespace pyrdma::loco
