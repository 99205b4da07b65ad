#include "systems/loco/barrier.h"

#include "base/error.h"

namespace pyrdma::loco {

void Barrier::throw_broken(Caller& me) const {
  std::string silent;
  for (const NodeId peer : me.silent_peers()) silent += ' ' + std::to_string(peer);
  throw Error(ErrorCode::kUnavailable,
              "barrier '" + name() + "': operations before it failed; no answer from node" + silent,
              false);
}

}  // namespace pyrdma::loco
