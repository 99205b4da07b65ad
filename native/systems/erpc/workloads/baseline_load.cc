// erpc_baseline: every thread sends batches of requests to random threads of all other nodes, and
// answers theirs (eRPC, section 6.2), over an RPC system that eRPC is compared with.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "env/scope.h"
#include "measure/interval.h"
#include "runtime/node_barrier.h"
#include "systems/erpc/baselines/farm_ring_rpc.h"
#include "systems/erpc/baselines/fasst_rpc.h"
#include "systems/erpc/scopes.h"
#include "systems/erpc/workloads/workloads.h"

namespace pyrdma::erpc {

namespace {

using Int = std::int64_t;
using Number = std::uint64_t;  // that a response repeats from its request

enum class BaselineSystem : std::uint8_t { kFasst, kFarmRing };

constexpr Time kBaselineTurns = 20 * kMicrosecond;  // between two readings of an idle thread

// Sets a flag at the end of a scope, also when the scope ends by an exception.
struct BaselineEnd {
  std::atomic<bool>& flag;
  ~BaselineEnd() { flag.store(true, std::memory_order_release); }
};

// The load of one thread.
class BaselineThread {
 public:
  BaselineThread(Env& env, const measure::Params& params, BaselineRpc& rpc, std::uint32_t thread,
                 const measure::Interval& common, measure::ThreadRecorder& recorder)
      : env_(env),
        rpc_(rpc),
        batch_(params.count("batch")),
        in_flight_(params.count("in_flight")),
        response_bytes_(params.count("response")),
        patience_(params.integer("wait_timeout_ms") * kMillisecond),
        interval_(common),
        recorder_(recorder),
        latency_(recorder.histogram("rpc")),
        rng_(env.rng(params.key("baseline/" + std::to_string(thread)))),
        request_(params.count("request")),
        begun_(in_flight_),
        numbers_(in_flight_) {}

  /// Sends requests until the interval is over, and serves until `stopping`. Sets `ended` when its
  /// own requests have ended.
  void run(const std::atomic<bool>& stopping, std::atomic<bool>& ended) {
    const BaselineEnd at_last{ended};
    now_ = env_.now();
    Time give_up = kForever;
    while (!stopping.load(std::memory_order_acquire)) {
      if (!env_.poll_until([this] { return turn(); }, now_ + kBaselineTurns)) now_ = env_.now();
      if (!interval_.over(now_)) continue;
      if (give_up == kForever) give_up = now_ + patience_;
      if (rpc_.in_flight() == 0 || now_ >= give_up) ended.store(true, std::memory_order_release);
    }
    interval_.add_rates(recorder_);
    recorder_.add("lost", "count", rpc_.in_flight());
    recorder_.add("dropped", "count", static_cast<double>(rpc_.dropped()));
  }

 private:
  bool turn() {
    bool is_read = false;  // one reading of the clock serves all responses of a poll
    const bool came = rpc_.poll([&](std::uint32_t slot, std::span<const std::byte> response) {
      if (!is_read) now_ = env_.now();
      is_read = true;
      take(slot, response);
    });
    while (!interval_.over(now_) && in_flight_ - rpc_.in_flight() >= batch_) {
      if (!issue()) break;
    }
    return came;
  }

  // Sends a batch. Returns false if there was no room for all of it.
  bool issue() {
    const Scope step(env_, scope::baseline_issue);
    const Time begin = env_.now();
    bool has_sent = true;
    for (std::uint32_t i = 0; i < batch_ && has_sent; ++i) {
      std::memcpy(request_.data(), &next_number_, sizeof next_number_);
      const std::uint32_t slot =
          rpc_.send(static_cast<std::uint32_t>(rng_.below(rpc_.peers())), request_);
      has_sent = slot != BaselineRpc::kNoSlot;
      if (!has_sent) break;
      begun_[slot] = begin;
      numbers_[slot] = next_number_++;
    }
    rpc_.flush();
    return has_sent;
  }

  void take(std::uint32_t slot, std::span<const std::byte> response) {
    const Scope step(env_, scope::baseline_answer);
    Number number = 0;
    if (response.size() == response_bytes_) std::memcpy(&number, response.data(), sizeof number);
    if (number != numbers_[slot])
      throw Error(ErrorCode::kInternal,
                  "erpc_baseline: request " + std::to_string(numbers_[slot]) +
                      " got the response of request " + std::to_string(number) + ", of " +
                      std::to_string(response.size()) + " bytes; report this as a bug");
    if (interval_.count(now_)) latency_.record(now_ - begun_[slot]);
  }

  Env& env_;
  BaselineRpc& rpc_;
  const std::uint32_t batch_, in_flight_, response_bytes_;
  const Time patience_;
  measure::Interval interval_;
  measure::ThreadRecorder& recorder_;
  measure::Histogram& latency_;
  Rng rng_;
  std::vector<std::byte> request_;
  std::vector<Time> begun_;      // by slot
  std::vector<Number> numbers_;  // by slot
  Number next_number_ = 1;
  Time now_ = 0;
};

class BaselineLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = own_parameters();
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    check_interval(params);
    if (params.integer("batch") > params.integer("in_flight"))
      throw_parameter(params, "batch", "exceeds in_flight; give at most as many");
    const Time patience = params.integer("wait_timeout_ms") * kMillisecond;
    const auto rpcs = make_rpcs(env, params);
    for (const auto& rpc : rpcs) rpc->connect(env.now() + runtime::kSetupTimeout);
    runtime::node_barrier(env, params.key("connected"));
    recorder.prepare_threads(params.count("threads"));
    const measure::Interval common(env.now(), params);
    std::atomic<bool> stopping{false};
    std::vector<std::atomic<bool>> ended(rpcs.size());
    // The load threads come first, so that they get the cores of a node's threads.
    const auto threads = static_cast<std::uint32_t>(rpcs.size());
    measure::on_threads(env, threads + 1, [&](std::uint32_t i) {
      if (i < threads) {
        BaselineThread load(env, params, *rpcs[i], i, common, recorder.thread(i));
        return load.run(stopping, ended[i]);
      }
      // This thread sleeps: one that polls would take a core from the load.
      const BaselineEnd at_last{stopping};
      env.sleep_until(env.now() + params.integer("warmup_ns") + params.integer("duration_ns"));
      while (!std::ranges::all_of(ended, [](const auto& flag) { return flag.load(); }))
        env.sleep_until(env.now() + kBaselineTurns);
      // A node serves until no node waits for a response.
      runtime::node_barrier(env, params.key("ended"), runtime::kSetupTimeout + patience);
    });
    runtime::node_barrier(env, params.key("left"));
  }

 private:
  static std::vector<measure::ParameterSpec> own_parameters() {
    std::vector<measure::ParameterSpec> specs = {
        {"system",
         std::string("fasst"),
         "",
         "RPCs to measure: in the style of FaSST (datagrams, no loss, no congestion control), or "
         "of FaRM (rings written by RDMA)",
         0,
         0,
         {"fasst", "farm_ring"}},
        {"threads", Int{1}, "count", "threads of a node", 1, 64},
        {"request", Int{32}, "B", "bytes of a request", sizeof(Number), 65'536},
        {"response", Int{32}, "B", "bytes of a response", sizeof(Number), 65'536},
        {"batch", Int{3}, "count", "requests that a thread sends at once", 1, 4096},
        {"in_flight", Int{60}, "count", "requests of a thread without a response", 1, 4096},
        {"ring_bytes",
         Int{16'384},
         "B",
         "bytes of a ring, a power of two",
         1024,
         64 << 20,
         {},
         "farm_ring"},
        {"wait_timeout_ms", Int{10'000}, "ms",
         "time that a thread waits for its last responses before it counts them as lost", 1, 1e9},
    };
    const std::vector<measure::ParameterSpec> interval = measure::interval_parameters();
    specs.insert(specs.end(), interval.begin(), interval.end());
    return specs;
  }

  static std::vector<std::unique_ptr<BaselineRpc>> make_rpcs(Env& env,
                                                             const measure::Params& params) {
    BaselineOptions options;
    options.name = params.key("baseline");
    options.threads = params.count("threads");
    options.in_flight = params.count("in_flight");
    options.max_bytes = std::max(params.count("request"), params.count("response"));
    options.ring_bytes = params.count("ring_bytes");
    const BaselineHandler handler = [bytes = params.count("response")](
                                        std::span<const std::byte> request,
                                        std::span<std::byte> response) -> std::size_t {
      std::memcpy(response.data(), request.data(), std::min(request.size(), sizeof(Number)));
      return bytes;
    };
    std::vector<std::unique_ptr<BaselineRpc>> rpcs;
    for (; options.thread < options.threads; ++options.thread) {
      if (params.choice<BaselineSystem>("system") == BaselineSystem::kFasst)
        rpcs.push_back(std::make_unique<FasstRpc>(env, options, handler));
      else
        rpcs.push_back(std::make_unique<FarmRingRpc>(env, options, handler));
    }
    return rpcs;
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_baseline() { return std::make_unique<BaselineLoad>(); }

}  // namespace pyrdma::erpc
