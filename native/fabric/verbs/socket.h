// TCP for the set-up exchange: framed messages over blocking sockets, and their encoding.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Listens on `address`, any port; sets `name` to `address:port`. Throws Error.
Socket listen_on(const std::string& address, std::string* name);
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

/// Sends one framed message. False when the peer is gone.
bool send_message(const Socket& socket, const Bytes& message);
/// Receives one. False when the peer is gone or sends nonsense.
bool receive_message(const Socket& socket, Bytes* message);

/// A string that names this boot of this machine.
std::string boot_id();

}  // namespace pyrdma::fabric::verbs
