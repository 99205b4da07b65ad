// PeerSessions keeps one session of an endpoint to endpoint 0 of each of some nodes, and makes it
// again when it is lost.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc::raft {

/// The endpoint's thread uses it.
class PeerSessions {
 public:
  /// Throws what Endpoint::create_session throws.
  PeerSessions(Endpoint& endpoint, std::span<const NodeId> peers) : endpoint_(endpoint) {
    for (const NodeId peer : peers) sessions_.push_back({peer, endpoint.create_session({peer, 0})});
  }

  /// Returns the session to `peer` if it is connected. A lost one is made again, and one to a new
  /// peer is made, for a later call. Without receives for it the call after next tries again.
  std::optional<SessionId> find(NodeId peer) {
    auto at = std::ranges::find(sessions_, peer, &PeerSession::peer);
    if (at == sessions_.end()) at = sessions_.insert(at, {peer, std::nullopt});
    if (at->session && endpoint_.is_connected(*at->session)) return at->session;
    if (at->session && endpoint_.is_lost(*at->session)) {
      endpoint_.env().reached("erpc/raft/session_made_again");
      endpoint_.destroy_session(*at->session);
      at->session.reset();
      ++made_again_;
    }
    if (!at->session) at->session = make(peer);
    return std::nullopt;
  }
  std::uint64_t made_again() const { return made_again_; }

 private:
  struct PeerSession {
    NodeId peer;
    std::optional<SessionId> session;
  };
  std::optional<SessionId> make(NodeId peer) {
    try {
      return endpoint_.create_session({peer, 0});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kExhausted) throw;
      return std::nullopt;
    }
  }

  Endpoint& endpoint_;
  std::vector<PeerSession> sessions_;
  std::uint64_t made_again_ = 0;
};

}  // namespace pyrdma::erpc::raft
