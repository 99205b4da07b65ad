// loco_barrier: the latency of each wait at a barrier of all nodes (LOCO, figure 1b).
#include "systems/loco/barrier.h"

#include "systems/loco/scopes.h"
#include "systems/loco/workloads/options.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

namespace {

class LocoBarrier final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_runtime_parameters({});
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    if (params.count("threads") != 1) {
      throw_parameter(params, "threads", "one thread of a node waits at a barrier; make it 1");
    }
    Manager manager(env, loco_options(params));
    Barrier barrier(manager, "bar");
    // Node 0 announces the wait after which all nodes stop; the barrier itself delivers the
    // announcement in time.
    OwnedVar<std::uint64_t> last(manager, "last", 0, Updates::kPushed);
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    recorder.prepare_threads(1);
    measure::Histogram& latency = recorder.thread(0).histogram("barrier");
    Time begin = env.now();
    measure::Interval interval(begin, params);
    for (std::uint64_t waits = 0; waits == 0 || last.load(me) != waits;) {
      const Scope step(env, scope::barrier_turn);
      ++waits;
      if (env.node() == 0 && last.load(me) == 0 && interval.over(begin)) {
        last.store(waits);
        last.push(me);
      }
      barrier.wait(me);
      const Time end = env.now();
      if (interval.count(end)) latency.record(end - begin);
      begin = end;
    }
    interval.add_rates(recorder.thread(0));
    barrier.wait(me);
    manager.leave();
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_barrier() { return std::make_unique<LocoBarrier>(); }

}  // namespace pyrdma::loco
