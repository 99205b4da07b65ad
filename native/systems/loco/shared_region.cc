#include "systems/loco/shared_region.h"

#include "base/error.h"

namespace pyrdma::loco {

void SharedRegion::throw_outside(NodeId node, std::uint64_t offset, std::uint64_t size) const {
  require_participant("target", node);
  throw Error(ErrorCode::kInvalidArgument,
              std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                  " do not fit into region '" + name() + "' of " + std::to_string(bytes()) +
                  " bytes; make it larger, or use it once its participants have connected");
}

}  // namespace pyrdma::loco
