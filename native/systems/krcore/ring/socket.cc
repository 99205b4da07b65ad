#include "systems/krcore/ring/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace pyrdma::krcore::ring {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kUnavailable,
              "krcore: " + what + ": " + std::system_category().message(errno));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw Error(ErrorCode::kInvalidArgument,
                "krcore: the socket's path has " + std::to_string(path.size()) +
                    " characters, and the system allows " +
                    std::to_string(sizeof address.sun_path - 1) + "; choose a shorter folder");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Descriptor make_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (made.get() < 0) fail("cannot make a socket");
  return made;
}

bool connects(const Descriptor& socket, const sockaddr_un& address) {
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = other.release();
  return *this;
}

int Descriptor::release() { return std::exchange(fd_, -1); }

Descriptor listen_in(const std::string& folder, const std::string& path) {
  const sockaddr_un address = address_of(path);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    fail("cannot make the folder " + folder);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) fail("cannot look at the folder " + folder);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    throw Error(ErrorCode::kUnavailable,
                "krcore: others may enter " + folder +
                    ", which holds the socket of the daemon; give a folder of your own with mode "
                    "0700 (chmod 700 " +
                    folder + ")");
  }
  if (connects(make_socket(), address)) {
    throw Error(ErrorCode::kUnavailable,
                "krcore: another daemon listens at " + path + "; end it, or choose another folder");
  }
  ::unlink(path.c_str());  // of a daemon that was killed
  Descriptor made = make_socket();
  if (::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(made.get(), 64) != 0)
    fail("cannot listen at " + path);
  return made;
}

Descriptor connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  Descriptor made = make_socket();
  if (!connects(made, address)) {
    fail("no daemon listens at " + path +
         "; start it with Service.listen() on the node of this "
         "machine");
  }
  return made;
}

Descriptor accept_own(int listener) {
  Descriptor made(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (made.get() < 0 || ::getsockopt(made.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != ::geteuid())
    return Descriptor();
  return made;
}

bool send_files(int socket, const Note& note, std::span<const int> files) {
  iovec piece{const_cast<Note*>(&note), sizeof note};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof note);
}

int receive_files(int socket, Note& note, std::array<Descriptor, 2>& files, int timeout_ms) {
  pollfd wanted{socket, POLLIN, 0};
  if (::poll(&wanted, 1, timeout_ms) != 1) return -1;
  iovec piece{&note, sizeof note};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  int count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t all = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < std::min<std::size_t>(all, 2); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      files[i] = Descriptor(fd);
      ++count;
    }
  }
  return size == static_cast<ssize_t>(sizeof note) ? count : -1;
}

bool has_hung_up(int socket) {
  char byte = 0;
  const ssize_t size = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace pyrdma::krcore::ring
