#include "runtime/mesh.h"

#include "base/error.h"
#include "runtime/node_barrier.h"

namespace pyrdma::runtime {

std::vector<fabric::QpAddress> addresses_of(const std::vector<fabric::QueuePair*>& qps) {
  std::vector<fabric::QpAddress> addresses;
  addresses.reserve(qps.size());
  for (const fabric::QueuePair* qp : qps) addresses.push_back(qp->address());
  return addresses;
}

void connect_all(Env& env, NodeId peer, const std::vector<fabric::QueuePair*>& qps,
                 const std::vector<fabric::QpAddress>& addresses) {
  if (addresses.size() != qps.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "node " + std::to_string(env.node()) + " makes " + std::to_string(qps.size()) +
                    " connections to node " + std::to_string(peer) + ", but that node makes " +
                    std::to_string(addresses.size()) + ": give both the same parameters");
  }
  for (std::size_t i = 0; i < qps.size(); ++i) qps[i]->connect(addresses[i]);
}

void Mesh::connect(Time deadline) {
  for (const auto& [peer, qps] : ends_) {
    if (peer != env_.node()) Exchange(env_, name_, peer).tell(addresses_of(qps));
  }
  for (const auto& [peer, qps] : ends_) {
    connect_all(env_, peer, qps,
                peer == env_.node()
                    ? addresses_of(qps)
                    : Exchange(env_, name_, peer).await<fabric::QpAddress>(deadline));
  }
}

void Mesh::meet(Time timeout) const { node_barrier(env_, name_ + "/met", timeout); }

}  // namespace pyrdma::runtime
