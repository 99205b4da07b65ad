// Units of time and size. Every time in the public interface is a signed count of nanoseconds. The
// simulator counts picoseconds inside, because one 8-byte packet at 100 Gb/s lasts 0.64 ns.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pyrdma {

using Time = std::int64_t;  // ns on the clock of the Env that returned it
inline constexpr Time kForever = std::numeric_limits<Time>::max();

inline constexpr Time kMicrosecond = 1000;
inline constexpr Time kMillisecond = 1000 * kMicrosecond;
inline constexpr Time kSecond = 1000 * kMillisecond;

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::size_t kCacheLine = 64;

}  // namespace pyrdma
