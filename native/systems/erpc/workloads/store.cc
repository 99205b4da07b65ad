// erpc_store: an ordered store that one node serves over RPCs (eRPC, section 7.2). Point reads run
// in the dispatch threads, scans in worker threads.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "check/models.h"
#include "measure/kv_history.h"
#include "runtime/node_barrier.h"
#include "systems/erpc/scopes.h"
#include "systems/erpc/workloads/node_meeting.h"
#include "systems/erpc/workloads/options.h"
#include "systems/erpc/workloads/store_handlers.h"
#include "systems/erpc/workloads/workloads.h"

namespace pyrdma::erpc {

namespace {

using Int = std::int64_t;

constexpr std::array<const char*, 3> kStoreNames{"get", "scan", "put"};
constexpr std::uint64_t kLoaded = 1U << 20;         // keys of a transaction that fills the store
constexpr std::uint64_t kLoadStride = 2654435761U;  // a prime above the number of keys

/// The keys of a run by their rank: a random one in each of `count` equal parts of the 64-bit
/// numbers. So the sum of a scan is known without a table. The value of a key is always its rank
/// modulo `count`, and its rank before the first put. So each value tells whose it is.
class StoreKeys {
 public:
  explicit StoreKeys(std::uint64_t count) : count_(count), part_(~std::uint64_t{0} / count) {}
  std::uint64_t count() const { return count_; }
  std::uint64_t key(std::uint64_t rank) const { return rank * part_ + mix64(rank) % part_; }
  /// Returns the value of the write `number`, from 1 on. The sum of a scan stays below 2^64 for
  /// fewer than 2^30 writes.
  std::uint64_t value(std::uint64_t rank, std::uint64_t number) const {
    return rank + count_ * number;
  }
  /// Returns the sum of the ranks of a scan that begins after `rank`.
  std::uint64_t sum_after(std::uint64_t rank) const {
    const std::uint64_t last = std::min(rank + kStoreScanned, count_ - 1);
    return (last - rank) * (rank + 1 + last) / 2;
  }
  bool is(std::uint64_t found, std::uint64_t ranks, bool has_puts) const {
    return has_puts ? found % count_ == ranks % count_ : found == ranks;
  }

 private:
  std::uint64_t count_, part_;
};

/// The endpoints that a client uses. The first `workers` endpoints of the server have the worker
/// threads, so the scans and puts of all clients go there.
struct StorePlan {
  std::uint32_t threads, workers, clients;
  std::uint32_t workers_of(std::uint32_t thread) const {
    return workers / threads + (thread < workers % threads ? 1 : 0);
  }
  std::uint32_t gets_of(std::uint32_t client) const { return client % threads; }
  std::uint32_t scans_of(std::uint32_t client) const {
    const std::uint32_t home = gets_of(client);
    return workers == 0 || workers_of(home) != 0 ? home : client % workers;
  }
  std::uint32_t sessions_of(std::uint32_t thread) const {
    std::uint32_t sessions = 0;
    for (std::uint32_t i = 0; i < clients; ++i)
      sessions += gets_of(i) == thread || scans_of(i) == thread ? 1 : 0;
    return sessions;
  }
};

struct StoreMix {
  double scans, puts;
  StoreRequest draw(Rng& rng) const {
    const double at = rng.uniform();
    if (at < scans) return kStoreScan;
    return at < scans + puts ? kStorePut : kStoreGet;
  }
};

/// The requests of one thread. Each that ends makes room for the next.
class StoreClient {
 public:
  struct Sessions {
    SessionId gets, scans;
  };
  /// `number` of `clients`: of the thread among those of all nodes.
  struct Place {
    std::uint32_t number, clients, in_flight;
  };

  StoreClient(Endpoint& endpoint, const Sessions& sessions, const Place& place,
              const StoreKeys& keys, const StoreMix& mix, Rng rng,
              measure::ThreadRecorder& recorder, measure::KvHistory* history)
      : endpoint_(endpoint),
        env_(endpoint.env()),
        sessions_(sessions),
        keys_(keys),
        mix_(mix),
        rng_(rng),
        history_(history),
        next_write_(place.number + 1),
        clients_(place.clients),
        calls_(place.in_flight) {
    for (std::size_t i = 0; i < kStoreNames.size(); ++i)
      latency_[i] = &recorder.histogram(kStoreNames[i]);
    for (Call& call : calls_) {
      call.request = endpoint.allocate(2 * kStoreWord);
      call.response = endpoint.allocate(kStoreWord);
    }
  }
  ~StoreClient() {
    for (const Call& call : calls_) {
      if (call.is_under_way) continue;  // the endpoint may still own them
      endpoint_.free(call.request);
      endpoint_.free(call.response);
    }
  }
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  void run(measure::Interval& interval, Time timeout) {
    interval_ = &interval;
    for (std::uint32_t i = 0; i < calls_.size(); ++i) issue(i, now());
    run_until([this] { return is_over_; }, kForever);
    if (!run_until([this] { return under_way_ == 0; }, env_.now() + timeout)) {
      throw Error(ErrorCode::kTimeout, "requests did not end: " + endpoint_.describe_pending(),
                  false);
    }
    if (failed_ != Outcome::kOk) {
      throw Error(ErrorCode::kUnavailable,
                  std::string("a request to the store ended as '") + to_string(failed_) +
                      "': has node 0 died, or does the load starve its event loop? See "
                      "failure_timeout_ns",
                  false);
    }
    if (!wrong_.empty()) throw Error(ErrorCode::kInternal, wrong_ + "; report this as a bug");
  }

 private:
  struct Call {
    MsgBuffer* request = nullptr;
    MsgBuffer* response = nullptr;
    Time began = 0;
    std::uint64_t rank = 0, value = 0;
    StoreRequest kind = kStoreGet;
    bool is_under_way = false;
  };

  template <class Done>
  bool run_until(Done&& done, Time deadline) {
    return endpoint_.run_until(
        [&] {
          if (!is_over_) is_over_ = interval_->over(endpoint_.recent());
          return done() || failed_ != Outcome::kOk || !wrong_.empty();
        },
        deadline);
  }

  // A history needs times that lie around the operation. The reading that a batch shares may be
  // earlier than the response.
  Time now() const { return history_ != nullptr ? env_.now() : endpoint_.recent(); }

  void issue(std::uint32_t index, Time now) {
    const Scope step(env_, scope::load_issue);
    Call& call = calls_[index];
    call.kind = mix_.draw(rng_);
    call.rank = rng_.below(keys_.count());
    call.began = now;
    const std::uint64_t key = keys_.key(call.rank);
    call.request->resize(call.kind == kStorePut ? 2 * kStoreWord : kStoreWord);
    std::memcpy(call.request->data(), &key, kStoreWord);
    if (call.kind == kStorePut) {
      call.value = keys_.value(call.rank, next_write_);
      next_write_ += clients_;
      std::memcpy(call.request->data() + kStoreWord, &call.value, kStoreWord);
    }
    call.is_under_way = true;
    ++under_way_;
    endpoint_.enqueue_request({call.kind == kStoreGet ? sessions_.gets : sessions_.scans, call.kind,
                               call.request, call.response, &StoreClient::end, this, index});
  }

  static void end(void* context, std::uint64_t tag, Outcome outcome) {
    static_cast<StoreClient*>(context)->finish(static_cast<std::uint32_t>(tag), outcome);
  }
  void finish(std::uint32_t index, Outcome outcome) {
    const Scope step(env_, scope::load_end);
    Call& call = calls_[index];
    call.is_under_way = false;
    --under_way_;
    if (outcome != Outcome::kOk) [[unlikely]] {
      failed_ = outcome;
      return;
    }
    if (!is_right(call)) [[unlikely]] {
      wrong_ = std::string("a ") + kStoreNames[call.kind] + " of the key of rank " +
               std::to_string(call.rank) + " got a wrong response of " +
               std::to_string(call.response->size()) + " bytes";
      return;
    }
    const Time at = now();
    if (history_ != nullptr) record(index, at);
    if (interval_->count(at)) latency_[call.kind]->record(at - call.began);
    if (interval_->over(at)) is_over_ = true;
    if (!is_over_) issue(index, at);
  }

  bool is_right(Call& call) const {
    const MsgBuffer& response = *call.response;
    if (call.kind == kStorePut) {
      const auto done = static_cast<std::byte>(StoreOutcome::kDone);
      return response.size() == sizeof done && response.data()[0] == done;
    }
    if (response.size() != kStoreWord) return false;
    std::memcpy(&call.value, response.data(), kStoreWord);
    const std::uint64_t ranks = call.kind == kStoreGet ? call.rank : keys_.sum_after(call.rank);
    return keys_.is(call.value, ranks, mix_.puts != 0);
  }

  void record(std::uint32_t index, Time now) {
    using check::Value;
    const Call& call = calls_[index];
    const Value value = Value::integer(static_cast<Int>(call.value));
    if (call.kind == kStoreScan) {
      if (keys_.count() <= check::kMostMapKeys)
        history_->ended(index, call.began, now, check::Function::kScan, call.rank + 1,
                        Value::integer(static_cast<Int>(kStoreScanned)), value);
      return;
    }
    const bool is_get = call.kind == kStoreGet;
    history_->ended(index, call.began, now, is_get ? check::Function::kGet : check::Function::kPut,
                    call.rank, is_get ? Value::none() : value, value);
  }

  Endpoint& endpoint_;
  Env& env_;
  const Sessions sessions_;
  const StoreKeys& keys_;
  const StoreMix& mix_;
  Rng rng_;
  std::array<measure::Histogram*, kStoreNames.size()> latency_{};
  measure::KvHistory* history_;
  measure::Interval* interval_ = nullptr;
  std::uint64_t next_write_;
  const std::uint32_t clients_;
  std::vector<Call> calls_;
  std::uint32_t under_way_ = 0;
  bool is_over_ = false;
  Outcome failed_ = Outcome::kOk;
  std::string wrong_;
};

class ErpcStore final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_endpoint_parameters({
        {"server_threads", Int{1}, "count",
         "dispatch threads of node 0, each with an endpoint; `threads` are those of a client", 1,
         64},
        {"workers", Int{1}, "count",
         "worker threads of node 0 in all, spread over its endpoints from the first on; they run "
         "scans and puts; 0: the dispatch threads run them",
         0, 64},
        {"keys", Int{10'000}, "count", "keys of 8 bytes in the store, with values of 8 bytes", 1,
         1e8},
        {"scans", 0.01, "", "fraction of scans, which sum the values of the next 128 keys", 0, 1},
        {"puts", 0.0, "", "fraction of puts; the rest, after the scans, are gets", 0, 1},
        {"in_flight", Int{1}, "count", "requests of a client's thread under way", 1, 1 << 16},
        measure::history_parameter(),
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    if (params.real("scans") + params.real("puts") > 1 + 1e-9)
      throw_parameter(params, "scans", "and puts are more than 1 together");
    if (env.nodes() < 2)
      throw Error(ErrorCode::kInvalidArgument,
                  "erpc_store: node 0 serves the others, and the cluster has 1 node; give 2 nodes");
    const bool is_server = env.node() == 0;
    const std::uint32_t threads = params.count(is_server ? "server_threads" : "threads");
    const StorePlan plan{params.count("server_threads"), params.count("workers"),
                         (env.nodes() - 1) * params.count("threads")};
    const StoreKeys keys(static_cast<std::uint64_t>(params.integer("keys")));
    recorder.prepare_threads(threads);
    std::optional<OrderedStore> store;
    if (is_server) {
      // A reader of each endpoint for its gets, and of each worker, or of each endpoint again.
      store.emplace(env, OrderedStoreOptions{.max_keys = keys.count(),
                                             .readers = 2 * plan.threads + plan.workers});
      fill(*store, keys);
    }
    runtime::node_barrier(env, params.key("filled"),
                          params.integer("wait_timeout_ms") * kMillisecond);
    NodeMeeting meeting(env, params, threads);
    measure::on_threads(env, threads, [&](std::uint32_t thread) {
      if (is_server) {
        run_server(env, params, recorder.thread(thread), meeting, plan, *store, thread);
      } else {
        run_client(env, params, recorder.thread(thread), meeting, plan, keys, thread);
      }
    });
  }

 private:
  // The keys come in no order, as in a store that has been in use.
  static void fill(OrderedStore& store, const StoreKeys& keys) {
    std::vector<StoreEntry> entries;
    for (std::uint64_t i = 0; i < keys.count();) {
      entries.clear();
      for (; i < keys.count() && entries.size() < kLoaded; ++i) {
        const std::uint64_t rank = i * kLoadStride % keys.count();
        entries.push_back({keys.key(rank), rank});
      }
      if (store.put_all(entries) == StoreOutcome::kDone) continue;
      throw Error(ErrorCode::kExhausted, "erpc_store: /dev/shm has no room for " +
                                             std::to_string(keys.count()) +
                                             " keys; give fewer `keys` or free /dev/shm");
    }
  }

  static void run_server(Env& env, const measure::Params& params, measure::ThreadRecorder& recorder,
                         NodeMeeting& meeting, const StorePlan& plan, OrderedStore& store,
                         std::uint32_t thread) {
    Options options = endpoint_options(params, std::max(1U, plan.sessions_of(thread)));
    options.workers = plan.workers_of(thread);
    StoreHandlers handlers(env, store, options.workers);
    env.device().open();
    Endpoint endpoint(env, options, thread);
    handlers.serve(endpoint);
    meeting.wait(endpoint, thread, 1);
    endpoint.run_for(params.integer("warmup_ns"));
    const Counters before = endpoint.counters();
    endpoint.run_for(params.integer("duration_ns"));
    recorder.add("handled", "count",
                 static_cast<double>(endpoint.counters().handled - before.handled));
    meeting.wait(endpoint, thread, 2);
  }

  static void run_client(Env& env, const measure::Params& params, measure::ThreadRecorder& recorder,
                         NodeMeeting& meeting, const StorePlan& plan, const StoreKeys& keys,
                         std::uint32_t thread) {
    const std::uint32_t threads = params.count("threads");
    const std::uint32_t number = (env.node() - 1) * threads + thread;
    const std::uint32_t in_flight = params.count("in_flight");
    env.device().open();
    Endpoint endpoint(env, endpoint_options(params, 2), thread);
    std::vector<SessionId> sessions{endpoint.create_session({0, plan.gets_of(number)})};
    if (plan.scans_of(number) != plan.gets_of(number))
      sessions.push_back(endpoint.create_session({0, plan.scans_of(number)}));
    endpoint.connect(sessions);
    std::optional<measure::KvHistory> history;
    if (params.flag("history")) {
      history.emplace(recorder, params,
                      measure::KvHistory::Place{env.node() - 1, env.nodes() - 1, thread, threads,
                                                in_flight, keys.count()},
                      keys.count() <= check::kMostMapKeys ? "map" : "kv");
    }
    const StoreMix mix{params.real("scans"), params.real("puts")};
    StoreClient client(
        endpoint, {sessions.front(), sessions.back()}, {number, plan.clients, in_flight}, keys, mix,
        env.rng("erpc_store/" + std::to_string(thread)), recorder, history ? &*history : nullptr);
    meeting.wait(endpoint, thread, 1);
    const Counters before = endpoint.counters();
    measure::Interval interval(env.now(), params);
    client.run(interval, params.integer("wait_timeout_ms") * kMillisecond);
    recorder.add("retransmissions", "count",
                 static_cast<double>(endpoint.counters().retransmissions - before.retransmissions));
    interval.add_rates(recorder);
    meeting.wait(endpoint, thread, 2);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_store() { return std::make_unique<ErpcStore>(); }

}  // namespace pyrdma::erpc
