// The clock of the real world reads the time-stamp counter where that is invariant (8 ns a
// reading), and calls clock_gettime elsewhere.
#pragma once
#include <array>
#include <cstdint>

#include "base/units.h"

namespace pyrdma {

/// Clock is plain data. A run calibrates it once and copies it to all nodes of the machine, so that
/// their times agree. Machines have different counters: a run of several machines adjusts each
/// machine's clock to that of the first one.
class Clock {
 public:
  Clock() = default;
  /// Takes about 10 ms.
  static Clock calibrate();

  /// Nanoseconds since calibrate(). Monotonic.
  Time now() const {
#if defined(__x86_64__)
    if (ticks_to_ns_ != 0) [[likely]] {
      const std::uint64_t ticks = __builtin_ia32_rdtsc() - start_ticks_;
      return static_cast<Time>((static_cast<unsigned __int128>(ticks) * ticks_to_ns_) >> kShift);
    }
#endif
    return monotonic() - start_;
  }
  /// Converts the reading `t` of now() to CLOCK_MONOTONIC, for system calls that take absolute
  /// times.
  Time to_monotonic(Time t) const { return start_ + t; }

  /// Returns this machine's clock as it reads on the scale of another one: its reading `t` becomes
  /// t + offset + drift * (t - at). Without an invariant counter the drift is left out.
  Clock adjusted(Time at, Time offset, double drift) const;

  /// Parts of a clock, for a message between processes of one machine.
  using Parts = std::array<std::uint64_t, 3>;
  Parts parts() const;
  static Clock from_parts(const Parts& parts);

 private:
  static Time monotonic();
  static constexpr int kShift = 40;  // leaves 24 bits of integer part: counters down to 1 kHz
  std::uint64_t start_ticks_ = 0;
  std::uint64_t ticks_to_ns_ = 0;  // fixed point; 0: the counter is unusable
  Time start_ = 0;
};

}  // namespace pyrdma
