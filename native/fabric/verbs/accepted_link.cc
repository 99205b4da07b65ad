#include "fabric/verbs/accepted_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace pyrdma::fabric::verbs {

AcceptedLink::AcceptedLink(Socket socket, const std::string& token)
    : socket_(std::move(socket)), token_(token), mine_(drawn_opening()) {
  const auto bytes = std::as_bytes(std::span(&mine_, 1));
  out_.assign(bytes.begin(), bytes.end());
  flush();
}

// A peer gets memory for the bytes that it has sent, not for those that it announces.
AcceptedLink::Got AcceptedLink::fill(std::size_t bytes) {
  constexpr std::size_t kStep = 4096;
  while (in_.size() < bytes) {
    const std::size_t before = in_.size();
    in_.resize(std::min(bytes, before + kStep));
    const ssize_t got = ::recv(descriptor(), in_.data() + before, in_.size() - before, 0);
    in_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Got::kNothing : Got::kEnd;
  }
  return Got::kMessage;
}

AcceptedLink::Got AcceptedLink::receive(Bytes* message) {
  if (!opened_) {
    Opening theirs;
    if (const Got got = fill(sizeof theirs); got != Got::kMessage) return got;
    std::memcpy(&theirs, in_.data(), sizeof theirs);
    if (theirs.magic != kMagic) return Got::kEnd;
    in_.clear();
    seal_ = Seal(token_, mine_, theirs, Seal::Side::kAccepting);
    opened_ = true;
  }
  std::uint32_t length = 0;
  if (const Got got = fill(sizeof length); got != Got::kMessage) return got;
  std::memcpy(&length, in_.data(), sizeof length);
  if (length == 0 || length > most_) return Got::kEnd;
  Digest shown;
  if (const Got got = fill(sizeof length + length + sizeof shown); got != Got::kMessage) return got;
  const auto end = in_.end() - sizeof shown;
  std::copy(end, in_.end(), shown.begin());
  message->assign(in_.begin() + sizeof length, end);
  in_.clear();
  return seal_.proves(*message, shown) ? Got::kMessage : Got::kUnproven;
}

void AcceptedLink::send(const Bytes& message) {
  const Bytes framed = seal_.sealed(message);
  out_.insert(out_.end(), framed.begin(), framed.end());
  flush();
}

bool AcceptedLink::flush() {
  std::size_t sent = 0;
  while (sent < out_.size()) {
    const ssize_t now = ::send(descriptor(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) break;
    sent += static_cast<std::size_t>(now);
  }
  const bool good = sent == out_.size() || errno == EAGAIN || errno == EWOULDBLOCK;
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent));
  return good;
}

}  // namespace pyrdma::fabric::verbs
