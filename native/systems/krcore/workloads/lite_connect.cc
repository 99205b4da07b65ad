// krcore_lite_connect: clients connect to one server again and again through LITE, each time with a
// cache miss (sections 2.3.2 and 5.1, figure 8a).
#include "systems/krcore/baselines/lite.h"
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

class LiteConnectLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = [] {
      std::vector<measure::ParameterSpec> own = {
          {"clients", Int{1}, "count",
           "connecting threads, spread over the nodes but the server and a manager", 1, 1 << 16},
          {"control",
           Text("decentral"),
           "",
           "the two nodes by datagrams, or a manager, one connection after another",
           0,
           0,
           {"decentral", "central"}},
          {"cached", Int{0}, "bool", "the connection is cached: the system call alone", 0, 1},
          {"manager_turn_ns", Int{LiteOptions{}.manager_turn}, "ns",
           "central: time of the manager for a connection, beside the server's", 0, 1e12},
      };
      for (auto& spec : measure::interval_parameters()) own.push_back(std::move(spec));
      return own;
    }();
    return specs;
  }

  // Node 0 is the server, and node 1 the manager if there is one.
  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    LiteOptions options;
    options.name = params.key("krcore");
    options.connections_per_peer = 1;
    options.control = params.choice<LiteControl>("control");
    options.manager_turn = params.integer("manager_turn_ns");
    const std::uint32_t servers = options.control == LiteControl::kCentral ? 2 : 1;
    check_nodes(env, params, servers);
    options.manager = servers - 1;
    Lite lite(env, options);
    const Spread spread(env, params.count("clients"), servers);
    recorder.prepare_threads(spread.count);
    const std::uint64_t before = lite.connections();
    if (spread.count != 0) {
      measure::on_threads(env, spread.count,
                          [&](std::uint32_t i) { client(lite, params, recorder.thread(i)); });
    }
    recorder.add("connections", "count", static_cast<double>(lite.connections() - before));
    recorder.add("memory", "bytes", static_cast<double>(lite.memory(false)));
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  // Connections stay, as in a pool: the paper counts what a server creates.
  static void client(Lite& lite, const measure::Params& params, measure::ThreadRecorder& recorder) {
    Env& env = lite.env();
    const bool is_cached = params.flag("cached");
    if (is_cached) lite.connect(0);
    measure::Histogram& latency = recorder.histogram("connect");
    measure::Interval interval(env.now(), params);
    for (Time now = env.now(); !interval.over(now);) {
      const Time begin = now;
      if (!(is_cached ? lite.connect(0) : lite.connect_anew(0))) {
        throw Error(ErrorCode::kTimeout, "krcore_lite_connect: the server made no connection")
            .blaming({0});
      }
      now = env.now();
      if (interval.count(now)) latency.record(now - begin);
    }
    interval.add_rates(recorder);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_lite_connect() {
  return std::make_unique<LiteConnectLoad>();
}

}  // namespace pyrdma::krcore
