#include "fabric/verbs/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
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
    throw Error(
        ErrorCode::kInvalidArgument,
        "verbs: '" + address + "' is no address of a machine (" + ::gai_strerror(status) + ")");
  }
  return {found, &::freeaddrinfo};
}

void tune(const Socket& socket) {
  const int one = 1;
  ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
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

bool receive_all(int descriptor, std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::recv(descriptor, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Socket listen_on(const std::string& address, std::string* name) {
  const Addresses addresses = resolve(address, "0");
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (!socket.is_open() ||
      ::bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(socket.descriptor(), SOMAXCONN) != 0 ||
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

Socket connect_to(const std::string& name) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "verbs: '" + name + "' is not the name of a session; take Session::name()");
  }
  const Addresses addresses = resolve(name.substr(0, colon), name.substr(colon + 1));
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() ||
      ::connect(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0) {
    throw Error(ErrorCode::kUnavailable,
                "verbs: session " + name + " does not answer: " + std::strerror(errno) +
                    "; has its controller ended, or does a firewall hide it?");
  }
  tune(socket);
  return socket;
}

Writer& Writer::append(std::span<const std::byte> bytes) {
  const std::size_t before = bytes_.size();
  bytes_.resize(before + bytes.size());
  if (!bytes.empty()) std::memcpy(bytes_.data() + before, bytes.data(), bytes.size());
  return *this;
}

bool send_message(const Socket& socket, const Bytes& message) {
  const auto length = static_cast<std::uint32_t>(message.size());
  Bytes framed(sizeof length + message.size());
  std::memcpy(framed.data(), &length, sizeof length);
  std::memcpy(framed.data() + sizeof length, message.data(), message.size());
  return send_all(socket.descriptor(), framed.data(), framed.size());
}

bool receive_message(const Socket& socket, Bytes* message) {
  std::uint32_t length = 0;
  if (!receive_all(socket.descriptor(), reinterpret_cast<std::byte*>(&length), sizeof length) ||
      length == 0 || length > kMaxMessage) {
    return false;
  }
  message->resize(length);
  return receive_all(socket.descriptor(), message->data(), length);
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace pyrdma::fabric::verbs
