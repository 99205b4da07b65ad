#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace pyrdma {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reversed
constexpr std::size_t kLane = 1024;                // bytes of each of the three parts of a block

constexpr std::uint32_t step_of_bits(std::uint32_t crc, int bits) {
  for (int bit = 0; bit < bits; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
  return crc;
}

using Table = std::array<std::uint32_t, 256>;

/// What each value of a byte does to the checksum.
[[maybe_unused]] constexpr Table byte_table() {
  Table table{};
  for (std::uint32_t value = 0; value < 256; ++value) table[value] = step_of_bits(value, 8);
  return table;
}

/// What kLane bytes of zeros make of a checksum, by each of its bytes: the step is linear, so the
/// parts of a checksum go through it one by one.
constexpr std::array<Table, 4> lane_tables() {
  std::array<std::uint32_t, 32> of_bit{};
  for (std::size_t bit = 0; bit < 32; ++bit) of_bit[bit] = std::uint32_t{1} << bit;
  // The step of one zero byte, squared until it is that of kLane bytes.
  for (std::uint32_t& word : of_bit) word = step_of_bits(word, 8);
  const auto apply = [](const std::array<std::uint32_t, 32>& step, std::uint32_t crc) {
    std::uint32_t result = 0;
    for (std::size_t bit = 0; bit < 32; ++bit) result ^= (crc >> bit & 1) != 0 ? step[bit] : 0;
    return result;
  };
  for (std::size_t bytes = 1; bytes < kLane; bytes *= 2) {
    const std::array<std::uint32_t, 32> once = of_bit;
    for (std::uint32_t& word : of_bit) word = apply(once, word);
  }
  std::array<Table, 4> tables{};
  for (std::size_t byte = 0; byte < 4; ++byte) {
    for (std::uint32_t value = 0; value < 256; ++value)
      tables[byte][value] = apply(of_bit, value << 8 * byte);
  }
  return tables;
}
static_assert((kLane & (kLane - 1)) == 0);

std::uint32_t after_lane(std::uint32_t crc) {
  static constexpr std::array<Table, 4> kTables = lane_tables();
  return kTables[0][crc & 255] ^ kTables[1][crc >> 8 & 255] ^ kTables[2][crc >> 16 & 255] ^
         kTables[3][crc >> 24];
}

#if defined(__SSE4_2__)
std::uint64_t step(std::uint64_t crc, std::uint64_t word) { return _mm_crc32_u64(crc, word); }
std::uint32_t step(std::uint32_t crc, std::uint32_t word) { return _mm_crc32_u32(crc, word); }
std::uint32_t step(std::uint32_t crc, std::uint16_t half) { return _mm_crc32_u16(crc, half); }
std::uint32_t step(std::uint32_t crc, std::uint8_t byte) { return _mm_crc32_u8(crc, byte); }
#elif defined(__ARM_FEATURE_CRC32)
std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
std::uint32_t step(std::uint32_t crc, std::uint32_t word) { return __crc32cw(crc, word); }
std::uint32_t step(std::uint32_t crc, std::uint16_t half) { return __crc32ch(crc, half); }
std::uint32_t step(std::uint32_t crc, std::uint8_t byte) { return __crc32cb(crc, byte); }
#else
std::uint32_t step(std::uint32_t crc, std::uint8_t byte) {
  static constexpr Table kTable = byte_table();
  return crc >> 8 ^ kTable[(crc ^ byte) & 255];
}
template <class Crc, class Word>
Crc step(Crc crc, Word word) {
  auto result = static_cast<std::uint32_t>(crc);
  for (std::size_t byte = 0; byte < sizeof word; ++byte, word = static_cast<Word>(word >> 8))
    result = step(result, static_cast<std::uint8_t>(word));
  return result;
}
#endif

template <class Word = std::uint64_t>
Word load(const std::byte* at) {
  Word word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

// The instruction takes three cycles, and begins each cycle: three parts of a block go beside each
// other.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kLane; left -= 3 * kLane, at += 3 * kLane) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      crc = step(crc, load(at + i));
      second = step(second, load(at + kLane + i));
      third = step(third, load(at + 2 * kLane + i));
    }
    crc = after_lane(static_cast<std::uint32_t>(crc)) ^ second;
    crc = after_lane(static_cast<std::uint32_t>(crc)) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) crc = step(crc, load(at));
  auto result = static_cast<std::uint32_t>(crc);
  if ((left & 4) != 0) {
    result = step(result, load<std::uint32_t>(at));
    at += 4;
  }
  if ((left & 2) != 0) {
    result = step(result, load<std::uint16_t>(at));
    at += 2;
  }
  if ((left & 1) != 0) result = step(result, static_cast<std::uint8_t>(*at));
  return ~result;
}

}  // namespace pyrdma
