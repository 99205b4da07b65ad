#include "systems/loco/barrier.h"

#include "base/error.h"

namespace pyrdma::loco {

void Barrier::throw_broken(Caller& me) const {
  const std::vector<NodeId> silent = me.silent_peers();
  throw Error(ErrorCode::kUnavailable,
              "barrier '" + name() + "': operations before it failed; " +
                  (silent.empty() ? "all nodes answer" : "no answer from node" + text_of(silent)),
              false)
      .blaming(silent);
}

}  // namespace pyrdma::loco
