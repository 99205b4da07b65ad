// PeerSessions keeps one session of an endpoint to endpoint 0 of each of some nodes, and makes it
// again when it is lost.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc::raft {

/// The endpoint's thread uses it. Throws what Endpoint::create_session throws.
class PeerSessions {
 public:
  PeerSessions(Endpoint& endpoint, std::span<const NodeId> peers) : endpoint_(endpoint) {
    for (const NodeId peer : peers) sessions_.push_back({peer, endpoint.create_session({peer, 0})});
  }

  /// Returns the session to `peer` if it is connected. A lost one is made again, for a later call.
  std::optional<SessionId> find(NodeId peer) {
    for (PeerSession& each : sessions_) {
      if (each.peer != peer) continue;
      if (endpoint_.is_connected(each.session)) return each.session;
      if (endpoint_.is_lost(each.session)) {
        endpoint_.env().reached("erpc/raft/session_made_again");
        endpoint_.destroy_session(each.session);
        each.session = endpoint_.create_session({peer, 0});
        ++made_again_;
      }
      return std::nullopt;
    }
    return std::nullopt;
  }
  std::uint64_t made_again() const { return made_again_; }

 private:
  struct PeerSession {
    NodeId peer;
    SessionId session;
  };
  Endpoint& endpoint_;
  std::vector<PeerSession> sessions_;
  std::uint64_t made_again_ = 0;
};

}  // namespace pyrdma::erpc::raft
