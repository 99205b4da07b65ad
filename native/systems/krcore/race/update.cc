// Update (RACE, section 3.3): a compare-and-swap puts the slot to the new block. The client that
// does it owns the old block.
#include "env/scope.h"
#include "systems/krcore/race/operation.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

void Operation::replace() {
  if (found_.slot.is_frozen()) return wait_for_split(false);
  may_have_changed_ = true;
  swap_slot(found_.at, found_.slot,
            Slot::entry(hash_.fingerprint(), units_, block_->offset, block_->version,
                        found_.slot.depth()),
            &Operation::replaced);
}

void Operation::replaced() {
  if (!has_swapped()) {
    may_have_changed_ = false;
    return again();
  }
  keep_block();
  const Slot old = found_.slot;
  c_.blocks.free(home_.node, {old.offset(), old.units(), old.version()});
  end(Outcome::kOk);
}

}  // namespace pyrdma::krcore::race
