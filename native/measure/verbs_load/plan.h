// Who is connected to whom: a pure function of the load, so that the two ends agree without
// talking.
#pragma once
#include <vector>

#include "measure/verbs_load/parameters.h"

namespace pyrdma::measure::verbs_load {

inline constexpr std::uint32_t kNoThread = ~0U;

/// One end of a connection (RC, UC), or one destination of a thread's queue pair (UD, DC).
struct Link {
  NodeId peer = 0;
  std::uint32_t sender =
      kNoThread;             // the local thread that sends on it; kNoThread: the peer's does
  std::uint32_t qp = 0;      // UD, DC: which queue pair of the thread
  std::uint32_t client = 0;  // number of the client whose link it is
};

/// The links of node `self`. Connected transports: the links between two nodes come in the same
/// order at both. Without servers a connection carries both ends' requests.
std::vector<Link> plan_links(const Load& load, NodeId self);

}  // namespace pyrdma::measure::verbs_load
