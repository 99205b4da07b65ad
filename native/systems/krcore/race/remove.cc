// Removal (RACE, section 3.3): a compare-and-swap empties the slot. The client that does it owns
// the block, and clears its head, so that a reader with an old slot soon notices.
#include <algorithm>

#include "env/scope.h"
#include "systems/krcore/race/operation.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

void Operation::erase() {
  if (found_.slot.is_frozen()) return wait_for_split(false);
  may_have_changed_ = true;
  swap_slot(found_.at, found_.slot, Slot::empty(found_.slot.depth()), &Operation::erased);
}

void Operation::erased() {
  if (!has_swapped()) {
    may_have_changed_ = false;
    return again();
  }
  const Slot old = found_.slot;
  // Nobody waits for this. The read places it, so that it cannot follow the next use of the block
  // on a NIC that places writes in any order.
  c_.links.write(home_.node, old.offset(), c_.zeros, sizeof(BlockHead));
  c_.links.read(home_.node, found_.at, c_.unread, 8);
  c_.links.ring_unawaited(home_.node);
  c_.blocks.free(home_.node, {old.offset(), old.units(), old.version()});
  end(Outcome::kOk);
}

}  // namespace pyrdma::krcore::race
