// tailwind_store: clients read and write objects of a store (Tailwind, section 4).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "measure/interval.h"
#include "measure/kv_history.h"
#include "measure/zipf.h"
#include "systems/tailwind/client/client.h"
#include "systems/tailwind/coordinator/coordinator.h"
#include "systems/tailwind/rpc/background.h"
#include "systems/tailwind/scopes.h"
#include "systems/tailwind/server.h"
#include "systems/tailwind/workloads/meeting.h"
#include "systems/tailwind/workloads/options.h"
#include "systems/tailwind/workloads/workloads.h"

namespace pyrdma::tailwind {

namespace {

using Int = std::int64_t;
constexpr const char* kTable = "load";
constexpr Time kLongestLoad = 1000 * 3600 * kSecond;

/// The operations of one client thread: each slot has one under way.
class StoreLoad {
 public:
  StoreLoad(Env& env, const measure::Params& params, Client& client, std::uint64_t table,
            std::uint32_t thread, const std::atomic<bool>& has_failed,
            measure::ThreadRecorder& recorder)
      : env_(env),
        client_(client),
        table_(table),
        has_failed_(has_failed),
        keys_(static_cast<std::uint64_t>(params.integer("keys")), params.real("zipf")),
        is_uniform_(params.real("zipf") == 0),
        reads_(params.real("reads")),
        key_bytes_(params.count("key_bytes")),
        value_(params.count("value_bytes")),
        patience_(params.integer("wait_timeout_ms") * kMillisecond),
        rng_(env.rng("tailwind/load/" + std::to_string(thread))),
        put_(recorder.histogram("put")),
        get_(recorder.histogram("get")),
        word_((std::uint64_t{env.node()} << 40) | (std::uint64_t{thread} << 32)) {
    if (params.flag("history")) {
      const NodeId first = params.count("servers") + 1;
      const std::uint64_t threads = params.count("threads");
      history_.emplace(
          recorder, params,
          measure::KvHistory::Place{env.node() - first, env.nodes() - first, thread, threads,
                                    params.count("in_flight"),
                                    static_cast<std::uint64_t>(params.integer("keys"))});
    }
    slots_.resize(params.count("in_flight"));
  }

  /// Runs until the interval is over and the last operation has ended, or until another thread of
  /// the node has failed.
  void run(measure::Interval& interval) {
    interval_ = &interval;
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) begin(slot);
    while (busy_ != 0 && !has_failed_.load(std::memory_order_acquire)) {
      const std::uint64_t ended = ended_;
      const auto moves = [&] {
        return busy_ == 0 || ended_ != ended || has_failed_.load(std::memory_order_acquire);
      };
      if (client_.run_until(moves, env_.now() + patience_)) continue;
      const Bytes key = key_of(slots_.front().key, key_bytes_);
      throw Error(ErrorCode::kTimeout,
                  "no operation has ended for " + std::to_string(patience_ / kMillisecond) +
                      " ms; the oldest is for " + client_.describe(table_, key));
    }
  }
  std::uint64_t attempts() const { return attempts_; }

 private:
  struct Slot {
    Time began = 0;
    std::uint64_t key = 0, word = 0;
    bool is_read = false;
  };

  void begin(std::uint32_t number) {
    const Scope step(env_, scope::load_issue);
    Slot& slot = slots_[number];
    ++busy_;
    slot.began = env_.now();
    // Ranks are spread over the keys, so that the first ones do not all belong to one server.
    slot.key = is_uniform_ ? rng_.below(keys_.elements()) : mix64(keys_(rng_)) % keys_.elements();
    slot.is_read = rng_.uniform() < reads_;
    slot.word = slot.is_read ? 0 : ++word_;
    std::memcpy(value_.data(), &slot.word, sizeof slot.word);
    const Bytes key = key_of(slot.key, key_bytes_);
    client_.start(slot.is_read ? Opcode::kRead : Opcode::kWrite, table_, key,
                  slot.is_read ? ByteView() : ByteView(value_),
                  [this, number](const Result& result) { end(number, result); });
  }

  void end(std::uint32_t number, const Result& result) {
    const Scope step(env_, scope::load_end);
    Slot& slot = slots_[number];
    --busy_;
    ++ended_;
    attempts_ += result.attempts;
    const Time now = env_.now();
    std::uint64_t word = 0;
    if (result.status == StoreStatus::kLogFull) {
      throw Error(ErrorCode::kExhausted,
                  "the log of a server is full; give a larger log_bytes, fewer keys or shorter "
                  "values",
                  false);
    }
    if (slot.is_read && result.status == StoreStatus::kOk && result.value.size() == value_.size()) {
      std::memcpy(&word, result.value.data(), sizeof word);
    } else if (result.status != StoreStatus::kOk) {
      throw Error(ErrorCode::kInternal, "key " + std::to_string(slot.key) + " is not there, or " +
                                            "its value has another length; report this as a bug");
    }
    if (history_) record(number, slot, word, now);
    if (interval_->count(now)) (slot.is_read ? get_ : put_).record(now - slot.began);
    if (!interval_->over(now)) begin(number);
  }

  void record(std::uint32_t number, const Slot& slot, std::uint64_t word, Time now) {
    const auto value = [](std::uint64_t w) {
      return check::Value::integer(static_cast<std::int64_t>(w));
    };
    if (slot.is_read)
      history_->ended(number, slot.began, now, check::Function::kGet, slot.key,
                      check::Value::none(), value(word));
    else
      history_->ended(number, slot.began, now, check::Function::kPut, slot.key, value(slot.word),
                      value(slot.word));
  }

  Env& env_;
  Client& client_;
  const std::uint64_t table_;
  const std::atomic<bool>& has_failed_;
  const measure::Zipf keys_;
  const bool is_uniform_;
  const double reads_;
  const std::uint32_t key_bytes_;
  Bytes value_;
  const Time patience_;
  Rng rng_;
  measure::Histogram &put_, &get_;
  std::optional<measure::KvHistory> history_;
  measure::Interval* interval_ = nullptr;
  std::vector<Slot> slots_;
  std::uint64_t word_;  // of the last value written, unlike all others
  std::uint64_t ended_ = 0, attempts_ = 0;
  std::uint32_t busy_ = 0;
};

class TailwindStore final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_store_parameters({
        {"threads", Int{1}, "count", "client threads of a node", 1, 64},
        {"in_flight", Int{1}, "count", "operations of a client thread under way", 1, 1024},
        {"reads", 0.0, "", "fraction of reads; the rest are writes", 0, 1},
        {"zipf", 0.99, "", "skew of the keys (YCSB: 0.99); 0: uniform", 0, 2},
        {"primaries", Int{0}, "count", "servers that have the table; 0: all", 0, 1000},
        {"preload",
         std::string("replicated"),
         "",
         "whether backups get the objects that are there before the load; without them a crash "
         "loses these objects",
         0,
         0,
         {"replicated", "local"}},
        measure::history_parameter(),
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    Options options = store_options(params);
    // A node with cores of its own polls: the first requests of a load do not wait for threads that
    // sleep. Elsewhere the threads of all nodes share the cores.
    if (env.cores() != 0) options.idle_after = kForever;
    if (env.nodes() < options.servers + 2) {
      measure::throw_parameter(params, "servers",
                               "needs " + std::to_string(options.servers + 2) +
                                   " nodes with the coordinator and a client; the cluster has " +
                                   std::to_string(env.nodes()));
    }
    if (params.count("primaries") > options.servers)
      measure::throw_parameter(params, "primaries",
                               "is more than the " + std::to_string(options.servers) + " servers");
    measure::check_interval(params);
    if (env.node() < options.servers) return serve(env, params, options, recorder);
    if (env.node() == options.coordinator) return coordinate(env, params, options);
    const std::uint32_t threads = params.count("threads");
    recorder.prepare_threads(threads);
    std::atomic<bool> has_failed{false};
    measure::on_threads(env, threads, [&](std::uint32_t thread) {
      try {
        run_client(env, params, options, thread, has_failed, recorder.thread(thread));
      } catch (const std::exception&) {
        has_failed.store(true, std::memory_order_release);
        throw;
      }
    });
    Meeting(env, params).say("done");
  }

 private:
  /// A thread beside the dispatch thread: it does `before`, then waits for the ends of the clients.
  /// An error of one of the two threads ends the other one.
  class Ending {
   public:
    Ending(Env& env, const measure::Params& params, const Options& options, Watch& watch,
           std::function<void()> before)
        : env_(env), watch_(watch) {
      const auto body = [this, &params, &options, before] {
        try {
          before();
          Meeting(env_, params)
              .await("done", options.servers + 1, env_.nodes(), kLongestLoad,
                     [this] { return gives_up_.load(std::memory_order_acquire); });
        } catch (const std::exception&) {
          end();
          throw;
        }
        end();
      };
      thread_ = env.spawn("tailwind/end", body, background_core(env, options.workers));
    }
    /// The dispatch thread has ended.
    ~Ending() { gives_up_.store(true, std::memory_order_release); }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

    bool is_over() const { return is_over_.load(std::memory_order_acquire); }
    /// Throws what the thread has thrown. Requires is_over().
    void join() { thread_->join(); }

   private:
    void end() {
      is_over_.store(true, std::memory_order_release);
      env_.notify(watch_);
    }
    Env& env_;
    Watch& watch_;
    std::atomic<bool> is_over_{false}, gives_up_{false};
    std::unique_ptr<Thread> thread_;  // last: ends first
  };

  static void serve(Env& env, const measure::Params& params, const Options& options,
                    measure::Recorder& recorder) {
    Server server(env, options);
    Meeting meeting(env, params);
    ReplicationCounters before;  // the load
    const auto fill = [&] {
      const std::uint64_t table = 1;
      if (!server.await_table(table, kForever)) return;
      server.fill(table, 0, options.keys, params.count("key_bytes"), params.count("value_bytes"),
                  params.text("preload") == "replicated");
      before = server.log().counters();
      if (!server.log().is_deposed()) meeting.say("filled");
    };
    Ending ending(env, params, options, server.transport().watch(), fill);
    server.run([&] { return ending.is_over(); });
    if (server.is_excluded()) {
      throw Error(ErrorCode::kInternal,
                  "server " + std::to_string(env.node()) +
                      " was taken for dead: its threads got too little time; give fewer servers, "
                      "fewer workers or a longer lease_ms");
    }
    ending.join();
    add_rows(server, before, recorder);
  }

  static void add_rows(Server& server, const ReplicationCounters& before,
                       measure::Recorder& recorder) {
    const CpuTimes times = server.dispatcher().load_times();
    const auto elapsed =
        static_cast<double>(std::max<Time>(server.dispatcher().load_duration(), 1));
    const auto share = [&](Time time) { return static_cast<double>(time) / elapsed; };
    recorder.add("load_duration", "ns", elapsed);
    recorder.add("dispatch_cores", "cores", share(times.dispatch));
    recorder.add("worker_cores", "cores", share(times.workers));
    recorder.add("replication_cores", "cores", share(times.replicating));
    recorder.add("most_workers", "count", server.dispatcher().most_workers());
    const ReplicationCounters counters = server.log().counters();
    const auto add = [&](const char* name, std::uint64_t value, const char* unit = "count") {
      recorder.add(name, unit, static_cast<double>(value));
    };
    add("appends", counters.appends - before.appends);
    add("replication_writes", counters.writes - before.writes);
    add("replication_rpcs", counters.write_rpcs - before.write_rpcs);
    add("control_rpcs", counters.control_rpcs - before.control_rpcs);
    add("replicated_bytes", counters.bytes - before.bytes, "bytes");
    add("connections", server.transport().connections());
    add("log_connections", server.transport().log_connections());
    add("log_used", server.log().used_bytes(), "bytes");
    const std::vector<std::string> problems = server.backup().problems();
    add("backup_problems", problems.size());
    if (!problems.empty())
      recorder.notice("the backup has " + std::to_string(problems.size()) +
                      " problems; the first one: " + problems.front());
  }

  static void coordinate(Env& env, const measure::Params& params, const Options& options) {
    Coordinator coordinator(env, options);
    Ending ending(env, params, options, coordinator.dispatcher().transport().watch(), [] {});
    coordinator.run([&] { return ending.is_over(); });
    ending.join();
  }

  static void run_client(Env& env, const measure::Params& params, const Options& options,
                         std::uint32_t thread, const std::atomic<bool>& has_failed,
                         measure::ThreadRecorder& recorder) {
    Meeting meeting(env, params);
    const Time patience = params.integer("wait_timeout_ms") * kMillisecond;
    Client client(env, options, thread, patience);
    client.await_servers(options.servers);
    const std::uint32_t primaries = params.count("primaries");
    std::vector<NodeId> owners;
    for (NodeId node = 0; node < (primaries == 0 ? options.servers : primaries); ++node)
      owners.push_back(node);
    const std::uint64_t table = client.create_table(kTable, owners);
    const auto gives_up = [&] { return has_failed.load(std::memory_order_acquire); };
    if (!meeting.await("filled", 0, options.servers, kLongestLoad, gives_up)) return;
    client.connect(table);
    // All begin together: servers count their busy time from the first request to the last.
    if (!meeting.begin_together(thread, options.servers + 1, env.nodes(), patience, gives_up))
      return;
    StoreLoad load(env, params, client, table, thread, has_failed, recorder);
    measure::Interval interval(env.now(), params);
    load.run(interval);
    interval.add_rates(recorder);
    recorder.add("attempts", "count", static_cast<double>(load.attempts()));
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_store() { return std::make_unique<TailwindStore>(); }

}  // namespace pyrdma::tailwind
