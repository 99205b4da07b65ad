#include "measure/cpu_ops/cpu_ops.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/quote.h"
#include "base/rng.h"
#include "env/thread/clock.h"
#include "env/thread/small_process.h"
#include "env/thread/thread_env.h"
#include "measure/cpu_ops/code.h"

namespace pyrdma::measure {
namespace {

using Cores = std::vector<int>;

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

void need_two_cores(std::string_view kind, const Cores& cores) {
  if (cores.size() >= 2) return;
  throw Error(ErrorCode::kUnavailable,
              in_quotes(kind) +
                  " needs 2 cores, and this process may use 1; calibrate on a machine "
                  "with more, or widen the CPU affinity (taskset)");
}

/// Returns the nanoseconds of one of the `operations` operations of a turn. The lower quartile of
/// the turns counts, since other programs take the core, or a part of it, from some turns.
template <class Turn>
double repeat(Time duration, double operations, const Turn& turn) {
  const Clock clock = Clock::calibrate();
  turn();  // fills the caches
  std::vector<Time> turns;
  turns.reserve(1 << 16);
  const Time begin = clock.now();
  Time now = begin;
  do {
    turn();
    const Time end = clock.now();
    turns.push_back(end - now);
    now = end;
  } while (now - begin < duration && turns.size() < turns.capacity());
  const auto quartile = turns.begin() + static_cast<std::ptrdiff_t>(turns.size() / 4);
  std::nth_element(turns.begin(), quartile, turns.end());
  return static_cast<double>(*quartile) / operations;
}

struct alignas(64) Word {  // alone in its line
  std::atomic<std::uint64_t> value{0};
};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

double time_add(Time duration) {
  std::uint64_t sum = 1;
  const std::uint64_t one = 1;
  return repeat(duration, 64 * 1024, [&] {
    for (int i = 0; i < 1024; ++i) {
#if defined(__x86_64__)
      // Newer cores take several additions of constants in one cycle, so the addend is a register.
      asm volatile(".rept 64\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(one));
#else
      asm volatile(".rept 64\n\tadd %0, %0, %1\n\t.endr" : "+r"(sum) : "r"(one));
#endif
    }
  });
}

double time_code(Time duration) {
  RequestCode code;
  code.run(4096);
  const double time = repeat(duration, 4096, [&] { code.run(4096); });
  asm volatile("" : : "r"(code.result()));
  return time;
}

double time_atomic(Time duration) {
  Word word;
  return repeat(duration, 4096, [&] {
    for (int i = 0; i < 4096; ++i) word.value.fetch_add(1, std::memory_order_seq_cst);
  });
}

double time_clock(Time duration) {
  const Clock clock = Clock::calibrate();
  return repeat(duration, 4096, [&] {
    for (int i = 0; i < 4096; ++i) asm volatile("" : : "r"(clock.now()));
  });
}

double time_system_call(Time duration) {
  return repeat(duration, 256, [] {
    for (int i = 0; i < 256; ++i) syscall(SYS_getppid);
  });
}

double time_process_start(Time duration) { return repeat(duration, 1, run_small_process); }

struct alignas(64) Line {
  Line* next = nullptr;
};

/// Returns lines that form one cycle in random order (Sattolo's algorithm).
std::vector<Line> random_cycle(std::uint64_t bytes) {
  if (bytes < 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                "bytes is " + std::to_string(bytes) + "; a walk over lines needs at least 4096");
  }
  std::vector<Line> lines(bytes / sizeof(Line));
  std::vector<std::uint32_t> order(lines.size());
  std::iota(order.begin(), order.end(), 0U);
  Rng rng(1, 0, "cpu_ops/line");
  for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[rng.below(i)]);
  for (std::size_t i = 0; i < order.size(); ++i) lines[i].next = &lines[order[i]];
  return lines;
}

double time_line(std::uint64_t bytes, Time duration) {
  const std::vector<Line> lines = random_cycle(bytes);
  const Line* at = lines.data();
  const auto walk = [&](std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) at = at->next;
    asm volatile("" : "+r"(at));
  };
  // random_cycle() has just written the lines, so the caches hold what they can hold. A walk over
  // all lines of a large footprint would take seconds.
  walk(std::min<std::size_t>(lines.size(), 1 << 18));
  return repeat(duration, 4096, [&] { walk(4096); });
}

/// Threads on the second core and those after it, which repeat `turn(i)` until the destructor.
class Others {
 public:
  template <class Turn>
  Others(std::span<const int> cores, const Turn& turn) {
    for (std::size_t i = 0; i < cores.size(); ++i) {
      threads_.emplace_back([this, turn, i, core = cores[i]] {
        pin_to(core);
        while (stop_.value.load(std::memory_order_relaxed) == 0) turn(i);
      });
    }
  }
  ~Others() {
    stop_.value = 1;
    for (std::thread& thread : threads_) thread.join();
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;

 private:
  Word stop_;
  std::vector<std::thread> threads_;
};

double time_line_loaded(std::uint64_t bytes, Time duration, const Cores& cores) {
  const std::span<const int> others = std::span(cores).subspan(1);
  std::vector<std::vector<char>> sources(others.size()), targets(others.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    sources[i].assign(bytes / 2, 1);
    targets[i].assign(bytes / 2, 2);
  }
  const Others copying(others, [&](std::size_t i) {
    constexpr std::size_t kPart = 1 << 20;
    for (std::size_t at = 0; at + kPart <= sources[i].size(); at += kPart)
      std::memcpy(&targets[i][at], &sources[i][at], kPart);
  });
  return time_line(bytes, duration);
}

// The line goes to the other core and back. The other core takes an even number and writes the next
// odd one.
double time_core_line(Time duration, const Cores& cores) {
  Word word;
  std::atomic<std::uint64_t>& line = word.value;
  line = 1;
  const Others other(std::span<const int>(cores).subspan(1, 1), [&](std::size_t) {
    const std::uint64_t seen = line.load(std::memory_order_acquire);
    if (seen % 2 == 0)
      line.store(seen + 1, std::memory_order_release);
    else
      relax();  // a core that loads at full speed takes the line back before the next store
  });
  std::uint64_t next = 2;
  return repeat(duration, 2.0 * 256, [&] {
    for (int i = 0; i < 256; ++i, next += 2) {
      line.store(next, std::memory_order_release);
      while (line.load(std::memory_order_acquire) != next + 1) relax();
    }
  });
}

double time_context_switch(Time duration) {  // threads inherit the core
  const int to_other = eventfd(0, 0), back = eventfd(0, 0);
  const auto pass_on = [](int from, int to) {
    std::uint64_t token = 1;
    return read(from, &token, sizeof token) == sizeof token && token == 1 &&
           write(to, &token, sizeof token) == sizeof token;
  };
  std::thread other([&] {
    while (pass_on(to_other, back)) {
    }
  });
  const std::uint64_t begin = 1, end = 2;
  bool done = write(to_other, &begin, sizeof begin) == sizeof begin;
  const double time = repeat(duration, 2.0 * 64, [&] {
    for (int i = 0; i < 64; ++i) done = done && pass_on(back, to_other);
  });
  std::uint64_t token = 0;
  done = done && read(back, &token, sizeof token) == sizeof token;
  done = done && write(to_other, &end, sizeof end) == sizeof end;
  other.join();
  close(to_other);
  close(back);
  return time;
}

double time_of(std::string_view kind, std::uint64_t bytes, Time duration, const Cores& cores) {
  if (kind == "add") return time_add(duration);
  if (kind == "code") return time_code(duration);
  if (kind == "line") return time_line(bytes, duration);
  if (kind == "line_loaded") return time_line_loaded(bytes, duration, cores);
  if (kind == "atomic") return time_atomic(duration);
  if (kind == "clock") return time_clock(duration);
  if (kind == "system_call") return time_system_call(duration);
  if (kind == "context_switch") return time_context_switch(duration);
  if (kind == "process_start") return time_process_start(duration);
  if (kind == "core_line") return time_core_line(duration, cores);
  throw Error(ErrorCode::kInvalidArgument,
              "kind is " + in_quotes(kind) +
                  "; it must be add, code, line, line_loaded, atomic, clock, system_call, "
                  "context_switch, process_start or core_line");
}

}  // namespace

double cpu_operation_ns(std::string_view kind, std::uint64_t bytes, Time duration) {
  const Cores cores = usable_cores();
  if (kind == "core_line" || kind == "line_loaded") need_two_cores(kind, cores);
  double time = 0;
  std::exception_ptr failure;
  std::thread measuring([&] {  // the caller keeps its own cores
    try {
      pin_to(cores.front());
      time = time_of(kind, bytes, duration, cores);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
  });
  measuring.join();
  if (failure) std::rethrow_exception(failure);
  return time;
}

}  // namespace pyrdma::measure
