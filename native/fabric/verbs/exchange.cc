#include "fabric/verbs/exchange.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr std::size_t kMaxBlobBytes = std::size_t{256} << 20;  // bytes of all blobs together
// Any host that reaches the port may connect. Without the token a connection costs little, and not
// for long.
constexpr std::size_t kMaxUnauthenticated = 64;

std::string random_token() {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw Error(ErrorCode::kUnavailable, "verbs: the kernel returned no random bytes (getrandom)");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Bytes failure(ErrorCode code, const std::string& text) {
  return Writer(MessageKind::kError).put(static_cast<std::uint8_t>(code)).put_text(text).bytes();
}

}  // namespace

ExchangeServer::ExchangeServer(const SessionOptions& options)
    : options_(options), token_(random_token()) {
  if (options.nodes < 1 || options.nodes > kMaxNodes) {
    throw Error(ErrorCode::kInvalidArgument, "verbs: nodes is " + std::to_string(options.nodes) +
                                                 "; it must be 1 to " + std::to_string(kMaxNodes));
  }
  states_.resize(options.nodes, State::kFree);
  incarnations_.resize(options.nodes, 0);
  events_.resize(options.nodes, nullptr);
  listener_ = listen_on(options.address, &name_);
  clock_ = Clock::calibrate();
  stop_event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_event_ < 0)
    throw Error(ErrorCode::kExhausted,
                "verbs: cannot create an event descriptor; raise the limit of open files");
  acceptor_ = std::thread([this] { accept_all(); });
}

ExchangeServer::~ExchangeServer() {
  closing_.store(true);
  request_stop();
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) ::shutdown(connection.descriptor, SHUT_RDWR);
  }
  for (Connection& connection : connections_) connection.thread.join();
  ::close(stop_event_);
}

std::vector<NodeId> ExchangeServer::dead_nodes() const {
  const std::lock_guard lock(mutex_);
  std::vector<NodeId> dead;
  for (NodeId node = 0; node < states_.size(); ++node) {
    if (states_[node] == State::kDead) dead.push_back(node);
  }
  return dead;
}

bool ExchangeServer::all_attached() const {
  const std::lock_guard lock(mutex_);
  return std::none_of(states_.begin(), states_.end(),
                      [](State state) { return state == State::kFree; });
}

std::uint32_t ExchangeServer::incarnation(NodeId node) const {
  const std::lock_guard lock(mutex_);
  return incarnations_.at(node);
}

void ExchangeServer::declare_dead(NodeId node) {
  const std::lock_guard lock(mutex_);
  if (states_.at(node) != State::kAttached) return;
  states_[node] = State::kDead;
  events_[node] = nullptr;
}

void ExchangeServer::request_stop() {
  const std::uint64_t one = 1;
  if (::write(stop_event_, &one, sizeof one) < 0 && errno != EAGAIN) std::abort();
}

void ExchangeServer::tell_stop() {
  const std::lock_guard lock(mutex_);
  for (Link* link : events_) {
    if (link != nullptr) link->send(Writer(MessageKind::kStop).bytes());
  }
}

void ExchangeServer::accept_all() {
  pollfd queries[2] = {{listener_.descriptor(), POLLIN, 0}, {stop_event_, POLLIN, 0}};
  while (!closing_.load()) {
    if (::poll(queries, 2, close_unauthenticated()) <= 0) continue;
    if (queries[1].revents != 0) {
      std::uint64_t count = 0;
      if (::read(stop_event_, &count, sizeof count) == sizeof count && !closing_.load())
        tell_stop();
    }
    if (queries[0].revents == 0) continue;
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) {
      ::poll(nullptr, 0, 10);  // descriptors may have run out: avoid a tight loop
      continue;
    }
    const std::lock_guard lock(mutex_);
    forget_ended();
    const auto unauthenticated =
        std::count_if(connections_.begin(), connections_.end(),
                      [](const Connection& c) { return !c.greeted.load(); });
    if (static_cast<std::size_t>(unauthenticated) >= kMaxUnauthenticated) continue;
    Connection& connection = connections_.emplace_back();
    connection.since = clock_.now();
    connection.descriptor = socket.descriptor();
    connection.thread = std::thread([this, &connection, socket = std::move(socket)]() mutable {
      serve(connection, std::move(socket));
      ::shutdown(connection.descriptor, SHUT_RDWR);
      connection.ended.store(true);
    });
  }
}

int ExchangeServer::close_unauthenticated() {
  const std::lock_guard lock(mutex_);
  const Time timeout = options_.greeting_timeout, now = clock_.now();
  bool any = false;
  for (Connection& connection : connections_) {
    if (connection.greeted.load() || connection.ended.load()) continue;
    any = true;
    if (now - connection.since > timeout)
      ::shutdown(connection.descriptor, SHUT_RDWR);  // its thread wakes up and ends
  }
  return any ? static_cast<int>(std::clamp<Time>(timeout / kMillisecond / 8, 1, 1000)) : -1;
}

void ExchangeServer::forget_ended() {
  connections_.remove_if([](Connection& connection) {
    if (!connection.ended.load()) return false;
    connection.thread.join();
    return true;
  });
}

void ExchangeServer::serve(Connection& connection, Socket socket) {
  Link& link = connection.link;
  NodeId node = 0;
  Channel channel = Channel::kCalls;
  if (link.accept(std::move(socket), token_) && greet(link, &node, &channel)) {
    connection.greeted.store(true);
    Bytes message;
    // Only the controller sends on the other channel, by another thread.
    while (link.receive(&message) && channel == Channel::kCalls && answer(link, node, message)) {
    }
  }
  end(node, link);
}

bool ExchangeServer::greet(Link& link, NodeId* node, Channel* channel) {
  Bytes message;
  if (!link.receive(&message)) return false;  // a peer without the token fails here too
  Reader reader(message);
  const auto kind = reader.get<MessageKind>();
  *node = reader.get<NodeId>();
  const auto nodes = reader.get<std::uint32_t>();
  *channel = reader.get<Channel>();
  const std::string boot = reader.get_text();
  const auto refuse = [&link](const std::string& text) {
    link.send(failure(ErrorCode::kInvalidArgument, "verbs: " + text));
    return false;
  };
  if (kind != MessageKind::kHello || !reader.good() ||
      (*channel != Channel::kCalls && *channel != Channel::kEvents))
    return refuse("node and controller have different versions; install the same pyrdma for both");
  if (nodes != options_.nodes || *node >= options_.nodes) {
    return refuse("node " + std::to_string(*node) + " of " + std::to_string(nodes) +
                  " does not exist; session " + name_ + " was made for " +
                  std::to_string(options_.nodes));
  }
  const std::lock_guard lock(mutex_);
  if (*channel == Channel::kEvents) {
    if (states_[*node] != State::kFree && states_[*node] != State::kDead) {
      return refuse("node " + std::to_string(*node) +
                    " of this session is taken; attach again once its process has ended");
    }
    if (states_[*node] == State::kDead) ++incarnations_[*node];
    states_[*node] = State::kAttached;
    events_[*node] = &link;
  }
  const bool same_machine = boot == boot_id();
  Writer welcome(MessageKind::kWelcome);
  welcome.put(options_.seed).put(same_machine).put(clock_).put(incarnations_[*node]);
  welcome.put(same_machine ? options_.nodes - 1 : 0U);
  return link.send(welcome.bytes());
}

bool ExchangeServer::answer(Link& link, NodeId node, const Bytes& message) {
  Reader reader(message);
  switch (reader.get<MessageKind>()) {
    case MessageKind::kPublish:
      return link.send(publish(reader));
    case MessageKind::kGet:
      return link.send(find(reader));
    case MessageKind::kLeave: {
      const std::lock_guard lock(mutex_);
      if (states_[node] == State::kAttached) states_[node] = State::kLeft;
      return link.send(Writer(MessageKind::kDone).bytes());
    }
    default:
      return false;
  }
}

Bytes ExchangeServer::publish(Reader& reader) {
  const std::string key = reader.get_text();
  const auto value = reader.get_bytes();
  if (!reader.good())
    return failure(ErrorCode::kInvalidArgument, "rendezvous: the message is truncated");
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = blobs_.try_emplace(key, value.begin(), value.end());
  if (!is_new && !std::equal(at->second.begin(), at->second.end(), value.begin(), value.end())) {
    return failure(ErrorCode::kInvalidArgument,
                   "rendezvous: key '" + key + "' already has another value; choose another key");
  }
  if (blobs_.size() > kMaxBlobBytes / Rendezvous::kMaxValue) {
    return failure(ErrorCode::kExhausted,
                   "rendezvous: the table of this run is full; start a new cluster");
  }
  return Writer(MessageKind::kDone).bytes();
}

Bytes ExchangeServer::find(Reader& reader) const {
  const std::string key = reader.get_text();
  const std::lock_guard lock(mutex_);
  const auto at = blobs_.find(key);
  if (at != blobs_.end()) return Writer(MessageKind::kValue).put_bytes(at->second).bytes();
  const std::string left = list(State::kLeft), dead = list(State::kDead);
  const std::string both = left + (left.empty() || dead.empty() ? "" : ", ") + dead;
  return Writer(MessageKind::kNothing).put_text(both).bytes();
}

std::string ExchangeServer::list(State state) const {
  std::string names;
  for (std::size_t node = 0; node < states_.size(); ++node) {
    if (states_[node] == state) names += (names.empty() ? "" : ", ") + std::to_string(node);
  }
  return names;
}

void ExchangeServer::end(NodeId node, const Link& link) {
  const std::lock_guard lock(mutex_);
  // A peer without the token, or the calls channel.
  if (node >= events_.size() || events_[node] != &link) return;
  events_[node] = nullptr;
  if (states_[node] == State::kAttached) states_[node] = State::kDead;
}

}  // namespace pyrdma::fabric::verbs
