#include "runtime/exchange.h"

#include "base/error.h"

namespace pyrdma::runtime {

void throw_piece(const std::string& key, std::size_t got, std::size_t wanted) {
  throw Error(ErrorCode::kInvalidArgument,
              "rendezvous key '" + key + "' holds " + std::to_string(got) + " bytes instead of " +
                  std::to_string(wanted) + ": start the same program on all nodes");
}

Exchange::Exchange(Env& env, const std::string& name, NodeId peer)
    : env_(env),
      peer_(peer),
      to_peer_(name + '/' + std::to_string(env.node()) + '-' + std::to_string(peer)),
      from_peer_(name + '/' + std::to_string(peer) + '-' + std::to_string(env.node())) {}

// Called while `error` is handled.
void Exchange::throw_of_peer(const Error& error) const {
  if (error.code() != ErrorCode::kTimeout) throw;
  throw Error(ErrorCode::kTimeout,
              "node " + std::to_string(env_.node()) + " waited for what node " +
                  std::to_string(peer_) + " publishes: " + error.what() + "; check that node " +
                  std::to_string(peer_) + " runs the same program under the same name")
      .blaming({peer_});
}

}  // namespace pyrdma::runtime
