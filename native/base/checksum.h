// A checksum of 64 bits, to find data that a race or a wrong write has changed. A torn value passes
// once in 2^64. It costs a multiplication per word. It is no protection against an adversary.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>

#include "base/rng.h"

namespace pyrdma {

/// With a `seed` equal bytes in different places have different checksums.
inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0) {
  std::uint64_t sum = (seed == 0 ? 0 : mix64(seed)) ^ bytes.size();
  while (bytes.size() >= sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    sum = mix64(sum ^ word);
    bytes = bytes.subspan(sizeof word);
  }
  if (!bytes.empty()) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    sum = mix64(sum ^ word);
  }
  return sum;
}

template <class T>
std::uint64_t checksum_of(const T& value) {
  return checksum(std::as_bytes(std::span(&value, 1)));
}

}  // namespace pyrdma
