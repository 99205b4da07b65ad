#include "systems/krcore/control/peers.h"

#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "fabric/sender.h"
#include "runtime/exchange.h"

namespace pyrdma::krcore {

Peers::Peers(Env& env, fabric::ProtectionDomain& domain, const Options& options)
    : env_(env),
      domain_(domain),
      name_(options.name),
      bugs_(options.bugs),
      mutex_(env),
      peers_(env.nodes()) {}

std::string Peers::key_of(NodeId node, std::uint32_t life) const {
  return name_ + "/service/" + std::to_string(node) + "/" + std::to_string(life);
}

// Each incarnation of a node has a name of its own. A later one tells of the earlier ones that
// ended before they had a port, so who looks for the newest sees no gap.
void Peers::publish(const fabric::QpAddress& port) {
  fabric::Rendezvous& rendezvous = env_.device().rendezvous();
  for (std::uint32_t earlier = env_.incarnation(); earlier-- > 0;) {
    if (rendezvous.find(key_of(env_.node(), earlier))) break;
    rendezvous.publish_value(key_of(env_.node(), earlier), fabric::QpAddress{});
  }
  rendezvous.publish_value(key_of(env_.node(), env_.incarnation()), port);
  know(env_.node(), env_.incarnation(), port);
}

void Peers::await_all() {
  for (NodeId node = 0; node < peers_.size(); ++node) {
    if (node == env_.node()) continue;
    const auto port = env_.device().rendezvous().await_value<fabric::QpAddress>(
        key_of(node, 0), env_.now() + runtime::kSetupTimeout);
    know(node, 0, port);
    while (find_next(node)) {
    }
  }
}

void Peers::know(NodeId node, std::uint32_t life, const fabric::QpAddress& port) {
  std::shared_ptr<fabric::AddressHandle> handle;
  if (port.node != fabric::kNoNode) handle = env_.device().create_address_handle(domain_, port);
  const std::lock_guard<Mutex> lock(mutex_);
  Peer& peer = peers_[node];
  if (peer.is_known && peer.life > life) return;
  if (peer.handle != nullptr) old_handles_.push_back(std::move(peer.handle));
  peer = {std::move(handle), port, life, true};
}

bool Peers::find_next(NodeId node) {
  const Peer known = of(node);
  return find(node, known.is_known ? known.life + 1 : 0);
}

void Peers::learn(NodeId node, std::uint32_t life) {
  if (life_of(node) < life) find(node, life);
}

bool Peers::find(NodeId node, std::uint32_t life) {
  const auto bytes = env_.device().rendezvous().find(key_of(node, life));
  fabric::QpAddress port;
  if (!bytes || bytes->size() != sizeof port) return false;
  std::memcpy(&port, bytes->data(), sizeof port);
  know(node, life, port);
  return true;
}

// Each life publishes its port before it sends. So a genuine datagram of a new life finds it, and a
// forged one costs a look-up.
bool Peers::is_genuine(const ControlMessage& message) {
  const Peer known = of(message.from);
  const bool is_new = !known.is_known || known.life < message.incarnation;
  if (is_new && bugs_.has(Bug::kStrangersBelieved))
    know(message.from, message.incarnation, message.port);
  else if (is_new && !find(message.from, message.incarnation))
    return false;
  const Peer peer = is_new ? of(message.from) : known;
  return peer.life == message.incarnation &&
         (fabric::is_same_pair(peer.port, message.port) || bugs_.has(Bug::kStrangersBelieved));
}

Peers::Peer Peers::of(NodeId node) {
  const std::lock_guard<Mutex> lock(mutex_);
  return peers_[node];
}

std::uint32_t Peers::life_of(NodeId node) {
  const std::lock_guard<Mutex> lock(mutex_);
  return peers_[node].life;
}

const fabric::AddressHandle* Peers::handle_of(NodeId node) {
  const std::lock_guard<Mutex> lock(mutex_);
  return node < peers_.size() ? peers_[node].handle.get() : nullptr;
}

const fabric::AddressHandle* Peers::handle_of_sender(NodeId node) {
  const fabric::AddressHandle* handle = handle_of(node);
  while (handle == nullptr && node < peers_.size() && find_next(node)) handle = handle_of(node);
  return handle;
}

}  // namespace pyrdma::krcore
