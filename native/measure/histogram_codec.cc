// The V2 encoding of HdrHistogram: a header of 40 bytes, big-endian, then the counts as ZigZag
// LEB128 numbers of at most 9 bytes. A negative number stands for that many empty counts.
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "measure/histogram.h"

namespace pyrdma::measure {

namespace {

constexpr std::uint32_t kCookie = 0x1c849313;  // version 2, 9-byte words
constexpr std::size_t kHeaderBytes = 40;

template <class T>
void put(std::string& out, T value) {
  for (int shift = 8 * (static_cast<int>(sizeof(T)) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(value >> shift));
  }
}

template <class T>
T get(std::span<const std::byte> in, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value << 8 | std::to_integer<T>(in[at + i]));
  return value;
}

void put_zigzag(std::string& out, std::int64_t value) {
  auto word = static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  for (int i = 0; i < 8 && word >= 0x80; ++i) {
    out.push_back(static_cast<char>(word | 0x80));
    word >>= 7;
  }
  out.push_back(static_cast<char>(word));  // the ninth byte holds 8 bits
}

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string("not an encoded histogram of 1 ns to 1 h with 3 digits: ") + what);
}

std::int64_t get_zigzag(std::span<const std::byte> in, std::size_t& at) {
  std::uint64_t word = 0;
  for (int i = 0; i < 9; ++i) {
    if (at >= in.size()) refuse("the data ends within a count");
    const auto part = std::to_integer<std::uint64_t>(in[at++]);
    if (i == 8) {
      word |= part << 56;
      break;
    }
    word |= (part & 0x7f) << (7 * i);
    if (part < 0x80) break;
  }
  return static_cast<std::int64_t>(word >> 1) ^ -static_cast<std::int64_t>(word & 1);
}

}  // namespace

std::string Histogram::encode() const {
  std::string payload;
  const std::uint32_t limit = total_ == 0 ? 1 : index_of(static_cast<std::uint64_t>(max_)) + 1;
  std::int64_t empty = 0;
  for (std::uint32_t i = 0; i < limit; ++i) {
    if (counts_[i] == 0) {
      ++empty;
      continue;
    }
    if (empty != 0) put_zigzag(payload, empty == 1 ? 0 : -empty);
    empty = 0;
    put_zigzag(payload, static_cast<std::int64_t>(counts_[i]));
  }
  if (empty != 0) put_zigzag(payload, empty == 1 ? 0 : -empty);

  std::string out;
  out.reserve(kHeaderBytes + payload.size());
  put(out, kCookie);
  put(out, static_cast<std::uint32_t>(payload.size()));
  put(out, std::uint32_t{0});  // normalizing index offset
  put(out, std::uint32_t{kSignificantDigits});
  put(out, std::uint64_t{1});  // lowest discernible value
  put(out, static_cast<std::uint64_t>(kHighest));
  put(out, std::bit_cast<std::uint64_t>(1.0));  // conversion ratio
  return out + payload;
}

Histogram Histogram::decode(std::span<const std::byte> encoded) {
  if (encoded.size() < kHeaderBytes) refuse("the data is shorter than the header");
  if (get<std::uint32_t>(encoded, 0) != kCookie) refuse("the cookie is wrong");
  if (get<std::uint32_t>(encoded, 4) != encoded.size() - kHeaderBytes)
    refuse("the length is wrong");
  if (get<std::uint32_t>(encoded, 8) != 0 ||
      get<std::uint32_t>(encoded, 12) != kSignificantDigits ||
      get<std::uint64_t>(encoded, 16) != 1 ||
      get<std::uint64_t>(encoded, 24) != static_cast<std::uint64_t>(kHighest)) {
    refuse("the range or precision differs");
  }
  Histogram histogram;
  std::size_t at = kHeaderBytes;
  std::uint64_t index = 0;
  while (at < encoded.size()) {
    const std::int64_t count = get_zigzag(encoded, at);
    if (count < 0) {
      if (count < -static_cast<std::int64_t>(kCounts))
        refuse("the data has more counts than the range");
      index += static_cast<std::uint64_t>(-count);
      continue;
    }
    if (index >= kCounts) refuse("the data has more counts than the range");
    const auto slot = static_cast<std::uint32_t>(index++);
    if (count == 0) continue;
    if (static_cast<std::uint64_t>(count) >
        std::numeric_limits<std::int64_t>::max() - histogram.total_) {
      refuse("the values exceed a 64-bit count");
    }
    // The last bucket extends beyond the range.
    histogram.record(std::min(lowest_at(slot), kHighest), static_cast<std::uint64_t>(count));
    histogram.max_ =
        std::max(histogram.max_, std::min(lowest_at(slot) + width_at(slot) - 1, kHighest));
  }
  return histogram;
}

}  // namespace pyrdma::measure
