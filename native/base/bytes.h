// ByteWriter and ByteReader of little-endian fields. A ByteReader never reads beyond its bytes:
// after the first short read it returns zeros and ok() is false.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace pyrdma {

static_assert(std::endian::native == std::endian::little, "fields are copied as they are");

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline bool is_zeros(ByteView bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
}

/// Appends fields to a vector.
class ByteWriter {
 public:
  explicit ByteWriter(Bytes& out) : out_(out) {}
  template <class T>
  void put(T value) {
    static_assert(std::is_unsigned_v<T>);
    const std::size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
  }
  void put(ByteView bytes) {
    if (bytes.empty()) return;
    const std::size_t at = out_.size();
    out_.resize(at + bytes.size());
    std::memcpy(out_.data() + at, bytes.data(), bytes.size());
  }
  /// Fills with zeros up to a multiple of 8 bytes.
  void align() { out_.resize((out_.size() + 7) / 8 * 8); }

 private:
  Bytes& out_;
};

class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : rest_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_unsigned_v<T>);
    const ByteView field = bytes(sizeof(T));
    T value = 0;
    if (!field.empty()) std::memcpy(&value, field.data(), sizeof(T));
    return value;
  }
  /// Returns the next bytes, or nothing if there are fewer than `count`.
  ByteView bytes(std::size_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const ByteView taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  std::size_t left() const { return rest_.size(); }
  bool ok() const { return ok_; }
  /// All bytes are read, and none was missing.
  bool done() const { return ok_ && rest_.empty(); }

 private:
  ByteView rest_;
  bool ok_ = true;
};

}  // namespace pyrdma
