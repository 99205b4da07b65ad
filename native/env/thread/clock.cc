#include "env/thread/clock.h"

#include <ctime>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pyrdma {
namespace {

bool has_invariant_ticks() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // Leaf 0x80000007, EDX bit 8: the counter runs at one rate in all power states.
  if (__get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0) return true;
  // Virtual machines hide the bit. A kernel that keeps its own time by the counter checks it.
  std::ifstream source("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return static_cast<bool>(source >> name) && name == "tsc";
#else
  return false;
#endif
}

struct Sample {
  std::uint64_t ticks;
  Time ns;
};

}  // namespace

Time Clock::monotonic() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{now.tv_sec} * kSecond + now.tv_nsec;
}

Clock Clock::calibrate() {
  Clock clock;
  clock.start_ = monotonic();
#if defined(__x86_64__)
  if (!has_invariant_ticks()) return clock;
  // The tightest of several pairs counts: a preemption between the two readings would bend the
  // rate.
  const auto sample = [] {
    Sample best{};
    std::uint64_t best_width = ~0ULL;
    for (int i = 0; i < 32; ++i) {
      const std::uint64_t before = __builtin_ia32_rdtsc();
      const Time ns = monotonic();
      const std::uint64_t width = __builtin_ia32_rdtsc() - before;
      if (width < best_width) {
        best_width = width;
        best = {before + width / 2, ns};
      }
    }
    return best;
  };
  const Sample first = sample();
  const timespec pause{0, 10 * kMillisecond};
  nanosleep(&pause, nullptr);
  const Sample second = sample();
  const std::uint64_t ticks = second.ticks - first.ticks;
  if (second.ticks <= first.ticks || second.ns <= first.ns) return clock;
  clock.start_ticks_ = first.ticks;
  clock.start_ = first.ns;
  clock.ticks_to_ns_ = static_cast<std::uint64_t>(
      (static_cast<unsigned __int128>(second.ns - first.ns) << kShift) / ticks);
#endif
  return clock;
}

Clock Clock::adjusted(Time at, Time offset, double drift) const {
  Clock result = *this;
  result.start_ = start_ - offset;  // this machine's time when the other scale reads zero
#if defined(__x86_64__)
  if (ticks_to_ns_ == 0) return result;
  const auto ticks_of = [](Time ns, std::uint64_t rate) {
    const __int128 scaled = static_cast<__int128>(ns) << kShift;
    return static_cast<std::int64_t>(scaled / static_cast<__int128>(rate));
  };
  result.ticks_to_ns_ += static_cast<std::uint64_t>(
      static_cast<std::int64_t>(static_cast<double>(ticks_to_ns_) * drift));
  result.start_ticks_ += static_cast<std::uint64_t>(ticks_of(at, ticks_to_ns_) -
                                                    ticks_of(at + offset, result.ticks_to_ns_));
#else
  (void)at, (void)drift;
#endif
  return result;
}

Clock::Parts Clock::parts() const {
  return {start_ticks_, ticks_to_ns_, static_cast<std::uint64_t>(start_)};
}

Clock Clock::from_parts(const Parts& parts) {
  Clock clock;
  clock.start_ticks_ = parts[0];
  clock.ticks_to_ns_ = parts[1];
  clock.start_ = static_cast<Time>(parts[2]);
  return clock;
}

}  // namespace pyrdma
