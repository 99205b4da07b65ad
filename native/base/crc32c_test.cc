#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace pyrdma {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// The definition, bit by bit.
std::uint32_t by_bits(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

// RFC 3720, appendix B.4, and the check value of the catalogues.
TEST(Crc32c, HasThePublishedValues) {
  std::vector<std::byte> data(32);
  EXPECT_EQ(crc32c(data), 0x8A9136AA);
  data.assign(32, std::byte{0xFF});
  EXPECT_EQ(crc32c(data), 0x62A8AB43);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(data), 0x46DD794E);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(data), 0x113FDB5C);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, AgreesWithItsDefinitionAtAllLengths) {
  Rng rng(1, 0, "crc");
  std::vector<std::byte> data(10000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(rng.below(256));
  for (std::size_t length = 0; length <= data.size();
       length += length < 100 || length % 1024 < 9 || length % 1024 > 1016 ? 1 : 61) {
    const std::size_t from = length % 7 <= data.size() - length ? length % 7 : 0;
    const auto part = std::span(data).subspan(from, length);
    ASSERT_EQ(crc32c(part), by_bits(part)) << length;
  }
}

TEST(Crc32c, GoesOnFromWhatStandsBefore) {
  std::vector<std::byte> data(7000, std::byte{5});
  for (const std::size_t first : {0U, 1U, 7U, 8U, 3072U, 6999U}) {
    const std::uint32_t before = crc32c(std::span(data).first(first));
    EXPECT_EQ(crc32c(std::span(data).subspan(first), before), crc32c(data)) << first;
  }
}

}  // namespace
}  // namespace pyrdma
