#include "runtime/mesh.h"

#include "base/error.h"
#include "runtime/caller.h"
#include "runtime/node_barrier.h"

namespace pyrdma::runtime {

void Mesh::connect(Time deadline) {
  for (const auto& [peer, handshake] : handshakes_) handshake.offer();
  for (auto& [peer, handshake] : handshakes_) {
    try {
      handshake.await(deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      throw_missing(error);
    }
    handshake.connect();
  }
}

void Mesh::throw_missing(const Error& error) {
  std::vector<NodeId> missing;
  for (auto& [peer, handshake] : handshakes_) {
    if (!handshake.find()) missing.push_back(peer);
  }
  throw Error(ErrorCode::kTimeout,
              std::string(error.what()) + "; not there are the nodes" + text_of(missing))
      .blaming(missing);
}

void Mesh::meet(Time timeout) const { node_barrier(env_, name_ + "/met", timeout); }

}  // namespace pyrdma::runtime
