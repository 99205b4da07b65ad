// krcore_mesh: workers on all nodes connect to each other (section 5.1, figure 8b). Each worker has
// a queue pair to every other one, and connects all of them in one call.
#include <algorithm>

#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

class MeshLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    static const std::vector<measure::ParameterSpec> specs =
        with_service_parameters({{"workers", Int{2}, "count", "spread over all nodes", 2, 4096}});
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const std::uint32_t workers = params.count("workers");
    Options options = service_options(params, env.nodes());
    const std::uint32_t own = workers / env.nodes() + (env.node() < workers % env.nodes() ? 1 : 0);
    options.virtual_queue_pairs = std::clamp(own * workers + 16, 64U, 65535U);
    Service service(env, options);
    recorder.prepare_threads(own);
    std::vector<std::unique_ptr<App>> apps;
    std::vector<std::vector<App::Target>> targets(own);
    for (std::uint32_t i = 0; i < own; ++i) {
      apps.push_back(std::make_unique<App>(service));
      const std::uint32_t self = i * env.nodes() + env.node();
      for (std::uint32_t other = 0; other < workers; ++other) {
        if (other == self) continue;
        targets[i].push_back(
            {apps[i]->create_queue(), other % env.nodes(), 1 + other / env.nodes()});
      }
    }
    service.clear_caches();
    runtime::node_barrier(env, params.key("krcore/begin"));
    const Time begin = common_begin(env, params);
    if (own != 0) {
      measure::on_threads(env, own, [&](std::uint32_t i) {
        env.sleep_until(begin);
        apps[i]->connect(targets[i]);
        const Time end = env.now();
        recorder.thread(i).histogram("worker").record(end - begin);
        recorder.thread(i).add("finished", "ns", static_cast<double>(end - begin));
      });
    }
    recorder.add("meta_reads", "count", static_cast<double>(service.meta_reads()));
    add_counters(recorder, service);
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_mesh() { return std::make_unique<MeshLoad>(); }

}  // namespace pyrdma::krcore
