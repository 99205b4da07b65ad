// Words in registered memory that a NIC, or another process playing the NIC, may change at any
// time. Aligned words of up to 8 bytes are never torn. An acquire load orders all later reads of
// this thread after it; a release store makes all earlier writes of this thread visible before it.
#pragma once
#include <atomic>
#include <cstdint>

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

}  // namespace pyrdma
