// The checksum of values larger than a word. A reader notices a torn value by it (paper, section
// 5.1.1). It has 64 bits and costs a multiplication per word; a torn value passes once in 2^64.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>

#include "base/rng.h"

namespace pyrdma::loco {

inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t sum = bytes.size();
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

}  // namespace pyrdma::loco
