// A stamp is a self-certifying word: it holds its writer, place, version and index in the record,
// with a checksum. A reader thus recognises a torn, misplaced or invented value by its bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/remote_word.h"
#include "base/rng.h"

namespace pyrdma::fuzz {

/// Place is common to all words of one record.
struct Place {
  std::uint32_t writer = 0;       // client, below 2^10
  std::uint32_t record = 0;       // below 2^8
  std::uint32_t incarnation = 0;  // incarnation of the node that holds it, modulo 2^6
};
inline constexpr std::uint32_t kNoVersion = ~0u;

inline std::uint64_t stamp(const Place& place, std::uint32_t version, std::uint32_t word) {
  const std::uint64_t v = (std::uint64_t{version} << 32) | ((place.incarnation & 63ULL) << 26) |
                          (std::uint64_t{place.writer} << 16) | (place.record << 8) | (word & 255);
  // The checksum is folded, so that no single bit can flip unnoticed (fault `corruption`).
  std::uint64_t check = v ^ (v >> 32);
  check ^= check >> 16;
  check ^= check >> 8;
  return (v << 8) | ((check ^ 0x5a) & 255);
}
/// Returns the version of a word, 0 for a word never written, kNoVersion for a word that is not of
/// `place`.
inline std::uint32_t version_of(const Place& place, std::uint64_t value, std::uint32_t word) {
  if (value == 0) return 0;
  const auto version = static_cast<std::uint32_t>(value >> 40);
  return version != 0 && stamp(place, version, word) == value ? version : kNoVersion;
}

inline void write_stamps(std::byte* to, std::uint32_t bytes, const Place& place,
                         std::uint32_t version) {
  for (std::uint32_t i = 0; i < bytes / 8; ++i) {
    const std::uint64_t word = stamp(place, version, i);
    std::memcpy(to + std::size_t{i} * 8, &word, 8);
  }
}

/// The least and greatest version among the words of a record.
struct Versions {
  std::uint32_t least = kNoVersion, most = 0;  // most: kNoVersion when a word is not of `place`
};
inline Versions read_stamps(const std::byte* from, std::uint32_t bytes, const Place& place) {
  Versions seen;
  for (std::uint32_t i = 0; i < bytes / 8; ++i) {
    const std::uint64_t word =
        load_acquire(reinterpret_cast<const std::uint64_t*>(from + std::size_t{i} * 8));
    const std::uint32_t version = version_of(place, word, i);
    if (version < seen.least) seen.least = version;
    if (version > seen.most) seen.most = version;
  }
  return seen;
}

}  // namespace pyrdma::fuzz
