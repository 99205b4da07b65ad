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
/// Accepts the next connection, whose descriptor does not block. The socket is not open when no
/// connection waits, or errno is EMFILE, ENFILE, ENOBUFS or ENOMEM.
Socket accept_from(const Socket& listener);
/// Connects to `name`. Throws Error(kUnavailable) when nobody answers within `timeout`.
Socket connect_to(const std::string& name, Time timeout = kSilence);

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

inline constexpr std::uint64_t kMagic = 0x70797264'6d61'7603ULL;

/// Opening is the first message of each side: it shows project and version, and carries a random
/// number.
struct Opening {
  std::uint64_t magic = kMagic;
  Digest drawn{};
};
static_assert(sizeof(Opening) == 40);
Opening drawn_opening();

/// Seal proves the messages of one connection, whose two sides know the run's token; the token
/// itself is never sent. A message on the wire consists of its length, its bytes, and their
/// HMAC-SHA256 with direction and number. The key belongs to this connection alone: it is derived
/// from the token and a random number of each side. A message that an attacker adds, alters,
/// repeats or drops thus ends the connection. An attacker on the network can read messages. One
/// thread at a time may send, and one may receive.
class Seal {
 public:
  enum class Side : std::uint8_t { kAccepting, kConnecting };
  Seal() = default;
  Seal(const std::string& token, const Opening& accepting, const Opening& connecting, Side own);
  /// Returns what goes on the wire for the next message of this side.
  Bytes sealed(const Bytes& message);
  /// Returns true when `shown` proves the next message of the other side.
  bool proves(std::span<const std::byte> message, const Digest& shown);

 private:
  Digest tag(Side from, std::uint64_t number, std::span<const std::byte> message) const;
  Digest key_{};
  Side own_ = Side::kAccepting;
  std::uint64_t sent_ = 0, received_ = 0;
};

/// Link is the connecting side of a connection. Its calls block.
class Link {
 public:
  Link() = default;
  /// Throws Error(kInvalidArgument) when the peer has another version, Error(kUnavailable) when it
  /// closes the connection or is silent for `timeout`.
  void connect(Socket socket, const std::string& token, Time timeout = kSilence);

  /// Returns false when the peer is gone.
  bool send(const Bytes& message);
  /// Returns false when the peer is gone, sends malformed data, does not know the token, or is
  /// silent for `timeout`.
  bool receive(Bytes* message, Time timeout = kNoTimeout);
  /// Returns true after a receive of a whole message that does not prove the token.
  bool is_unproven() const { return unproven_; }

  bool is_open() const { return socket_.is_open(); }
  int descriptor() const { return socket_.descriptor(); }
  void close() { socket_.close(); }
  /// Ends the connection for both sides; threads in send or receive return.
  void shut_down() const;

 private:
  Socket socket_;
  Seal seal_;
  bool unproven_ = false;
};

/// Returns a string that names this boot of this machine.
std::string boot_id();

}  // namespace pyrdma::fabric::verbs
