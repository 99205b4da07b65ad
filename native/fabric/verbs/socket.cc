#include "fabric/verbs/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>

#include "base/error.h"

namespace pyrdma::fabric::verbs {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(address.c_str(), port.c_str(), &hints, &found);
  if (status != 0) {
    throw Error(ErrorCode::kInvalidArgument, "verbs: '" + address +
                                                 "' is not the address of a machine (" +
                                                 ::gai_strerror(status) + ")");
  }
  return {found, &::freeaddrinfo};
}

// The kernel takes at most its own limit, net.core.somaxconn, of connections that wait to be
// accepted. The limit of the C library's headers may be lower.
constexpr int kBacklog = 1 << 16;

void set(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

void tune(const Socket& socket) {
  constexpr int kProbes = 3, kBetween = 2;  // seconds
  constexpr int kSeconds = static_cast<int>(kSilence / kSecond);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSeconds - kProbes * kBetween);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kBetween);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kSeconds * 1000);
}

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNever = Clock::time_point::max();

Clock::time_point after(Time timeout) {
  return timeout == kNoTimeout ? kNever : Clock::now() + std::chrono::nanoseconds(timeout);
}

/// Returns false when `event` does not come before `deadline`.
bool await_event(int descriptor, short event, Clock::time_point deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    int timeout = -1;
    if (deadline != kNever) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
    }
    pollfd query{descriptor, event, 0};
    const int ready = ::poll(&query, 1, timeout);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool send_all(int descriptor, const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(descriptor, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int descriptor, std::byte* data, std::size_t bytes, Clock::time_point deadline) {
  while (bytes > 0) {
    if (deadline != kNever && !await_event(descriptor, POLLIN, deadline)) return false;
    const ssize_t got = ::recv(descriptor, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

/// Returns 0, or the error number.
int connect_within(const Socket& socket, const addrinfo& address, Time timeout) {
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!await_event(socket.descriptor(), POLLOUT, after(timeout))) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool is_wildcard(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_addr.s_addr ==
           htonl(INADDR_ANY);
  }
  return address.ai_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(
             &reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Socket listen_on(const std::string& address, std::string* name) {
  const Addresses addresses = resolve(address, "0");
  if (is_wildcard(*addresses)) {
    throw Error(ErrorCode::kInvalidArgument, "verbs: address " + address +
                                                 " means all networks of this machine; give the "
                                                 "address of the experiment's network");
  }
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (!socket.is_open() ||
      ::bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(socket.descriptor(), kBacklog) != 0 ||
      ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    throw Error(ErrorCode::kUnavailable, "verbs: cannot listen on " + address + ": " +
                                             std::strerror(errno) +
                                             "; give an address of this machine");
  }
  const bool v6 = bound.ss_family == AF_INET6;
  const std::uint16_t port = ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  *name = address + ":" + std::to_string(port);
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.is_open()) tune(socket);
  return socket;
}

Socket connect_to(const std::string& name, Time timeout) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "verbs: '" + name + "' is not the name of a session; give Session::name()");
  }
  const Addresses addresses = resolve(name.substr(0, colon), name.substr(colon + 1));
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = socket.is_open() ? connect_within(socket, *addresses, timeout) : errno;
  if (error != 0) {
    throw Error(ErrorCode::kUnavailable, "verbs: session " + name +
                                             " does not answer: " + std::strerror(error) +
                                             "; its controller has ended, or a firewall blocks it");
  }
  ::fcntl(socket.descriptor(), F_SETFL, ::fcntl(socket.descriptor(), F_GETFL) & ~O_NONBLOCK);
  tune(socket);
  return socket;
}

Writer& Writer::append(std::span<const std::byte> bytes) {
  const std::size_t before = bytes_.size();
  bytes_.resize(before + bytes.size());
  if (!bytes.empty()) std::memcpy(bytes_.data() + before, bytes.data(), bytes.size());
  return *this;
}

Opening drawn_opening() {
  Opening opening;
  if (::getrandom(opening.drawn.data(), opening.drawn.size(), 0) !=
      static_cast<ssize_t>(opening.drawn.size()))
    throw Error(ErrorCode::kUnavailable, "verbs: the kernel returned no random bytes (getrandom)");
  return opening;
}

Seal::Seal(const std::string& token, const Opening& accepting, const Opening& connecting, Side own)
    : key_(hmac(bytes_of(token), {accepting.drawn, connecting.drawn})), own_(own) {}

Digest Seal::tag(Side from, std::uint64_t number, std::span<const std::byte> message) const {
  return hmac(key_,
              {std::as_bytes(std::span(&from, 1)), std::as_bytes(std::span(&number, 1)), message});
}

Bytes Seal::sealed(const Bytes& message) {
  const auto length = static_cast<std::uint32_t>(message.size());
  const Digest shown = tag(own_, sent_++, message);
  const auto head = std::as_bytes(std::span(&length, 1));
  Bytes framed(head.begin(), head.end());
  framed.insert(framed.end(), message.begin(), message.end());
  framed.insert(framed.end(), shown.begin(), shown.end());
  return framed;
}

bool Seal::proves(std::span<const std::byte> message, const Digest& shown) {
  const Side other = own_ == Side::kAccepting ? Side::kConnecting : Side::kAccepting;
  return equal(shown, tag(other, received_++, message));
}

void Link::connect(Socket socket, const std::string& token, Time timeout) {
  socket_ = std::move(socket);
  const Opening mine = drawn_opening();
  Opening theirs;
  if (!receive_all(descriptor(), reinterpret_cast<std::byte*>(&theirs), sizeof theirs,
                   after(timeout)))
    throw Error(ErrorCode::kUnavailable,
                "verbs: the session closed the connection; its controller may have ended");
  if (theirs.magic != kMagic) {
    throw Error(ErrorCode::kInvalidArgument,
                "verbs: the peer is not a controller of this version; install the same pyrdma on "
                "every machine");
  }
  send_all(descriptor(), reinterpret_cast<const std::byte*>(&mine), sizeof mine);
  seal_ = Seal(token, theirs, mine, Seal::Side::kConnecting);
}

bool Link::send(const Bytes& message) {
  const Bytes framed = seal_.sealed(message);
  return send_all(descriptor(), framed.data(), framed.size());
}

bool Link::receive(Bytes* message, Time timeout) {
  const Clock::time_point deadline = after(timeout);
  std::uint32_t length = 0;
  Digest shown{};
  if (!receive_all(descriptor(), reinterpret_cast<std::byte*>(&length), sizeof length, deadline) ||
      length == 0 || length > kMaxMessage) {
    return false;
  }
  message->resize(length);
  if (!receive_all(descriptor(), message->data(), length, deadline) ||
      !receive_all(descriptor(), shown.data(), shown.size(), deadline))
    return false;
  unproven_ = !seal_.proves(*message, shown);
  return !unproven_;
}

void Link::shut_down() const { ::shutdown(descriptor(), SHUT_RDWR); }

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace pyrdma::fabric::verbs
