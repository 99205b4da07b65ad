// The plan says which threads are connected. It is a pure function of the load, so that both sides
// agree without communication.
#pragma once
#include <vector>

#include "measure/verbs_load/parameters.h"

namespace pyrdma::measure::verbs_load {

inline constexpr std::uint32_t kNoThread = ~0U;

/// Link is one side of a connection (RC, UC), or one destination of a thread's queue pair (UD, DC).
struct Link {
  NodeId peer = 0;
  std::uint32_t sender = kNoThread;  // local sending thread; kNoThread: the peer's thread sends
  std::uint32_t qp = 0;              // UD, DC: index of the thread's queue pair
  std::uint32_t client = 0;          // number of the client that owns the link
};

/// Returns the links of node `self`. Connected transports: the links between two nodes come in the
/// same order at both. Without servers a connection carries the requests of both sides.
std::vector<Link> plan_links(const Load& load, NodeId self);

}  // namespace pyrdma::measure::verbs_load
