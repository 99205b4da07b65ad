// krcore_race: clients look keys of a RACE table up (section 5.3.1), YCSB-C.
#include <algorithm>

#include "systems/krcore/workloads/common_start.h"
#include "systems/krcore/workloads/race_table.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

class RaceLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    static const std::vector<measure::ParameterSpec> specs = with_table_parameters({
        {"clients", Int{1}, "count", "threads, spread over the nodes that have no table", 1,
         1 << 16},
        {"reads", 1.0, "share", "of lookups; all else are updates", 0, 1},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    const std::uint32_t clients = params.count("clients");
    TableNode node(env, params, clients);
    CommonStart start(env, params, node.is_storage() ? 0 : node.spread().count);
    if (node.is_storage()) {
      node.accept(0, clients);
      start.meet();
    } else {
      recorder.prepare_threads(node.spread().count);
      start.run([&](std::uint32_t i) { client(node, params, i, start, recorder.thread(i)); });
    }
    if (node.service() != nullptr) add_counters(recorder, *node.service());
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  static void client(TableNode& node, const measure::Params& params, std::uint32_t index,
                     CommonStart& start, measure::ThreadRecorder& recorder) {
    Env& env = node.env();
    const std::uint32_t clients = params.count("clients");
    const std::uint32_t number = node.spread().client(env.node(), index);
    TableNode::Ends ends = node.connect(number);
    const auto client = node.client(ends, index);
    const auto keys = static_cast<std::uint64_t>(params.integer("keys"));
    const std::string value(params.count("value_bytes"), 'v');
    const auto view = [](const std::string& text) { return std::as_bytes(std::span(text)); };
    const auto take = [&](const auto& each) {
      for (const race::Result& result : client->wait(kForever)) {
        if (result.outcome == race::Outcome::kFailed) throw Error(*result.error);
        each(result);
      }
    };
    for (std::uint64_t key = number; key < keys; key += clients) {
      while (client->is_full()) take([](const race::Result&) {});
      client->start(race::Kind::kInsert, key, view(node.key_of(key)), view(value));
    }
    while (client->under_way() != 0) take([](const race::Result&) {});
    if (!start.wait(index)) return;
    measure::Histogram& gets = recorder.histogram("get");
    measure::Histogram& updates = recorder.histogram("update");
    Rng rng = env.rng("krcore/keys/" + std::to_string(index));
    const double reads = params.real("reads");
    measure::Interval interval(env.now(), params);
    std::vector<Time> begun(params.count("window") * 2);
    std::uint64_t next = 0;
    std::uint64_t missing = 0;
    Time now = env.now();
    std::vector<std::uint64_t> free_tags;
    for (std::uint64_t tag = 0; tag < begun.size(); ++tag) free_tags.push_back(tag);
    while (!interval.over(now)) {
      while (!client->is_full()) {
        const std::uint64_t tag = free_tags.back();
        free_tags.pop_back();
        begun[tag] = now;
        const bool is_read = reads >= 1 || rng.uniform() < reads;
        const std::string key = node.key_of(rng.below(keys));
        if (is_read)
          client->start(race::Kind::kLookup, tag, view(key));
        else
          client->start(race::Kind::kUpdate, tag, view(key), view(value));
        ++next;
      }
      take([&](const race::Result& result) {
        now = env.now();
        free_tags.push_back(result.tag);
        missing += result.outcome != race::Outcome::kOk;
        if (!interval.count(now)) return;
        (result.kind == race::Kind::kLookup ? gets : updates).record(now - begun[result.tag]);
      });
    }
    while (client->under_way() != 0) take([](const race::Result&) {});
    client->drain(env.now() + 60 * kSecond);
    interval.add_rates(recorder);
    recorder.add("missing", "count", static_cast<double>(missing));
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_race() { return std::make_unique<RaceLoad>(); }

}  // namespace pyrdma::krcore
