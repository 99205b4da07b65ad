#include "runtime/mesh.h"

#include "runtime/node_barrier.h"

namespace pyrdma::runtime {

void Mesh::connect(Time deadline) {
  for (const auto& [peer, handshake] : handshakes_) handshake.offer();
  for (auto& [peer, handshake] : handshakes_) {
    handshake.await(deadline);
    handshake.connect();
  }
}

void Mesh::meet(Time timeout) const { node_barrier(env_, name_ + "/met", timeout); }

}  // namespace pyrdma::runtime
