// These functions access words in registered memory. A NIC, or another process that plays the NIC,
// may change them at any time. Aligned words of up to 8 bytes are never torn. An acquire load
// orders all later reads of this thread after it; a release store makes all earlier writes of this
// thread visible before it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pyrdma {

template <class T>
T load_acquire(const T* word) {
  static_assert(sizeof(T) <= 8);
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

template <class T>
void store_release(T* word, T value) {
  static_assert(sizeof(T) <= 8);
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/// Copies `bytes`, a multiple of 8, out of memory that peers may be changing. Each aligned word is
/// copied whole; the words have no order. The caller must then test the copy, for example by a
/// checksum.
inline void copy_from_shared(void* to, const void* from, std::size_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) {
    const std::uint64_t word = __atomic_load_n(words + i, __ATOMIC_RELAXED);
    std::memcpy(static_cast<char*>(to) + i * sizeof word, &word, sizeof word);
  }
}

/// Copies `bytes`, a multiple of 8, into memory that peers may be reading. Each aligned word is
/// copied whole; the words have no order. A release store after it publishes the copy.
inline void copy_to_shared(void* to, const void* from, std::size_t bytes) {
  auto* words = static_cast<std::uint64_t*>(to);
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(from) + i * sizeof word, sizeof word);
    __atomic_store_n(words + i, word, __ATOMIC_RELAXED);
  }
}

}  // namespace pyrdma
