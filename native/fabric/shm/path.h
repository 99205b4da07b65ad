// Path caches a requester's knowledge of a peer's queue pair: its rights, its rings, the regions
// used lately. The cache is valid while the peer's epoch stays the same.
#pragma once
#include "fabric/shm/node.h"
#include "fabric/shm/rings.h"

namespace pyrdma::fabric::shm {

enum class Reach : std::uint8_t {
  kReady,
  kSilent,  // no such queue pair in service: a NIC would not answer
  kGone,    // the node has left or was killed
};

class Path {
 public:
  /// `qpn` 0 means unused. `psn` is the peer's number at the connection.
  void aim(std::shared_ptr<Peer> peer, std::uint32_t qpn, std::uint32_t psn = 0) {
    peer_ = std::move(peer);
    node_ = peer_->node();
    qpn_ = qpn;
    psn_ = psn;
    bank_ = 0;
    epoch_ = 0;
  }
  bool aims_at(NodeId node, std::uint32_t qpn) const { return qpn_ == qpn && node_ == node; }
  NodeId node() const { return node_; }
  std::uint32_t incarnation() const { return peer_->incarnation(); }
  /// The peer's queue pair executes no request that began before the last order_all_threads().
  bool is_quiet(const SessionBlock& session) const;

  bool is_current() const {
    return epoch_ != 0 && header_->epoch.load(std::memory_order_acquire) == epoch_;
  }
  /// The same, for a path that has been reached since the last aim().
  bool is_unchanged() const { return header_->epoch.load(std::memory_order_acquire) == epoch_; }
  /// Costs one load when nothing has changed. `own` is the entry of the requester.
  Reach reach(Transport transport, NodeId self, const QpEntry& own) {
    if (is_current()) [[likely]]
      return Reach::kReady;
    return refresh(transport, self, own);
  }
  const Translation* region(std::uint32_t key) {
    const Translation* known = regions_.find(key);
    return known != nullptr ? known : find_region(key);
  }
  /// Returns the bytes that a request names, or null when the peer does not allow the request.
  std::byte* find(std::uint32_t key, std::uint64_t at, std::uint64_t bytes, std::uint32_t right) {
    const Translation* found = region(key);
    return found == nullptr ? nullptr : found->find(at, bytes, right);
  }
  const Translation* known_region(std::uint32_t key) const { return regions_.find(key); }
  /// Looks at the peer's table, whatever is known of the key.
  bool has_region(std::uint32_t key) const { return peer_->has_region(key); }
  /// See Peer::may_answer().
  bool may_answer() const { return peer_->may_answer(); }
  std::uint32_t qkey() const { return qkey_; }
  std::uint32_t qpn() const { return qpn_; }
  Time rnr_timer() const { return rnr_timer_; }
  /// The peer's queue pair shares its receives with others.
  bool has_shared_receives() const { return has_shared_receives_; }
  const ReceiveView& receives() const { return receives_; }
  const CompletionView& completions() const { return completions_; }
  /// Uses the next ring of the peer's completion queue from now on. Returns false when there is
  /// none.
  bool leave_bank();

  /// Does the responder's part of a failed request: its queue pair goes to the error state and
  /// flushes its receives.
  void fail_responder(std::uint32_t self, const SessionBlock& session);

 private:
  [[gnu::cold, gnu::noinline]] Reach refresh(Transport transport, NodeId self, const QpEntry& own);
  bool is_connected(Transport transport, NodeId self, const QpEntry& own,
                    const QpEntry& there) const;
  [[gnu::noinline]] const Translation* find_region(std::uint32_t key);

  std::shared_ptr<Peer> peer_;
  NodeId node_ = kNoNode;
  const ControlHeader* header_ = nullptr;
  std::uint64_t epoch_ = 0;
  std::uint32_t bank_ = 0;
  std::uint32_t qpn_ = 0, psn_ = 0, access_ = 0, pd_ = 0, receive_pd_ = 0, qkey_ = 0;
  Time rnr_timer_ = 0;
  bool has_shared_receives_ = false;
  ReceiveView receives_;
  CompletionView completions_;
  KeyCache regions_;
};

/// Takes a queue pair out of service: sets the state and changes the epoch. flush_receives()
/// follows. The caller is the owner, or a requester whose request the queue pair could not serve.
void enter_error(Control& control, QpEntry& entry);
/// Completes the receives of a queue pair in error as flushed. Returns false when a node that lives
/// holds one of the rings. `self` is the caller's holder_word().
bool flush_receives(std::uint32_t qp_num, const ReceiveView& receives,
                    const CompletionView& completions, std::uint32_t self,
                    const SessionBlock& session, Time patience);

}  // namespace pyrdma::fabric::shm
