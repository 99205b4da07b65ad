// TCP for the set-up exchange: connections, framed messages that show who wrote them, and their
// encoding.
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

/// A descriptor that is closed.
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

/// A machine that says nothing for so long, not even by its kernel, is gone: its power or the wire.
inline constexpr Time kSilence = 10 * kSecond;
inline constexpr Time kNoHurry = -1;  // of a receive: for ever, or until the peer is gone

/// Listens on `address`, any port; sets `name` to `address:port`. Throws Error, also for an address
/// that means all networks.
Socket listen_on(const std::string& address, std::string* name);
/// The next who connects; not open when nobody is there any more.
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

inline constexpr std::uint32_t kMaxMessage = 64 * 1024;  // bytes; larger is not of ours

/// Appends values to a message.
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

/// Takes values from a message, which somebody else wrote: what is missing reads as zero or empty,
/// and good() says so.
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

/// A connection of two that know the run's token, which never goes over it. Each message is its
/// length, its bytes, and their HMAC-SHA256 with direction and number under a key of this
/// connection alone, made of the token and what both ends drew. So what a stranger says, alters,
/// repeats or leaves out ends the connection; what is said can be read by who sees the wire. One
/// thread at a time sends, one receives.
class Link {
 public:
  Link() = default;
  /// The end that was connected to. False when the peer is gone or is not of ours.
  bool accept(Socket socket, const std::string& token);
  /// The end that connects. Throws Error(kInvalidArgument) when the other was built from another
  /// version, Error(kUnavailable) when it hangs up.
  void connect(Socket socket, const std::string& token);

  /// False when the peer is gone.
  bool send(const Bytes& message);
  /// False when the peer is gone, sends nonsense, does not know the token, or says nothing for
  /// `timeout`.
  bool receive(Bytes* message, Time timeout = kNoHurry);

  bool is_open() const { return socket_.is_open(); }
  int descriptor() const { return socket_.descriptor(); }
  void close() { socket_.close(); }
  /// Ends it for both; whoever is in send or receive returns.
  void shut_down() const;

 private:
  Digest tag(bool mine, std::uint64_t number, std::span<const std::byte> message) const;
  Socket socket_;
  Digest key_{};
  bool connected_ = false;  // not accepted
  std::uint64_t sent_ = 0, received_ = 0;
};

/// A string that names this boot of this machine.
std::string boot_id();

}  // namespace pyrdma::fabric::verbs
