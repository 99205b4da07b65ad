// krcore_lite: one node's threads read other nodes' memory through LITE (section 5.2, figure 15b).
#include "systems/krcore/baselines/lite.h"

#include <algorithm>

#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

class LiteLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = [] {
      std::vector<measure::ParameterSpec> own = {
          {"op", Text("read"), "", "the operation", 0, 0, {"read", "write"}},
          {"threads", Int{1}, "count", "of node 0; the other nodes have the memory", 1, 256},
          {"mode",
           Text("sync"),
           "",
           "a call for each operation, or many under way",
           0,
           0,
           {"sync", "async"}},
          {"window", Int{1200}, "count",
           "async: operations that a thread posts, each in a call, before it waits for all in one "
           "call",
           1, 1 << 20},
          {"connections", Int{32}, "count",
           "of the pool, rounded up to as many for each of the other nodes", 1, 1 << 16},
          {"size", Int{64}, "bytes", "of an operation", 1, 1 << 26},
          {"region_bytes", Int{16} << 20, "bytes", "of a node, with random addresses", 64, 1e12},
          {"send_entries", Int{LiteOptions{}.send_entries}, "count", "of a queue pair", 1, 1 << 15},
          {"completions", Int{LiteOptions{}.completions}, "count", "of its completion queue", 1,
           1 << 15},
      };
      for (auto& spec : measure::interval_parameters()) own.push_back(std::move(spec));
      return own;
    }();
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    check_nodes(env, params, 1);
    LiteOptions options;
    options.name = params.key("krcore");
    const std::uint32_t peers = env.nodes() - 1;
    options.connections_per_peer = (params.count("connections") + peers - 1) / peers;
    options.send_entries = params.count("send_entries");
    options.completions = params.count("completions");
    Lite lite(env, options);
    const auto memory = lite.allocate(static_cast<std::size_t>(params.integer("region_bytes")));
    const auto key = [&](NodeId node) {
      return params.key("krcore/region/" + std::to_string(node));
    };
    env.device().rendezvous().publish_value(key(env.node()), memory->remote());
    if (env.node() == 0) {
      std::vector<fabric::RemoteRegion> regions;
      for (NodeId node = 1; node < env.nodes(); ++node) {
        regions.push_back(shared_region(env, key(node)));
        if (!lite.connect(node)) {
          throw Error(ErrorCode::kTimeout,
                      "krcore_lite: node " + std::to_string(node) + " made no connection")
              .blaming({node});
        }
      }
      const std::uint32_t threads = params.count("threads");
      recorder.prepare_threads(threads);
      // All threads begin at one time, so that all measure the same load.
      const Time begin = env.now() + kMillisecond;
      measure::on_threads(env, threads, [&](std::uint32_t i) {
        client(lite, params, regions, recorder.thread(i), i, begin);
      });
      recorder.add("connections", "count", static_cast<double>(lite.connections()));
      recorder.add("failed_queue_pairs", "count", static_cast<double>(lite.failed_queue_pairs()));
      if (lite.failed_queue_pairs() != 0) {
        recorder.add("first_failure", "ns", static_cast<double>(lite.first_failure() - begin));
      }
    }
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  // An application ends at its first failed operation.
  static void client(Lite& lite, const measure::Params& params,
                     const std::vector<fabric::RemoteRegion>& regions,
                     measure::ThreadRecorder& recorder, std::uint32_t thread, Time begin) {
    Env& env = lite.env();
    const std::uint32_t size = params.count("size");
    const bool is_sync = params.text("mode") == "sync";
    const std::uint32_t window = is_sync ? 1 : params.count("window");
    const bool is_read = params.text("op") == "read";
    const auto own = lite.allocate(size);
    const fabric::Sge sge = own->sge(0, size);
    const auto requests = std::make_unique<LiteRequest[]>(window);
    Rng rng = env.rng("krcore/lite/" + std::to_string(thread));
    const auto target = [&]() -> const fabric::RemoteRegion& {
      return regions[rng.below(regions.size())];
    };
    const auto offset = [&](const fabric::RemoteRegion& region) {
      return rng.below(region.length - size + 1) / 8 * 8;
    };
    const auto round = [&] {
      if (is_sync) {
        const fabric::RemoteRegion& region = target();
        return is_read ? lite.read(sge, region, offset(region))
                       : lite.write(sge, region, offset(region));
      }
      for (std::uint32_t i = 0; i < window; ++i) {
        const fabric::RemoteRegion& region = target();
        lite.post(is_read ? fabric::Opcode::kRead : fabric::Opcode::kWrite, sge, region,
                  offset(region), requests[i]);
      }
      return lite.wait(std::span(requests.get(), window));
    };
    measure::Histogram& latency = recorder.histogram(params.text("op"));
    env.sleep_until(begin);
    measure::Interval interval(begin, params);
    double failed = 0;
    for (Time from = env.now(); !interval.over(from);) {
      if (round() != fabric::Status::kSuccess) {
        failed = 1;
        break;
      }
      const Time end = env.now();
      for (std::uint32_t i = 0; i < window; ++i)
        if (interval.count(end)) latency.record(end - from);
      from = end;
    }
    interval.add_rates(recorder);
    recorder.add("failed_threads", "count", failed);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_lite() { return std::make_unique<LiteLoad>(); }

}  // namespace pyrdma::krcore
