#include "runtime/handshake.h"

#include <utility>

#include "base/error.h"

namespace pyrdma::runtime {

Handshake::Addresses Handshake::ours() const {
  Addresses addresses;
  addresses.reserve(qps_.size());
  for (const fabric::QueuePair* qp : qps_) addresses.push_back(qp->address());
  return addresses;
}

void Handshake::offer() const {
  if (peer_ != env_.node()) exchange_.tell(ours());
}

bool Handshake::find() {
  auto found = peer_ == env_.node() ? ours() : exchange_.find<fabric::QpAddress>();
  if (found) theirs_ = std::move(*found);
  return found.has_value();
}

void Handshake::await(Time deadline) {
  theirs_ = peer_ == env_.node() ? ours() : exchange_.await<fabric::QpAddress>(deadline);
}

void Handshake::connect() const {
  if (theirs_.size() != qps_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "node " + std::to_string(env_.node()) + " makes " + std::to_string(qps_.size()) +
                    " connections to node " + std::to_string(peer_) + ", but that node makes " +
                    std::to_string(theirs_.size()) + ": give both the same parameters");
  }
  for (std::size_t i = 0; i < qps_.size(); ++i) qps_[i]->connect(theirs_[i]);
}

std::string incarnation_pair(const Env& env, std::uint32_t ours, NodeId peer,
                             std::uint32_t theirs) {
  if (peer < env.node()) std::swap(ours, theirs);
  return std::to_string(ours) + '-' + std::to_string(theirs);
}

}  // namespace pyrdma::runtime
