// loco_barrier: the latency of each wait at a barrier of all nodes (LOCO, figure 1b).
#include "systems/loco/barrier.h"

#include "systems/loco/workloads/options.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::measure {

namespace {

class LocoBarrier final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    static const std::vector<ParameterSpec> specs = with_loco_parameters({});
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    if (params.count("threads") != 1) {
      throw_parameter(params, "threads", "one thread of a node waits at a barrier; make it 1");
    }
    loco::Manager manager(env, loco_options(params));
    loco::Barrier barrier(manager, "bar");
    // Node 0 announces the wait after which all nodes stop; the barrier itself delivers the
    // announcement in time.
    loco::OwnedVar<std::uint64_t> last(manager, "last", 0);
    manager.wait_for_ready();
    loco::Caller& me = manager.caller(0);
    barrier.wait(me);
    recorder.prepare_threads(1);
    Histogram& latency = recorder.thread(0).histogram("barrier");
    Time begin = env.now();
    Interval interval(begin, params);
    for (std::uint64_t waits = 0; waits == 0 || last.load(me) != waits;) {
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

std::unique_ptr<Workload> make_loco_barrier() { return std::make_unique<LocoBarrier>(); }

}  // namespace pyrdma::measure
