// verbs_load: raw operations of the fabric, along perftest's axes.
#include <vector>

#include "measure/shared_workloads.h"
#include "measure/verbs_load/latency_loop.h"
#include "measure/verbs_load/rate_loop.h"
#include "measure/verbs_load/receivers.h"
#include "runtime/node_barrier.h"

namespace pyrdma::measure {

namespace {

using verbs_load::Connections;
using verbs_load::Load;
using verbs_load::Sender;

class VerbsLoad final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    return verbs_load::parameter_specs();
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    const Load load = verbs_load::make_load(params, env.nodes(), env.device().capabilities());
    Connections connections(env, params, load);
    const auto senders = static_cast<std::uint32_t>(connections.senders().size());
    recorder.prepare_threads(senders + static_cast<std::uint32_t>(connections.receivers().size()));
    verbs_load::Receivers receivers(env, load, connections.receivers(), recorder, senders);
    runtime::node_barrier(env, params.key("barrier/start"));
    // Further threads run beside the node's first thread, which takes sender 0.
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::uint32_t i = 1; i < senders; ++i) {
      threads.push_back(env.spawn("send" + std::to_string(i),
                                  [&, i] { send(env, load, connections, i, recorder); }));
    }
    if (senders != 0) send(env, load, connections, 0, recorder);
    for (auto& thread : threads) thread->join();
    // Passive nodes stay until all nodes are done.
    const Time long_enough = Window(0, load.warmup, load.duration, load.iterations).deadline();
    runtime::node_barrier(env, params.key("barrier/done"), long_enough + runtime::kSetupTimeout);
    receivers.stop();
  }

 private:
  static void send(Env& env, const Load& load, Connections& connections, std::uint32_t index,
                   Recorder& recorder) {
    Sender& sender = connections.senders()[index];
    ThreadRecorder& rows = recorder.thread(index);
    const Rng rng = env.rng("verbs_load/" + std::to_string(index));
    if (load.measure == verbs_load::Measure::kPingPong) {
      if (load.is_client(env.node())) {
        verbs_load::run_ping(env, load, sender, connections.inbox(), rows);
      } else {
        verbs_load::run_pong(env, load, sender, connections.inbox(), rows);
      }
    } else if (load.mode == verbs_load::Mode::kLatency) {
      verbs_load::run_latency(env, load, sender, rows, rng);
    } else if (load.mode == verbs_load::Mode::kOpen) {
      verbs_load::run_open(env, load, sender, rows, rng);
    } else if (load.signal_by_queue) {
      verbs_load::run_rate_by_queue(env, load, sender, rows, rng);
    } else {
      verbs_load::run_rate(env, load, sender, rows, rng);
    }
  }
};

}  // namespace

std::unique_ptr<Workload> make_verbs_load() { return std::make_unique<VerbsLoad>(); }

}  // namespace pyrdma::measure
