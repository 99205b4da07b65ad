// A user's own channel, built against the installed headers: a counter to which every node adds
// without waiting, and which every node can sum. It uses LOCO's table: each node counts in its own
// row, which no other node writes, and pushes the row to the others.
#include <cstring>

#include "base/error.h"
#include "measure/workload.h"
#include "systems/loco/barrier.h"

namespace {

using namespace pyrdma;

class ShardedCounter : public loco::Channel {
 public:
  ShardedCounter(loco::Manager& manager, std::string name)
      : Channel(manager, std::move(name)), table_(*this, "sst") {
    join();
  }
  /// Adds to this node's row at once; the other nodes see the change when the push arrives.
  loco::AckKey add(loco::Caller& me, std::int64_t n) {
    table_.store_mine(mine_ += n);
    return table_.push_broadcast(me);
  }
  /// The sum of the rows that have arrived at this node. Never more than the nodes have added.
  std::int64_t sum() {
    std::int64_t all = 0;
    for (std::uint32_t rank = 0; rank < table_.rows(); ++rank) all += *table_.row(rank).try_load();
    return all;
  }

 private:
  loco::Sst<std::int64_t> table_;
  std::int64_t mine_ = 0;
};

/// Every node adds `adds` times; after a barrier all nodes see the same sum.
class CountTogether final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = {
        {"adds", std::int64_t{100}, "count", "how often each node adds", 1, 1e9}};
    return specs;
  }
  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    loco::ManagerOptions options;
    options.name = params.key("count_together");
    loco::Manager manager(env, options);
    ShardedCounter counter(manager, "counter");
    loco::Barrier barrier(manager, "barrier");
    manager.wait_for_ready();
    loco::Caller& me = manager.caller(0);
    const Time begin = env.now();
    for (std::int64_t i = 0; i < params.integer("adds"); ++i) counter.add(me, 1);
    recorder.add("elapsed", "ns", static_cast<double>(env.now() - begin));
    barrier.wait(me);
    recorder.add("sum", "count", static_cast<double>(counter.sum()));
    manager.leave();
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) pyrdma::measure::Workload*
pyrdma_make_workload(const char* name) {
  return std::strcmp(name, "count_together") == 0 ? new CountTogether : nullptr;
}
