// krcore_one_sided: clients read or write random words of servers through virtual queue pairs
// (section 5.2, figures 10, 12a, 13, 14b and 15b).
#include "systems/krcore/scopes.h"
#include "systems/krcore/workloads/common_start.h"
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

class OneSidedLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = with_service_parameters({
        {"op", Text("read"), "", "the operation", 0, 0, {"read", "write"}},
        {"transport", Text("dc"), "", "of the physical queue pairs", 0, 0, {"dc", "rc"}},
        {"size", Int{8}, "bytes", "of a request", 1, 1 << 26},
        {"batch", Int{1}, "count",
         "requests of a list, the last one with a signal; 1: a call posts one and waits for it", 1,
         4096},
        {"clients", Int{1}, "count", "threads, spread over the nodes that are no servers", 1,
         1 << 16},
        {"servers", Int{1}, "count", "the first nodes; each request goes to a random one", 1, 4096},
        {"region_bytes", Int{16} << 20, "bytes", "of a server, with random addresses", 64, 1e12},
        {"miss", Int{0}, "bool", "forget the checked regions before each request", 0, 1},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    const std::uint32_t servers = params.count("servers");
    check_nodes(env, params, servers);
    Options options = service_options(params, env.nodes());
    Service service(env, options);
    const Spread spread(env, params.count("clients"), servers);
    recorder.prepare_threads(spread.count);
    App app(service);
    if (env.node() < servers) {
      const auto bytes = static_cast<std::uint64_t>(params.integer("region_bytes"));
      share_region(env, params.key("krcore/region/" + std::to_string(env.node())),
                   app.reg_mr(bytes));
    }
    std::vector<fabric::RemoteRegion> regions;
    if (spread.count != 0) {
      for (NodeId server = 0; server < servers; ++server)
        regions.push_back(
            shared_region(env, params.key("krcore/region/" + std::to_string(server))));
    }
    runtime::node_barrier(env, params.key("krcore/begin"));
    CommonStart start(env, params, spread.count);
    start.run(
        [&](std::uint32_t i) { client(service, params, regions, recorder.thread(i), start, i); });
    add_counters(recorder, service);
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  static void client(Service& service, const measure::Params& params,
                     const std::vector<fabric::RemoteRegion>& regions,
                     measure::ThreadRecorder& recorder, CommonStart& start, std::uint32_t index) {
    Env& env = service.env();
    const auto size = params.count("size");
    const auto batch = params.count("batch");
    const bool is_read = params.text("op") == "read";
    const bool misses = params.flag("miss");
    App app(service);
    const Registration own = app.reg_mr(std::uint64_t{size} * std::min(batch, 64U));
    std::vector<Queue> queues;
    for (NodeId server = 0; server < regions.size(); ++server) {
      if (params.text("transport") == "rc") await_reliable(service, server);
      VqpOptions options;
      options.send_entries = std::max(batch, 64U);
      queues.push_back(app.create_queue(options));
      app.connect(queues.back(), server, 1);
    }
    Rng rng = env.rng("krcore/" + std::to_string(app.number()));
    const fabric::Sge sge{own.addr, size, own.key};
    std::vector<fabric::WorkRequest> list(batch);
    for (std::uint32_t i = 0; i < batch; ++i) {
      list[i].sges = &sge;
      list[i].sge_count = 1;
      list[i].opcode = is_read ? fabric::Opcode::kRead : fabric::Opcode::kWrite;
      list[i].flags = i + 1 == batch ? fabric::kSignaled : 0;
    }
    const auto one_list = [&] {
      const std::size_t server = regions.size() == 1 ? 0 : rng.below(regions.size());
      const fabric::RemoteRegion& region = regions[server];
      const std::uint64_t places = (region.length - size) / 8 + 1;
      for (fabric::WorkRequest& request : list) {
        const Scope step(env, scope::load_address);
        request.rkey = region.rkey;
        request.remote_addr = region.addr + rng.below(places) * 8;
      }
      fabric::Completion done;
      const PushResult result = app.push(queues[server], list, {&done, 1});
      if (result.error != fabric::PostError::kNone || done.status != fabric::Status::kSuccess) {
        throw Error(ErrorCode::kInternal,
                    std::string("krcore: a request ended as ") +
                        fabric::to_string(result.status != fabric::Status::kSuccess ? result.status
                                                                                    : done.status));
      }
    };
    for (std::size_t i = 0; i < 4 * regions.size(); ++i) one_list();  // all regions are checked
    if (!start.wait(index)) return;
    measure::Histogram& latency = recorder.histogram(params.text("op"));
    measure::Interval interval(env.now(), params);
    for (Time begin = env.now(); !interval.over(begin);) {
      const Scope step(env, scope::load_turn);
      if (misses) {
        service.forget_regions();
        begin = env.now();
      }
      one_list();
      const Time end = env.now();
      std::uint64_t counted = 0;
      for (std::uint32_t i = 0; i < batch; ++i) counted += interval.count(end) ? 1 : 0;
      if (counted != 0) latency.record(end - begin, counted);
      begin = end;
    }
    interval.add_rates(recorder);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_one_sided() { return std::make_unique<OneSidedLoad>(); }

}  // namespace pyrdma::krcore
