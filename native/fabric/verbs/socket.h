// TCP for the set-up exchange: connections, authenticated framed messages, and their encoding.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/units.h"
#include "fabric/verbs/hmac.h"

namespace pyrdma::fabric::verbs {

using Bytes = std::vector<std::byte>;

/// Socket owns a descriptor and closes it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

/// A machine that is silent for so long, even its kernel, has lost its power or its network.
inline constexpr Time kSilence = 10 * kSecond;
inline constexpr Time kNoTimeout = -1;  // no timeout: a receive waits until the peer is gone

/// Listens on `address`, any port, and sets `name` to `address:port`. Throws Error, also for an
/// address that means all networks.
Socket listen_on(const std::string& address, std::string* name);
/// Accepts the next connection. The socket is not open when the peer has gone already.
Socket accept_from(const Socket& listener);
/// Connects to `name`. Throws Error(kUnavailable).
Socket connect_to(const std::string& name);

enum class MessageKind : std::uint8_t {
  kHello,
  kWelcome,
  kError,
  kPublish,
  kDone,
  kGet,
  kValue,
  kNothing,
  kLeave,
  kStop,
};

// Bytes; a longer message is not from this project.
inline constexpr std::uint32_t kMaxMessage = 64 * 1024;

/// Writer appends values to a message.
class Writer {
 public:
  explicit Writer(MessageKind kind) { put(kind); }
  template <class T>
  Writer& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return append(std::as_bytes(std::span(&value, 1)));
  }
  Writer& put_bytes(std::span<const std::byte> bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    return append(bytes);
  }
  Writer& put_text(std::string_view text) { return put_bytes(std::as_bytes(std::span(text))); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Writer& append(std::span<const std::byte> bytes);
  Bytes bytes_;
};

/// Reader takes values from a message of another process. Missing values read as zero or empty, and
/// good() then returns false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const auto bytes = take(sizeof(T));
    if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> get_bytes() { return take(get<std::uint32_t>()); }
  std::string get_text() {
    const auto bytes = get_bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool good() const { return good_; }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    if (bytes > left_.size()) {
      good_ = false;
      return {};
    }
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  std::span<const std::byte> left_;
  bool good_ = true;
};

/// Link is a connection between two sides that know the run's token; the token itself is never
/// sent. A message consists of its length, its bytes, and their HMAC-SHA256 with direction and
/// number. The key belongs to this connection alone: it is derived from the token and a random
/// number of each side. A message that an attacker adds, alters, repeats or drops thus ends the
/// connection. An attacker on the network can read messages. One thread at a time may send, and one
/// may receive.
class Link {
 public:
  Link() = default;
  /// The accepting side. Returns false when the peer is gone or is not from this project.
  bool accept(Socket socket, const std::string& token);
  /// The connecting side. Throws Error(kInvalidArgument) when the peer has another version,
  /// Error(kUnavailable) when it closes the connection.
  void connect(Socket socket, const std::string& token);

  /// Returns false when the peer is gone.
  bool send(const Bytes& message);
  /// Returns false when the peer is gone, sends malformed data, does not know the token, or is
  /// silent for `timeout`.
  bool receive(Bytes* message, Time timeout = kNoTimeout);

  bool is_open() const { return socket_.is_open(); }
  int descriptor() const { return socket_.descriptor(); }
  void close() { socket_.close(); }
  /// Ends the connection for both sides; threads in send or receive return.
  void shut_down() const;

 private:
  Digest tag(bool mine, std::uint64_t number, std::span<const std::byte> message) const;
  Socket socket_;
  Digest key_{};
  bool connected_ = false;  // false: accepted
  std::uint64_t sent_ = 0, received_ = 0;
};

/// Returns a string that names this boot of this machine.
std::string boot_id();

}  // namespace pyrdma::fabric::verbs
