// krcore_spike: processes that start under a load spike, connect to a RACE table and look keys up
// (section 5.3.1, figure 16).
//
// A second of the paper's load has more than 20 million lookups. The load is sampled: all workers
// look up for a short burst at the same times, and rest in between. A burst whose worker is not
// ready waits for it.
#include <algorithm>

#include "systems/krcore/workloads/race_table.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint32_t kLoaders = 1;  // clients that fill the table before the spike

class SpikeLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    static const std::vector<measure::ParameterSpec> specs = with_table_parameters({
        {"processes", Int{180}, "count", "that start at the spike, spread over the computing nodes",
         1, 4096},
        {"sampled_rc", Int{1}, "bool", "make reliable connections to frequent nodes", 0, 1},
        {"burst", Int{48}, "count", "lookups of a burst of a worker", 1, 1e6},
        {"interval_ms", Int{50}, "ms", "from burst to burst", 1, 1e6},
        {"end_ms", Int{1000}, "ms", "after the spike", 1, 1e6},
        {"frequent_requests", Int{50}, "count",
         "of a pool to a node in a sample, which make the node a frequent one", 1, 1e9},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const std::uint32_t processes = params.count("processes");
    TableNode node(env, params, processes);
    if (node.service() != nullptr && params.flag("sampled_rc"))
      node.service()->sample_peers(params.count("frequent_requests"));
    const std::uint32_t first = node.spread().first;
    std::unique_ptr<Thread> acceptor;
    if (node.is_storage()) {
      acceptor = env.spawn("accept", [&] {
        node.accept(processes, kLoaders);
        node.accept(0, processes);
      });
    }
    if (env.node() == first) fill(node, params, processes);
    runtime::node_barrier(env, params.key("krcore/filled"), 600 * kSecond);
    const Time spike = common_begin(env, params);
    if (!node.is_storage()) {
      recorder.prepare_threads(node.spread().count);
      // The node's system starts one process after another (Env::start_process).
      std::vector<std::unique_ptr<Thread>> workers;
      env.sleep_until(spike);
      for (std::uint32_t i = 0; i < node.spread().count; ++i) {
        env.start_process();
        workers.push_back(env.spawn("worker/" + std::to_string(i), [&, i] {
          worker(node, params, i, spike, recorder.thread(i));
        }));
      }
      for (const auto& each : workers) each->join();
    }
    if (acceptor != nullptr) acceptor->join();
    if (node.service() != nullptr) add_counters(recorder, *node.service());
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  template <class Each>
  static void take(race::Client& client, const Each& each) {
    for (const race::Result& result : client.wait(kForever)) {
      if (result.outcome == race::Outcome::kFailed) throw Error(*result.error);
      each(result);
    }
  }

  static void fill(TableNode& node, const measure::Params& params, std::uint32_t number) {
    TableNode::Ends ends = node.connect(number);
    const auto client = node.client(ends, 1000);
    const std::string value(params.count("value_bytes"), 'v');
    const auto keys = static_cast<std::uint64_t>(params.integer("keys"));
    for (std::uint64_t key = 0; key < keys; ++key) {
      while (client->is_full()) take(*client, [](const race::Result&) {});
      const std::string name = node.key_of(key);
      client->start(race::Kind::kInsert, key, std::as_bytes(std::span(name)),
                    std::as_bytes(std::span(value)));
    }
    while (client->under_way() != 0) take(*client, [](const race::Result&) {});
    client->drain(node.env().now() + 60 * kSecond);
  }

  // A user's process opens the device itself; the service has it open.
  static void worker(TableNode& node, const measure::Params& params, std::uint32_t index,
                     Time spike, measure::ThreadRecorder& recorder) {
    Env& env = node.env();
    const std::uint32_t number = node.spread().client(env.node(), index);
    if (node.is_raw()) env.device().open();
    TableNode::Ends ends = node.connect(number);
    const auto client = node.client(ends, index);
    recorder.add("ready", "ns", static_cast<double>(env.now() - spike));
    const Time interval = params.integer("interval_ms") * kMillisecond;
    const Time end = spike + params.integer("end_ms") * kMillisecond;
    const std::uint32_t burst = params.count("burst");
    const auto keys = static_cast<std::uint64_t>(params.integer("keys"));
    Rng rng = env.rng("krcore/spike/" + std::to_string(number));
    measure::Histogram& latency = recorder.histogram("get");
    std::vector<Time> begun(burst);
    for (Time at = spike + interval / 2; at < end; at += interval) {
      const Time late = std::max<Time>(0, env.now() - at);
      env.sleep_until(at);
      std::uint32_t next = 0, ended = 0;
      const Time start = env.now();
      while (ended < burst) {
        while (next < burst && !client->is_full()) {
          const std::string key = node.key_of(rng.below(keys));
          begun[next] = env.now() - late;
          client->start(race::Kind::kLookup, next, std::as_bytes(std::span(key)));
          ++next;
        }
        take(*client, [&](const race::Result& result) {
          latency.record(env.now() - begun[result.tag]);
          ++ended;
        });
      }
      if (late != 0) continue;  // not a burst of all workers
      const std::string bin = std::to_string((at - spike) / kMillisecond);
      recorder.add("burst_ns/" + bin, "ns", static_cast<double>(env.now() - start));
    }
    client->drain(env.now() + 60 * kSecond);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_spike() { return std::make_unique<SpikeLoad>(); }

}  // namespace pyrdma::krcore
