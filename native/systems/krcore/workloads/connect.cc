// krcore_connect: clients connect to one server again and again (section 5.1, figures 8a, 9a), or
// make calls that find nothing to do, for comparison.
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

constexpr int kCalls = 64;  // that find nothing, between two looks at the clock

class ConnectLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = with_service_parameters({
        {"op", Text("connect"), "", "connects, or pops of an idle queue", 0, 0, {"connect", "pop"}},
        {"clients", Int{1}, "count",
         "connecting threads, spread over all nodes except node 0, the server", 1, 1 << 16},
        {"metadata", Text("meta_server"), "", "READs, or RPCs", 0, 0, {"meta_server", "rpc"}},
        {"cached", Int{0}, "bool",
         "keep the metadata of the server; else each connect asks a meta server", 0, 1},
        {"queues", Int{1}, "count", "created in a row, then connected one by one, then destroyed",
         1, 1 << 12},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    check_nodes(env, params, 1);
    Options options = service_options(params, env.nodes());
    options.dc_cache = params.flag("cached");
    options.metadata = params.choice<Metadata>("metadata");
    Service service(env, options);
    const Spread spread(env, params.count("clients"), 1);
    recorder.prepare_threads(spread.count);
    const std::uint64_t before = service.meta_reads();
    // Late clients would find an idle server.
    const Time begin = common_begin(env, params);
    if (spread.count != 0) {
      measure::on_threads(env, spread.count, [&](std::uint32_t i) {
        client(service, params, begin, recorder.thread(i));
      });
    }
    recorder.add("meta_reads", "count", static_cast<double>(service.meta_reads() - before));
    recorder.add("metadata_requests", "count", static_cast<double>(service.metadata_requests()));
    recorder.add("metadata_repeated", "count", static_cast<double>(service.metadata_repeated()));
    add_counters(recorder, service);
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  // As the public code does, a client creates, connects and ends one queue pair after another. The
  // connect alone is timed. Of several in a row the mean is recorded: the clock would take as long.
  static void client(Service& service, const measure::Params& params, Time common,
                     measure::ThreadRecorder& recorder) {
    Env& env = service.env();
    App app(service);
    measure::Histogram& latency = recorder.histogram("connect");
    const Queue warm = app.create_queue();
    app.connect(warm, 0, 1);
    env.sleep_until(common);
    measure::Interval interval(env.now(), params);
    if (params.text("op") == "pop") {
      pop(app, warm, interval);
      interval.add_rates(recorder);
      return;
    }
    std::vector<Queue> queues(params.count("queues"));
    for (Time now = env.now(); !interval.over(now);) {
      for (Queue& queue : queues) queue = service.create({});
      const Time begin = env.now();
      for (const Queue queue : queues) app.connect(queue, 0, 1);
      now = env.now();
      for (const Queue queue : queues) service.destroy(queue);
      const Time each = (now - begin) / static_cast<Time>(queues.size());
      for (std::size_t i = 0; i < queues.size(); ++i)
        if (interval.count(now)) latency.record(each);
    }
    interval.add_rates(recorder);
  }

  // The clock would take longer than a call.
  static void pop(App& app, Queue idle, measure::Interval& interval) {
    fabric::Completion none;
    for (Time now = app.env().now(); !interval.over(now);) {
      for (int i = 0; i < kCalls; ++i) app.pop(idle, {&none, 1});
      now = app.env().now();
      for (int i = 0; i < kCalls; ++i) interval.count(now);
    }
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_connect() { return std::make_unique<ConnectLoad>(); }

}  // namespace pyrdma::krcore
