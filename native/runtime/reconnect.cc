// A peer reconnects, in the same incarnation or in the next one after a restart.
//
// A node counts its incarnations under the runtime's name. The name of a set of connections holds
// the incarnations of both nodes and an attempt number. Each end offers new queue pairs under that
// name. When an end finds the peer's queue pairs, it takes its own into use and publishes that.
// When the peer has published it too, the end counts the peer as up. An end starts the next attempt
// when its attempt fails, or when it sees the peer at the next attempt.
#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/held_flag.h"
#include "runtime/handshake.h"
#include "runtime/runtime.h"

namespace pyrdma::runtime {

using fabric::Status;

namespace {

constexpr Time kLook = kMillisecond;  // between two look-ups for the peer

}  // namespace

std::string Runtime::incarnation_key(NodeId node, std::uint32_t incarnation) const {
  return options_.name + "/incarnation/" + std::to_string(node) + '/' + std::to_string(incarnation);
}

// Format: "<incarnation of the lower node>-<incarnation of the higher node>/<attempt>".
std::string Runtime::exchange_name(NodeId peer) const {
  const Peer& there = peers_[peer];
  return options_.name + "/connect/" +
         incarnation_pair(env_, incarnation_, peer, there.incarnation) + '/' +
         std::to_string(there.attempt);
}

void Runtime::begin_incarnation() {
  // A node may have been restarted before the run began; its first incarnation in the run starts
  // now.
  while (env_.device().rendezvous().find(incarnation_key(self(), incarnation_))) {
    if (env_.incarnation() == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "node " + std::to_string(self()) + " has made a runtime named '" + options_.name +
                      "' before in this run; give each a name of its own, the same on all nodes");
    }
    ++incarnation_;
  }
  env_.device().rendezvous().publish_value(incarnation_key(self(), incarnation_), std::uint8_t{1});
}

void Runtime::rejoin() {
  for (NodeId peer = 0; peer < nodes(); ++peer) {
    for (Connection* connection : connections_to(peer)) {
      if (peer == self()) {
        connection->qp->connect(connection->qp->address());
        continue;
      }
      connection->qp->fail();
      connection->error.store(Status::kFlushed, std::memory_order_relaxed);
      connection->losses.begin(1, Status::kFlushed);
    }
    if (peer != self()) peers_[peer].down.store(Status::kFlushed, std::memory_order_release);
  }
}

void Runtime::look_for_next_incarnation(NodeId peer) {
  Peer& there = peers_[peer];
  while (env_.device().rendezvous().find(incarnation_key(peer, there.incarnation + 1))) {
    ++there.incarnation;
    there.attempt = 0;
    there.offered.clear();
  }
}

Handshake Runtime::offer(NodeId peer) {
  Peer& there = peers_[peer];
  const bool fresh = there.offered.empty();
  if (fresh) {
    for (const Connection* connection : connections_to(peer))
      there.offered.push_back(make_queue_pair(connection->caller == nullptr));
  }
  Handshake handshake(env_, exchange_name(peer), peer);
  for (const auto& qp : there.offered) handshake.add(*qp);
  if (fresh) handshake.offer();
  return handshake;
}

bool Runtime::has_ended(NodeId peer) {
  const std::vector<Connection*> connections = connections_to(peer);
  return std::all_of(connections.begin(), connections.end(), [](const Connection* connection) {
    return connection->caller == nullptr ||
           connection->completed.load(std::memory_order_acquire) == connection->posted;
  });
}

// The old queue pairs stay in the error state until none of their requests is in flight, because a
// destroyed queue pair takes its completions with it. No thread posts or polls while they change.
bool Runtime::take_into_use(NodeId peer, const Handshake& handshake) {
  Peer& there = peers_[peer];
  if (there.closing.load(std::memory_order_acquire)) return false;
  std::vector<std::unique_lock<Mutex>> posting;
  for (const auto& caller : callers_) {
    if (caller->shared_) posting.emplace_back(caller->posting_);
  }
  if (!has_ended(peer)) return false;
  if (!alone_) {
    env_.poll_until([this] { return !polling_.exchange(true, std::memory_order_acquire); },
                    kForever);
  }
  const HeldFlag polling(alone_ ? nullptr : &polling_);
  try {
    handshake.connect();
  } catch (const Error&) {  // the peer sees that this node begins the next attempt
    there.offered.clear();
    ++there.attempt;
    throw;
  }
  const std::vector<Connection*> connections = connections_to(peer);
  for (std::size_t i = 0; i < connections.size(); ++i) {
    Connection& connection = *connections[i];
    std::swap(connection.qp, there.offered[i]);
    connection.fence_next = false;
    connection.losses.end(connection.posted, connection.last_change());
    connection.last_flush = connection.posted;  // there is nothing to place
    connection.error.store(Status::kSuccess, std::memory_order_relaxed);
  }
  std::vector<Connection*> all;
  for (NodeId node = 0; node < nodes(); ++node) {
    for (Connection* connection : connections_to(node)) all.push_back(connection);
  }
  table_.assign(all);
  there.offered.clear();  // the old queue pairs and their completions, before the next poll
  return true;
}

void Runtime::give_up_attempt(NodeId peer) {
  Peer& there = peers_[peer];
  there.met = false;
  ++there.attempt;
  there.closing.store(true, std::memory_order_release);
  closing_.store(true, std::memory_order_release);
  close_connections();
}

bool Runtime::try_reconnect(NodeId peer) {
  if (is_up(peer)) return true;
  Peer& there = peers_[peer];
  if (!there.met) {
    look_for_next_incarnation(peer);
    Handshake handshake = offer(peer);
    if (!handshake.find() || !take_into_use(peer, handshake)) return false;
    if (messages_[peer]) service_->connected(*messages_[peer]);
    Exchange(env_, exchange_name(peer) + "/ready", peer).tell(std::vector<std::uint8_t>{1});
    there.met = true;
  }
  const std::vector<Connection*> connections = connections_to(peer);
  const bool failed = std::any_of(connections.begin(), connections.end(), [](const Connection* c) {
    return c->error.load(std::memory_order_relaxed) != Status::kSuccess;
  });
  if (!failed && Exchange(env_, exchange_name(peer) + "/ready", peer).find<std::uint8_t>()) {
    there.met = false;
    ++there.attempt;
    there.down.store(Status::kSuccess, std::memory_order_release);
    return true;
  }
  const bool died =
      env_.device().rendezvous().find(incarnation_key(peer, there.incarnation + 1)).has_value();
  ++there.attempt;
  const bool ahead = Handshake(env_, exchange_name(peer), peer).find();
  --there.attempt;
  if (failed || died || ahead) give_up_attempt(peer);
  return false;
}

bool Runtime::reconnect(NodeId peer, Time deadline) {
  while (!try_reconnect(peer)) {
    const Time now = env_.now();
    if (now >= deadline) return false;
    env_.poll_until(
        [this] {
          turn();
          return false;
        },
        std::min(deadline, now + kLook));
  }
  return true;
}

}  // namespace pyrdma::runtime
