#include "fabric/verbs/exchange.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric::verbs {
namespace {

// Memory of an entry of the table beside its key and its value.
constexpr std::size_t kEntryBytes = 128;
// Any host that reaches the port may connect. So many connections may be open besides
// the two of each node.
constexpr std::size_t kStrangers = 256;
// Newcomers admitted in one turn. Connected nodes have their turns between.
constexpr int kTurn = 64;

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
  raise_descriptor_limit();
  boot_ = boot_id();
  clock_ = options.clock ? *options.clock : Clock::calibrate();
  listener_ = listen_on(options.address, &name_);
  stop_event_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  poller_ = Socket(::epoll_create1(EPOLL_CLOEXEC));
  bool good = stop_event_.is_open() && poller_.is_open();
  for (Socket* source : {&listener_, &stop_event_}) {
    epoll_event event{EPOLLIN, {.ptr = source}};
    good =
        good && ::epoll_ctl(poller_.descriptor(), EPOLL_CTL_ADD, source->descriptor(), &event) == 0;
  }
  if (!good)
    throw Error(ErrorCode::kExhausted,
                "verbs: cannot create an event descriptor; raise the limit of open files");
  thread_ = std::thread([this] { run(); });
}

ExchangeServer::~ExchangeServer() {
  closing_.store(true);
  request_stop();
  thread_.join();
}

// Many systems let a process open 1,024 files at first, and many more if it asks.
void ExchangeServer::raise_descriptor_limit() const {
  const rlim_t nodes = 2 * rlim_t{options_.nodes};
  const rlim_t wanted = 2 * (nodes + kStrangers);  // half of them is for the rest of the process
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur > nodes) return;
  throw Error(ErrorCode::kExhausted, "verbs: the controller of " + std::to_string(options_.nodes) +
                                         " nodes needs " + std::to_string(nodes) +
                                         " connections, and this process may have " +
                                         std::to_string(limit.rlim_cur) +
                                         " open files; raise the hard limit (ulimit -Hn)");
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
  if (::write(stop_event_.descriptor(), &one, sizeof one) < 0 && errno != EAGAIN) std::abort();
}

void ExchangeServer::run() {
  std::array<epoll_event, kTurn> ready;
  while (!closing_.load()) {
    int timeout = 0;
    {
      const std::lock_guard lock(mutex_);
      close_late_strangers();
      timeout = milliseconds_to_next_close();
    }
    const int count = ::epoll_wait(poller_.descriptor(), ready.data(), kTurn, timeout);
    bool newcomers = false;
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(count, 0)); ++i) {
      if (ready[i].data.ptr == &listener_)
        newcomers = true;
      else if (ready[i].data.ptr == &stop_event_)
        tell_stop();
      else
        serve(*static_cast<Connection*>(ready[i].data.ptr));
    }
    if (newcomers) admit();  // last, because a newcomer may push out one that is ready
  }
}

void ExchangeServer::tell_stop() {
  std::uint64_t count = 0;
  if (::read(stop_event_.descriptor(), &count, sizeof count) != sizeof count || closing_.load())
    return;
  for (Connection* connection : events_) {
    if (connection == nullptr) continue;
    connection->link.send(Writer(MessageKind::kStop).bytes());
    watch(*connection);
  }
}

void ExchangeServer::admit() {
  const std::size_t room = 2 * std::size_t{options_.nodes} + kStrangers;
  for (int turn = 0; turn < kTurn; ++turn) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
      // Descriptors have run out.
      if (strangers_.empty()) {
        ::usleep(10'000);  // avoid a tight loop
        return;
      }
      drop(strangers_.front());
      continue;
    }
    if (strangers_.size() + greeted_.size() >= room && !strangers_.empty())
      drop(strangers_.front());
    Connection& connection =
        strangers_.emplace_back(Connection{AcceptedLink(std::move(socket), token_), clock_.now()});
    connection.self = std::prev(strangers_.end());
    epoll_event event{EPOLLIN, {.ptr = &connection}};
    if (::epoll_ctl(poller_.descriptor(), EPOLL_CTL_ADD, connection.link.descriptor(), &event) != 0)
      drop(connection);
  }
}

void ExchangeServer::close_late_strangers() {
  const Time now = clock_.now();
  while (!strangers_.empty() && now - strangers_.front().since > options_.greeting_timeout)
    drop(strangers_.front());
}

int ExchangeServer::milliseconds_to_next_close() const {
  if (strangers_.empty()) return -1;
  const Time left = strangers_.front().since + options_.greeting_timeout - clock_.now();
  return static_cast<int>(std::clamp<Time>(left / kMillisecond + 1, 1, 60'000));
}

void ExchangeServer::serve(Connection& connection) {
  AcceptedLink& link = connection.link;
  // A peer that does not read its answers is not read from either.
  if (!link.is_sending() && !connection.ending) {
    Bytes message;
    switch (link.receive(&message)) {
      case AcceptedLink::Got::kNothing:
        break;
      case AcceptedLink::Got::kMessage:
        connection.ending =
            connection.greeted ? !answer(connection, message) : !greet(connection, message);
        break;
      case AcceptedLink::Got::kUnproven:
        // An honest node with another token sees that the answer does not prove its own, so it does
        // not try again. A node with the right token can read the answer.
        if (!connection.greeted) {
          link.send(failure(ErrorCode::kUnavailable,
                            "verbs: the greeting was altered on its way to the controller; check "
                            "the network"));
        }
        connection.ending = true;
        break;
      case AcceptedLink::Got::kEnd:
        drop(connection);
        return;
    }
  }
  if (!link.flush() || (connection.ending && !link.is_sending()))
    drop(connection);
  else
    watch(connection);
}

void ExchangeServer::watch(Connection& connection) {
  if (connection.awaits_room == connection.link.is_sending()) return;
  connection.awaits_room = connection.link.is_sending();
  epoll_event event{connection.awaits_room ? EPOLLOUT : EPOLLIN, {.ptr = &connection}};
  ::epoll_ctl(poller_.descriptor(), EPOLL_CTL_MOD, connection.link.descriptor(), &event);
}

void ExchangeServer::drop(Connection& connection) {
  const NodeId node = connection.node;
  if (connection.greeted && events_[node] == &connection) {
    events_[node] = nullptr;
    if (states_[node] == State::kAttached) states_[node] = State::kDead;
  }
  (connection.greeted ? greeted_ : strangers_).erase(connection.self);
}

bool ExchangeServer::greet(Connection& connection, const Bytes& message) {
  Reader reader(message);
  const auto kind = reader.get<MessageKind>();
  const auto node = reader.get<NodeId>();
  const auto nodes = reader.get<std::uint32_t>();
  const auto channel = reader.get<Channel>();
  const std::string boot = reader.get_text();
  const auto refuse = [&connection](const std::string& text) {
    connection.link.send(failure(ErrorCode::kInvalidArgument, "verbs: " + text));
    return false;
  };
  if (kind != MessageKind::kHello || !reader.good() ||
      (channel != Channel::kCalls && channel != Channel::kEvents))
    return refuse("node and controller have different versions; install the same pyrdma for both");
  if (nodes != options_.nodes || node >= options_.nodes) {
    return refuse("node " + std::to_string(node) + " of " + std::to_string(nodes) +
                  " does not exist; session " + name_ + " was made for " +
                  std::to_string(options_.nodes));
  }
  if (channel == Channel::kEvents) {
    if (states_[node] != State::kFree && states_[node] != State::kDead) {
      return refuse("node " + std::to_string(node) +
                    " of this session is taken; attach again once its process has ended");
    }
    if (states_[node] == State::kDead) ++incarnations_[node];
    states_[node] = State::kAttached;
    events_[node] = &connection;
  }
  connection.greeted = true;
  connection.node = node;
  connection.channel = channel;
  connection.link.trust();
  greeted_.splice(greeted_.end(), strangers_, connection.self);
  const bool same_machine = boot == boot_;
  Writer welcome(MessageKind::kWelcome);
  welcome.put(options_.seed).put(same_machine).put(clock_).put(incarnations_[node]);
  welcome.put(same_machine ? options_.nodes - 1 : 0U);
  connection.link.send(welcome.bytes());
  return true;
}

bool ExchangeServer::answer(Connection& connection, const Bytes& message) {
  if (connection.channel == Channel::kEvents) return false;  // only the controller sends on it
  Reader reader(message);
  switch (reader.get<MessageKind>()) {
    case MessageKind::kPublish:
      connection.link.send(publish(reader));
      return true;
    case MessageKind::kGet:
      connection.link.send(find(reader));
      return true;
    case MessageKind::kLeave:
      if (states_[connection.node] == State::kAttached) states_[connection.node] = State::kLeft;
      connection.link.send(Writer(MessageKind::kDone).bytes());
      return true;
    default:
      return false;
  }
}

Bytes ExchangeServer::publish(Reader& reader) {
  const std::string key = reader.get_text();
  const auto value = reader.get_bytes();
  if (!reader.good())
    return failure(ErrorCode::kInvalidArgument, "rendezvous: the message is truncated");
  if (const auto at = blobs_.find(key); at != blobs_.end()) {
    if (std::equal(at->second.begin(), at->second.end(), value.begin(), value.end()))
      return Writer(MessageKind::kDone).bytes();
    return failure(ErrorCode::kInvalidArgument,
                   "rendezvous: key '" + key + "' already has another value; choose another key");
  }
  const std::size_t bytes = key.size() + value.size() + kEntryBytes;
  if (bytes > options_.table_bytes - table_bytes_) {
    return failure(ErrorCode::kExhausted,
                   "rendezvous: the table of this run has " + std::to_string(table_bytes_) +
                       " bytes; another " + std::to_string(bytes) + " would exceed its limit, " +
                       std::to_string(options_.table_bytes) + "; start a new cluster");
  }
  table_bytes_ += bytes;
  blobs_.emplace(key, Bytes(value.begin(), value.end()));
  return Writer(MessageKind::kDone).bytes();
}

Bytes ExchangeServer::find(Reader& reader) const {
  const std::string key = reader.get_text();
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

}  // namespace pyrdma::fabric::verbs
