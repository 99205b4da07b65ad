// A peer goes down: the connections of all callers to it enter the error state. The NIC itself then
// ends the requests in flight and later requests, so the fast path needs no test.
#include "base/assert.h"
#include "base/held_flag.h"
#include "runtime/runtime.h"

namespace pyrdma::runtime {

using fabric::Status;

namespace {

/// True if the peer does not answer or has closed its end.
bool means_down(Status status) {
  return status == Status::kRetryExceeded || status == Status::kFlushed;
}

}  // namespace

// Returns the status that the key of the request reports. A request that is flushed because the
// peer is down reports why the peer is down.
Status Runtime::note_failure(Connection& connection, Status status) {
  const NodeId peer = connection.peer;
  const Status first = connection.error.load(std::memory_order_relaxed);
  const auto keep = [&](Status why) {
    if (first != Status::kSuccess) return;
    connection.error.store(why, std::memory_order_relaxed);
    connection.losses.begin(connection.completed.load(std::memory_order_relaxed) + 1, why);
  };
  if (!means_down(status) || peer == self() || (first != Status::kSuccess && !means_down(first))) {
    keep(status);
    return status;
  }
  mark_down(peer, status);
  keep(why_down(peer));
  return connection.error.load(std::memory_order_relaxed);
}

void Runtime::mark_down(NodeId peer, Status why) {
  Status up = Status::kSuccess;
  if (!peers_[peer].down.compare_exchange_strong(up, why)) return;
  peers_[peer].closing.store(true, std::memory_order_release);
  closing_.store(true, std::memory_order_release);
  service_->peer_down(peer, why);
}

void Runtime::close_connections() {
  if (closing_busy_.exchange(true, std::memory_order_acquire)) return;
  const HeldFlag busy(&closing_busy_);
  closing_.store(false, std::memory_order_relaxed);
  for (NodeId node = 0; node < nodes(); ++node) {
    if (!peers_[node].closing.load(std::memory_order_acquire)) continue;
    for (Connection* connection : connections_to(node)) connection->qp->fail();
    peers_[node].closing.store(false, std::memory_order_release);
  }
}

void Runtime::declare_down(NodeId peer, Status why) {
  PYRDMA_ASSERT(peer < nodes() && peer != self() && why != Status::kSuccess);
  mark_down(peer, why);
  const auto closed = [&] {
    close_connections();
    return !peers_[peer].closing.load(std::memory_order_acquire);
  };
  if (!closed()) env_.poll_until(closed, kForever);
}

std::string Runtime::down_peers() const {
  std::vector<NodeId> down;
  for (NodeId node = 0; node < peers_.size(); ++node) {
    if (!is_up(node)) down.push_back(node);
  }
  return text_of(down);
}

}  // namespace pyrdma::runtime
