// Copies between a node's own memory and a peer's. An aligned word of up to 8 bytes on the side
// named by the function is never torn, and the last word is stored last, so that a poller of the
// last word who loads it with acquire finds everything before it (x86 keeps stores in order;
// elsewhere a fence does).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_THREAD__)
#define PYRDMA_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PYRDMA_THREAD_SANITIZER 1
#endif
#endif

#if defined(__SSE2__) && !defined(PYRDMA_THREAD_SANITIZER)
#include <emmintrin.h>
#define PYRDMA_COPY_SSE2 1
#endif

namespace pyrdma::fabric::shm {
namespace detail {

template <class T>
struct Unaligned {
  typedef T Type __attribute__((may_alias, aligned(1)));
};

inline bool is_aligned(const void* at, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(at) % to == 0;
}

/// One word. Volatile keeps the compiler from splitting or merging it.
template <class T>
inline void copy_word(std::byte* to, const std::byte* from) {
#if defined(PYRDMA_THREAD_SANITIZER)
  // The sanitizer must see the accesses that hardware makes atomic by themselves.
  T value{};
  if (is_aligned(from, sizeof(T)))
    value = __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_RELAXED);
  else
    std::memcpy(&value, from, sizeof(T));
  if (is_aligned(to, sizeof(T)))
    __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELEASE);
  else
    std::memcpy(to, &value, sizeof(T));
#else
  using Raw = typename Unaligned<T>::Type;
  *reinterpret_cast<volatile Raw*>(to) = *reinterpret_cast<const volatile Raw*>(from);
#endif
}

/// The commonest message.
inline void copy_one(std::byte* to, const std::byte* from) {
#if !defined(__x86_64__)
  std::atomic_thread_fence(std::memory_order_release);
#endif
  copy_word<std::uint64_t>(to, from);
}

inline constexpr std::size_t kStringCopyBytes =
    4096;  // from here on the CPU's string copy is faster

#if defined(PYRDMA_COPY_SSE2)
inline __m128i load_vector(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline void store_vector(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}

/// Straight through: the first store calls the line over from the other core while the rest is
/// read.
inline void copy_line(std::byte* to, const std::byte* from) {
  store_vector(to, load_vector(from));
  store_vector(to + 16, load_vector(from + 16));
  store_vector(to + 32, load_vector(from + 32));
  asm volatile("" : : : "memory");  // the last one last
  store_vector(to + 48, load_vector(from + 48));
}

/// Vectors to an aligned target, where each is stored as one and may be last as well as a word.
inline void copy_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
  for (; at + 64 <= bytes; at += 64) copy_line(to + at, from + at);
  for (; at < bytes; at += 16) {
    asm volatile("" : : : "memory");
    store_vector(to + at, load_vector(from + at));
  }
}
#endif

/// Whole words; the last one apart from the others.
inline void copy_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
#if defined(PYRDMA_COPY_SSE2)
  if (bytes >= kStringCopyBytes) [[unlikely]] {
    void* target = to;
    const void* source = from;
    std::size_t words = bytes / 8 - 1;
    asm volatile("rep movsq" : "+D"(target), "+S"(source), "+c"(words) : : "memory");
    at = bytes - 8;
  } else if (is_aligned(to, 16) && bytes % 16 == 0) {
    return copy_vectors(to, from, bytes);
  }
  for (; at + 16 < bytes; at += 16) store_vector(to + at, load_vector(from + at));
  asm volatile("" : : : "memory");
#endif
  for (; at + 8 < bytes; at += 8) copy_word<std::uint64_t>(to + at, from + at);
#if !defined(__x86_64__)
  std::atomic_thread_fence(std::memory_order_release);
#endif
  copy_word<std::uint64_t>(to + at, from + at);
}

/// Any alignment and length; words of the side `kAlignTarget` chooses are kept whole.
template <bool kAlignTarget>
inline void copy_any(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto step = [&]<class T>(T) {
    copy_word<T>(to, from);
    to += sizeof(T);
    from += sizeof(T);
    bytes -= sizeof(T);
  };
  const auto odd = [&](std::size_t unit) {
    const void* side = kAlignTarget ? static_cast<const void*>(to) : from;
    return (reinterpret_cast<std::uintptr_t>(side) & unit) != 0 && bytes >= unit;
  };
  if (odd(1)) step(std::uint8_t{});
  if (odd(2)) step(std::uint16_t{});
  if (odd(4)) step(std::uint32_t{});
  const std::size_t words = bytes & ~std::size_t{7};
  if (words != 0) {
    copy_words(to, from, words);
    to += words;
    from += words;
    bytes -= words;
  }
#if !defined(__x86_64__)
  std::atomic_thread_fence(std::memory_order_release);
#endif
  if ((bytes & 4) != 0) step(std::uint32_t{});
  if ((bytes & 2) != 0) step(std::uint16_t{});
  if ((bytes & 1) != 0) step(std::uint8_t{});
}

}  // namespace detail

/// To a peer's memory: keeps the target's words whole.
inline void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8 && detail::is_aligned(to, 8)) return detail::copy_one(to, from);
  if (detail::is_aligned(to, 8) && bytes % 8 == 0 && bytes != 0) [[likely]] {
    detail::copy_words(to, from, bytes);
  } else {
    detail::copy_any<true>(to, from, bytes);
  }
}

/// From a peer's memory: keeps the source's words whole.
inline void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8 && detail::is_aligned(from, 8)) return detail::copy_one(to, from);
  if (detail::is_aligned(from, 8) && bytes % 8 == 0 && bytes != 0) [[likely]] {
    detail::copy_words(to, from, bytes);
  } else {
    detail::copy_any<false>(to, from, bytes);
  }
}

}  // namespace pyrdma::fabric::shm
