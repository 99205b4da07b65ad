// idle: threads that wait for an event that never comes. It measures the cost of a waiting node.
#include <string>
#include <vector>

#include "measure/shared_workloads.h"

namespace pyrdma::measure {

namespace {

using Int = std::int64_t;

class Idle final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    static const std::vector<ParameterSpec> specs = {
        {"threads", Int{1}, "count", "threads per node that wait", 1, 1024},
        {"duration_ns", Int{1'000'000}, "ns", "how long they wait", 0, 1e15},
    };
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    const Time begin = env.now();
    const Time end = begin + params.integer("duration_ns");
    const auto wait = [&env, end] { env.poll_until([] { return false; }, end); };
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::uint32_t i = 1; i < params.count("threads"); ++i) {
      threads.push_back(env.spawn("idle" + std::to_string(i), wait));
    }
    wait();
    for (auto& thread : threads) thread->join();
    recorder.add("elapsed", "ns", static_cast<double>(env.now() - begin));
  }
};

}  // namespace

std::unique_ptr<Workload> make_idle() { return std::make_unique<Idle>(); }

}  // namespace pyrdma::measure
