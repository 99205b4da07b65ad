// These functions copy between a node's own memory and a peer's. An aligned word of up to 8 bytes
// is never torn on the side that the function's name gives. The last word is stored last, so that a
// poller that loads it with acquire sees everything before it (x86 keeps stores in order; elsewhere
// a fence does).
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

/// Fetches a line that another core has, and makes it this core's own. The compiler's prefetch for
/// a store only reads the line, as it knows of no processor since 2014 that lacks the instruction;
/// older ones of Intel take it for no operation.
inline void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

namespace detail {

template <class T>
struct Unaligned {
  typedef T Type __attribute__((may_alias, aligned(1)));
};

inline bool is_aligned(const void* at, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(at) % to == 0;
}

/// Copies one word. Volatile keeps the compiler from splitting or merging the access.
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

/// Copies 8 bytes, the most frequent size.
inline void copy_one(std::byte* to, const std::byte* from) {
#if !defined(__x86_64__)
  std::atomic_thread_fence(std::memory_order_release);
#endif
  copy_word<std::uint64_t>(to, from);
}

/// From this size on the CPU's string copy is faster.
inline constexpr std::size_t kStringCopyBytes = 4096;

#if defined(PYRDMA_COPY_SSE2)
inline __m128i load_vector(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline void store_vector(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}

/// Copies in address order: the first store fetches the line from the other core while the rest is
/// read.
inline void copy_line(std::byte* to, const std::byte* from) {
  store_vector(to, load_vector(from));
  store_vector(to + 16, load_vector(from + 16));
  store_vector(to + 32, load_vector(from + 32));
  asm volatile("" : : : "memory");  // the last vector is stored last
  store_vector(to + 48, load_vector(from + 48));
}

/// Copies vectors to an aligned target. Each vector is stored whole, so a vector may serve as the
/// last word.
inline void copy_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
  for (; at + 64 <= bytes; at += 64) copy_line(to + at, from + at);
  for (; at < bytes; at += 16) {
    asm volatile("" : : : "memory");
    store_vector(to + at, load_vector(from + at));
  }
}
#endif

/// Copies whole words; the last word is stored separately after the others.
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

/// Copies any alignment and length. Words on the side that `kAlignTarget` chooses stay whole.
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

/// Copies to a peer's memory; words of the target stay whole.
inline void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8 && detail::is_aligned(to, 8)) return detail::copy_one(to, from);
  if (detail::is_aligned(to, 8) && bytes % 8 == 0 && bytes != 0) [[likely]] {
    detail::copy_words(to, from, bytes);
  } else {
    detail::copy_any<true>(to, from, bytes);
  }
}

/// Copies from a peer's memory; words of the source stay whole.
inline void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8 && detail::is_aligned(from, 8)) return detail::copy_one(to, from);
  if (detail::is_aligned(from, 8) && bytes % 8 == 0 && bytes != 0) [[likely]] {
    detail::copy_words(to, from, bytes);
  } else {
    detail::copy_any<false>(to, from, bytes);
  }
}

}  // namespace pyrdma::fabric::shm
