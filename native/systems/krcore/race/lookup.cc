// Lookup (RACE, section 3.3): two combined buckets behind one doorbell, then all blocks whose
// fingerprint matches behind another one. The other operations begin as a lookup does, and go on
// here with what it has found.
#include <cstring>

#include "systems/krcore/race/operation.h"

namespace pyrdma::krcore::race {

void Operation::found() {
  switch (kind_) {
    case Kind::kLookup: {
      const BlockHead head = BlockHead::of(found_.block);
      value_ = {found_.block + sizeof head + head.key_bytes, head.value_bytes};
      return end(Outcome::kOk);
    }
    case Kind::kInsert:
      free_block();
      return end(Outcome::kExists);
    case Kind::kUpdate:
      return replace();
    case Kind::kRemove:
      return erase();
  }
}

void Operation::missing() {
  if (kind_ == Kind::kInsert) return place();
  free_block();
  end(Outcome::kMissing);
}

}  // namespace pyrdma::krcore::race
