// The control path of LITE: connections at a cache miss (KRCore, section 2.3.2).
//
// Decentralised: the client resolves the server's port, announces the connection, and both ends are
// created at the same time. Then the ends learn each other's address and both configure themselves.
// So a client waits for one create and one configure, and the server's NIC bounds the rate.
// Datagrams may be lost: the client repeats its request until both answers have come, and equal
// requests have equal answers.
//
// Central, as in the original: the client has made its end, and asks the manager. The manager takes
// one request after another, lets the server make its end, and tells the client.
#include <algorithm>
#include <mutex>
#include <utility>

#include "fabric/sender.h"
#include "runtime/exchange.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/baselines/lite.h"

namespace pyrdma::krcore {

namespace {

constexpr Time kLiteAnswers = 30 * kSecond;    // many clients may be before this one
constexpr Time kLiteRetry = 2 * kMillisecond;  // at first
constexpr Time kLiteMostRetry = 128 * kMillisecond;
constexpr Time kLiteStop = 5 * kMillisecond;  // how late threads see that they must stop
constexpr Time kLiteSecondHalf = 10 * kSecond;

}  // namespace

Lite::Lite(Env& env, const LiteOptions& options)
    : env_(env), options_(options), connections_mutex_(env), control_mutex_(env), failure_(env) {
  options_.check(env.nodes());
  fabric::Device& device = env.device();
  if (!device.capabilities().ud || !device.capabilities().rc) {
    throw Error(ErrorCode::kUnavailable, "LITE: device '" + device.name() +
                                             "' lacks RC or UD queue pairs; use another device");
  }
  device.open();
  domain_ = device.create_protection_domain();
  receives_ = device.create_completion_queue(4 * LiteOptions::kDepth + 1);
  for (NodeId node = 0; node < env.nodes(); ++node)
    peers_.push_back(std::make_unique<Peer>(env, options_.connections_per_peer));
  port_ = std::make_unique<ControlPort>(env, *domain_);
  device.rendezvous().publish_value(key_of(env.node()), port_->address());
  threads_.push_back(failure_.spawn("lite-control", [this] { run_control(); }));
  for (std::uint32_t i = 0; i < options_.builders; ++i)
    threads_.push_back(
        failure_.spawn("lite-builder/" + std::to_string(i), [this] { run_builder(); }));
  if (options_.control == LiteControl::kCentral && options_.manager == env.node())
    threads_.push_back(failure_.spawn("lite-manager", [this] { run_manager(); }));
  try {
    for (NodeId node = 0; node < env.nodes(); ++node) {
      peers_[node]->port = device.rendezvous().await_value<fabric::QpAddress>(
          key_of(node), env.now() + runtime::kSetupTimeout);
    }
    // Nobody sends before.
    runtime::node_barrier(env, options_.name + "/lite-booted");
  } catch (...) {
    stops_.store(true, std::memory_order_release);
    threads_.clear();
    throw;
  }
}

Lite::~Lite() {
  stops_.store(true, std::memory_order_release);
  threads_.clear();
}

std::unique_ptr<LiteConnection> Lite::create(NodeId peer) {
  auto connection = std::make_unique<LiteConnection>(env_);
  connection->peer = peer;
  connection->completions = env_.device().create_completion_queue(options_.completions);
  fabric::QpOptions options;
  options.send_entries = options_.send_entries;
  options.receive_entries = LiteOptions::kDepth;
  options.max_sges = 1;
  options.max_outstanding_reads =
      std::min(options.max_outstanding_reads, env_.device().capabilities().max_outstanding_reads);
  connection->qp =
      env_.device().create_queue_pair(*domain_, *connection->completions, *receives_, options);
  return connection;
}

// Either end may use a connection. Those beyond the pool's places are only kept.
void Lite::put(std::unique_ptr<LiteConnection> connection) {
  LiteConnection* made = connection.get();
  const std::lock_guard<Mutex> lock(connections_mutex_);
  connections_.push_back(std::move(connection));
  Peer& peer = *peers_[made->peer];
  const std::uint32_t used = peer.used.load(std::memory_order_relaxed);
  if (used == peer.slots.size()) return;
  peer.slots[used].store(made, std::memory_order_release);
  peer.used.store(used + 1, std::memory_order_release);
}

bool Lite::connect(NodeId node) {
  env_.charge(Cost::kSystemCall);
  failure_.check();
  if (node >= peers_.size()) return false;
  Peer& peer = *peers_[node];
  if (peer.used.load(std::memory_order_acquire) == peer.slots.size()) return true;
  const std::lock_guard<Mutex> lock(peer.make_mutex);
  while (peer.used.load(std::memory_order_acquire) < peer.slots.size())
    if (!make(node)) return false;
  return true;
}

bool Lite::connect_anew(NodeId node) {
  env_.charge(Cost::kSystemCall);
  failure_.check();
  return node < peers_.size() && make(node);
}

Lite::Made::Made(Lite& owner, NodeId with) : lite(owner) {
  making.with = with;
  making.ticket = lite.next_ticket_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard<Mutex> lock(lite.control_mutex_);
  lite.makings_.push_back(&making);
}

Lite::Made::~Made() {
  const std::lock_guard<Mutex> lock(lite.control_mutex_);
  std::erase(lite.makings_, &making);
}

bool Lite::make(NodeId node) {
  const bool is_central = options_.control == LiteControl::kCentral;
  const NodeId with = is_central ? options_.manager : node;
  Made made(*this, with);
  fabric::QpAddress port;
  if (!resolve(with, port)) return false;
  ControlMessage request;
  request.kind = is_central ? ControlKind::kConnectMeta : ControlKind::kConnect;
  request.ticket = made.making.ticket;
  request.about = is_central ? node : env_.node();
  if (!is_central) send(with, port, request);  // without a queue pair, it announces one
  std::unique_ptr<LiteConnection> connection = create(node);
  request.queue_pair = connection->qp->address();
  if (!exchange(with, port, request, made.making, false)) return false;
  connection->qp->connect(made.making.theirs);
  if (!exchange(with, port, request, made.making, true)) return false;
  put(std::move(connection));
  return true;
}

// Nothing about the peer is cached at a miss. The look-up costs what the handshake by datagrams
// does, whose time the profile has.
bool Lite::resolve(NodeId node, fabric::QpAddress& port) {
  const auto bytes = env_.device().rendezvous().find(key_of(node));
  if (!bytes || bytes->size() != sizeof port) return false;
  std::memcpy(&port, bytes->data(), sizeof port);
  return true;
}

std::shared_ptr<fabric::AddressHandle> Lite::handle_of(NodeId node, const fabric::QpAddress& port) {
  auto& handle = peers_[node]->handle;
  if (handle == nullptr) {
    handle =
        std::shared_ptr<fabric::AddressHandle>(env_.device().create_address_handle(*domain_, port));
  }
  return handle;
}

void Lite::send(NodeId node, const fabric::QpAddress& port, ControlMessage message) {
  message.from = env_.node();
  message.to = node;
  message.incarnation = env_.incarnation();
  const std::lock_guard<Mutex> lock(control_mutex_);
  port_->send(handle_of(node, port), port, message);
}

// Sends the request until the answer has come. What the first answer has asked for is under way
// already, so the wait for the second one begins without a datagram.
bool Lite::exchange(NodeId with, const fabric::QpAddress& port, const ControlMessage& request,
                    const Making& making, bool wants_ready) {
  const auto has_come = [&] {
    const std::lock_guard<Mutex> lock(control_mutex_);
    return (wants_ready ? making.is_ready : making.has_address) || has_ended();
  };
  const Time end = env_.now() + kLiteAnswers;
  bool sends = !wants_ready;
  for (Time interval = kLiteRetry; env_.now() < end;
       interval = std::min(2 * interval, kLiteMostRetry)) {
    if (sends) send(with, port, request);
    sends = true;
    if (env_.poll_until(has_come, env_.now() + interval, &control_watch_)) return !has_ended();
    env_.reached("krcore/lite_asked_again");
  }
  return false;
}

void Lite::run_control() {
  while (!stops_.load(std::memory_order_acquire)) {
    std::optional<ControlMessage> message;
    env_.poll_until(
        [&] {
          const std::lock_guard<Mutex> lock(control_mutex_);
          message = port_->take();
          return message.has_value();
        },
        env_.now() + kLiteStop, &port_->completions().watch());
    if (message) attempt(env_, [&] { take(*message); });
  }
  env_.notify(control_watch_);
}

// A node makes connections for itself. The manager makes them for others.
bool Lite::may_offer(const ControlMessage& message) const {
  const bool has_queue_pair = message.queue_pair.node != fabric::kNoNode;
  if (message.kind == ControlKind::kConnectMeta)
    return options_.control == LiteControl::kCentral && options_.manager == env_.node() &&
           message.queue_pair.node == message.from;
  const bool is_managers =
      options_.control == LiteControl::kCentral && message.from == options_.manager;
  return message.kind == ControlKind::kConnect && (message.about == message.from || is_managers) &&
         (!has_queue_pair || message.queue_pair.node == message.about);
}

void Lite::take(const ControlMessage& message) {
  if (message.from >= peers_.size() || message.to != env_.node() || message.about >= peers_.size())
    return;
  // The control port knows that the datagram is of that node and of the queue pair that it names.
  if (!fabric::is_same_pair(peers_[message.from]->port, message.port)) return;
  const std::lock_guard<Mutex> lock(control_mutex_);
  if (message.kind == ControlKind::kAccept || message.kind == ControlKind::kRegistered) {
    for (Making* making : makings_) {
      if (making->ticket != message.ticket || making->with != message.from) continue;
      // Its thread reads the address without the lock once it is there. Later answers are equal.
      if (!std::exchange(making->has_address, true)) making->theirs = message.queue_pair;
      making->is_ready |= message.kind == ControlKind::kRegistered;
    }
    env_.notify(control_watch_);
    return;
  }
  if (!may_offer(message)) return;
  const bool is_central = message.kind == ControlKind::kConnectMeta;
  std::unique_ptr<Offer>& place = offers_[{message.from, message.ticket}];
  if (place == nullptr) {
    place = std::make_unique<Offer>();
    place->request = message;
    (is_central ? to_manage_ : to_build_).push_back(place.get());
  }
  Offer& offer = *place;
  if (!offer.has_queue_pair && message.queue_pair.node != fabric::kNoNode) {
    offer.has_queue_pair = true;
    offer.request.queue_pair = message.queue_pair;
  }
  if (offer.is_ready)
    answer(offer, ControlKind::kRegistered);
  else if (offer.has_address)
    answer(offer, ControlKind::kAccept);
  env_.notify(control_watch_);
}

// Needs control_mutex_.
void Lite::answer(const Offer& offer, ControlKind kind) {
  ControlMessage message;
  message.kind = kind;
  message.from = env_.node();
  message.to = offer.request.from;
  message.incarnation = env_.incarnation();
  message.ticket = offer.request.ticket;
  message.queue_pair = offer.ours;
  port_->send(handle_of(message.to, offer.request.port), offer.request.port, message);
}

// Waits for the next one; returns null at the end.
Lite::Offer* Lite::next_offer(std::deque<Offer*>& queue) {
  Offer* next = nullptr;
  while (next == nullptr && !stops_.load(std::memory_order_acquire)) {
    env_.poll_until(
        [&] {
          const std::lock_guard<Mutex> lock(control_mutex_);
          if (queue.empty()) return false;
          next = queue.front();
          queue.pop_front();
          return true;
        },
        env_.now() + kLiteStop, &control_watch_);
  }
  return next;
}

void Lite::run_builder() {
  while (Offer* offer = next_offer(to_build_)) attempt(env_, [&] { accept(*offer); });
}

void Lite::run_manager() {
  while (Offer* offer = next_offer(to_manage_)) attempt(env_, [&] { manage(*offer); });
}

// The passive end. An offer whose second half does not come is left.
void Lite::accept(Offer& offer) {
  std::unique_ptr<LiteConnection> connection = create(offer.request.about);
  const auto has_address = [&] {
    const std::lock_guard<Mutex> lock(control_mutex_);
    return offer.has_queue_pair || stops_.load(std::memory_order_acquire);
  };
  {
    const std::lock_guard<Mutex> lock(control_mutex_);
    offer.ours = connection->qp->address();
    offer.has_address = true;
    answer(offer, ControlKind::kAccept);
  }
  if (!env_.poll_until(has_address, env_.now() + kLiteSecondHalf, &control_watch_) ||
      stops_.load(std::memory_order_acquire))
    return;
  connection->qp->connect(offer.request.queue_pair);
  put(std::move(connection));
  const std::lock_guard<Mutex> lock(control_mutex_);
  offer.is_ready = true;
  answer(offer, ControlKind::kRegistered);
}

// The manager passes the client's address to the server, and the server's to the client.
void Lite::manage(Offer& offer) {
  env_.sleep_until(env_.now() + options_.manager_turn);
  fabric::QpAddress port;
  if (!resolve(offer.request.about, port)) return;
  ControlMessage request = offer.request;
  request.kind = ControlKind::kConnect;
  request.about = offer.request.from;
  Made made(*this, offer.request.about);
  request.ticket = made.making.ticket;
  if (!exchange(offer.request.about, port, request, made.making, false) ||
      !exchange(offer.request.about, port, request, made.making, true))
    return;
  const std::lock_guard<Mutex> lock(control_mutex_);
  offer.ours = made.making.theirs;
  offer.has_address = offer.is_ready = true;
  answer(offer, ControlKind::kRegistered);
}

}  // namespace pyrdma::krcore
