// memcpy: copies within a node (Spindle, section 4.4 and figure 14).
#include <algorithm>
#include <cstring>
#include <vector>

#include "env/scope.h"
#include "measure/load.h"
#include "measure/scopes.h"
#include "measure/shared_workloads.h"

namespace pyrdma::measure {

namespace {

using Int = std::int64_t;

class Memcpy final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    static const std::vector<ParameterSpec> specs = {
        {"size", Int{64}, "B", "bytes of a copy", 1, 1LL << 32},
        {"footprint_bytes", Int{0}, "B",
         "memory that sources and targets cycle through; 0: one of each", 0, 1LL << 34},
        {"warmup_ns", Int{10'000}, "ns", "not measured, at the beginning", 0, 1e15},
        {"duration_ns", Int{1'000'000}, "ns", "measured time; 0: by iterations", 0, 1e15},
        {"iterations", Int{0}, "count", "measured copies, at most; 0: by time", 0, 1e15},
    };
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    const auto size = static_cast<std::size_t>(params.integer("size"));
    const std::size_t stride = (size + kCacheLine - 1) / kCacheLine * kCacheLine;
    const std::size_t places = std::max<std::size_t>(
        1, static_cast<std::size_t>(params.integer("footprint_bytes")) / stride);
    if (params.integer("duration_ns") == 0 && params.integer("iterations") == 0) {
      throw_parameter(params, "duration_ns", "and iterations are both 0; give one of them");
    }
    std::vector<char> source(places * stride, 1), target(places * stride, 2);
    const Footprint footprint(env, source.data(), 2 * source.size());
    recorder.prepare_threads(1);
    Histogram& latency = recorder.thread(0).histogram("memcpy");
    // A reading of the clock lasts as long as a small copy, so many copies share one reading.
    const std::uint64_t group = std::clamp<std::uint64_t>(16384 / size, 1, 256);
    Window window(env.now(), params.integer("warmup_ns"), params.integer("duration_ns"),
                  static_cast<std::uint64_t>(params.integer("iterations")));
    std::size_t place = 0;
    std::uint64_t copies = 0;
    for (Time now = env.now(); !window.over(now, copies);) {
      const Time begin = now;
      for (std::uint64_t i = 0; i < group; ++i) {
        std::memcpy(target.data() + place, source.data() + place, size);
        asm volatile(""
                     :
                     : "r"(target.data())
                     : "memory");  // the compiler must assume that the copy is read
        const Scope step(env, scope::copy);
        env.charge_copy(size, &footprint);
        place = place + stride < source.size() ? place + stride : 0;
      }
      copies += group;
      now = env.now();
      const Time each = (now - begin) / static_cast<Time>(group);
      if (window.open()) latency.record(each, group);
    }
    add_rates(recorder.thread(0), window, size);
  }
};

}  // namespace

std::unique_ptr<Workload> make_memcpy() { return std::make_unique<Memcpy>(); }

}  // namespace pyrdma::measure
