// krcore_batch: one client posts a batch of READs to random nodes, each on a queue pair of its own,
// in one call (section 5.2, figure 14a).
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

class BatchLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = with_service_parameters({
        {"transport", Text("dc"), "", "of the physical queue pairs", 0, 0, {"dc", "rc"}},
        {"requests", Int{64}, "count", "of a batch, one for each queue pair", 1, 4096},
        {"size", Int{8}, "bytes", "of a request", 1, 1 << 20},
    });
    return specs;
  }

  // Node 0 is the client; all nodes are targets, itself included (ambiguity clients_240).
  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    Options options = service_options(params, env.nodes());
    options.cores = 1;
    const std::uint32_t requests = params.count("requests");
    const bool is_reliable = params.text("transport") == "rc";
    options.rc_queue_pairs = std::max(options.rc_queue_pairs, requests);
    Service service(env, options);
    App app(service);
    share_region(env, params.key("krcore/region/" + std::to_string(env.node())),
                 app.reg_mr(1 << 20));
    if (env.node() == 0) {
      recorder.prepare_threads(1);
      client(service, app, params, recorder.thread(0), requests, is_reliable);
      add_counters(recorder, service);
    }
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  static void client(Service& service, App& app, const measure::Params& params,
                     measure::ThreadRecorder& recorder, std::uint32_t requests, bool is_reliable) {
    Env& env = service.env();
    const std::uint32_t size = params.count("size");
    std::vector<fabric::RemoteRegion> regions;
    for (NodeId node = 0; node < env.nodes(); ++node)
      regions.push_back(shared_region(env, params.key("krcore/region/" + std::to_string(node))));
    Rng rng = env.rng("krcore/targets");
    const Registration own = app.reg_mr(size);
    const fabric::Sge sge{own.addr, size, own.key};
    std::vector<App::Post> posts(requests);
    std::vector<NodeId> targets(requests);
    for (std::uint32_t i = 0; i < requests; ++i) {
      const auto node = static_cast<NodeId>(1 + rng.below(env.nodes() - 1));
      targets[i] = node;
      // A reliable queue pair for each: the paper counts 64 connections.
      if (is_reliable) service.make_one_more(0, node);
      posts[i].queue = app.create_queue();
      app.connect(posts[i].queue, node, 1);
    }
    const auto round = [&] {
      for (std::uint32_t i = 0; i < requests; ++i) {
        fabric::WorkRequest& request = posts[i].request;
        request.sges = &sge;
        request.sge_count = 1;
        request.opcode = fabric::Opcode::kRead;
        request.rkey = regions[targets[i]].rkey;
        request.remote_addr = regions[targets[i]].addr + rng.below((1 << 20) - size) / 8 * 8;
      }
      if (app.push(posts) != posts.size())
        throw Error(ErrorCode::kInternal, "krcore: a request of a batch was refused");
      return app.wait_each(posts);
    };
    round();
    measure::Histogram& latency = recorder.histogram("batch");
    measure::Interval interval(env.now(), params);
    std::uint64_t polls = 0, rounds = 0;
    for (Time begin = env.now(); !interval.over(begin);) {
      polls += round();
      ++rounds;
      const Time end = env.now();
      if (interval.count(end)) latency.record(end - begin);
      begin = end;
    }
    interval.add_rates(recorder);
    recorder.add(
        "polled_queues", "count",
        static_cast<double>(polls) / static_cast<double>(std::max<std::uint64_t>(rounds, 1)));
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_batch() { return std::make_unique<BatchLoad>(); }

}  // namespace pyrdma::krcore
