// erpc_raft: clients put and get keys of a store that Raft replicates (eRPC, section 7.1).
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "measure/interval.h"
#include "systems/erpc/raft/rpc_member.h"
#include "systems/erpc/workloads/options.h"
#include "systems/erpc/workloads/raft_client.h"
#include "systems/erpc/workloads/workloads.h"

namespace pyrdma::erpc {

namespace {

using Int = std::int64_t;

constexpr Time kLinger = kMillisecond;  // in which the last responses leave

class ErpcRaft final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_endpoint_parameters({
        {"replicas", Int{3}, "count",
         "members of the group: the first nodes, with one thread each; all others are clients", 1,
         15},
        {"reads", 0.0, "", "fraction of gets; the rest are puts", 0, 1},
        {"keys", Int{1'000'000}, "count", "keys of 16 bytes, drawn uniformly; absent at first", 1,
         1e12},
        {"value_bytes", Int{raft::kMaxValue}, "bytes", "length of a value; a multiple of 8", 8,
         raft::kMaxValue},
        {"in_flight", Int{1}, "count", "operations of a client thread under way", 1, 1024},
        {"durability",
         std::string("memory"),
         "",
         "where members keep term, vote and log; with memory, a member that crashed is lost: "
         "started again, it takes no part",
         0,
         0,
         {"disk", "memory"}},
        {"snapshot_entries", Int{1'000'000}, "count", "entries of the log between two snapshots", 1,
         1e9},
        {"election_timeout_ns", Int{100'000'000}, "ns",
         "silence of the leader after which a member seeks election: one to two times this", 1e6,
         1e12},
        {"heartbeat_ns", Int{10'000'000}, "ns", "time between two signs of life of a leader", 1e5,
         1e11},
        {"try_timeout_ns", Int{200'000'000}, "ns",
         "time without an answer after which a client tries another member", 1e4, 1e12},
        {"pause_ns", Int{20'000'000}, "ns", "wait of a client that knows no leader", 1e3, 1e12},
        measure::history_parameter(),
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    if (const std::string problem = raft::raft_problem(); !problem.empty())
      throw Error(ErrorCode::kUnavailable, problem);
    const std::uint32_t replicas = params.count("replicas");
    if (env.nodes() <= replicas) {
      measure::throw_parameter(params, "replicas",
                               "leaves no client on " + std::to_string(env.nodes()) +
                                   " nodes; give more nodes, or fewer replicas");
    }
    if (params.count("value_bytes") % 8 != 0)
      measure::throw_parameter(params, "value_bytes", "is no multiple of 8");
    if (env.node() < replicas) {
      recorder.prepare_threads(1);
      serve(env, params, recorder.thread(0));
      return;
    }
    const std::uint32_t threads = params.count("threads");
    recorder.prepare_threads(threads);
    measure::on_threads(env, threads, [&](std::uint32_t thread) {
      run_clients(env, params, recorder.thread(thread), thread);
    });
  }

 private:
  static std::vector<NodeId> members(const measure::Params& params) {
    std::vector<NodeId> nodes(params.count("replicas"));
    std::iota(nodes.begin(), nodes.end(), NodeId{0});
    return nodes;
  }
  static Time patience(const measure::Params& params) {
    return params.integer("wait_timeout_ms") * kMillisecond;
  }

  static void serve(Env& env, const measure::Params& params, measure::ThreadRecorder& recorder) {
    const std::uint32_t replicas = params.count("replicas");
    const std::uint64_t threads = std::uint64_t{env.nodes() - replicas} * params.count("threads");
    raft::RpcMemberOptions options;
    // Sessions that are made again exist beside the old ones for a while.
    options.endpoint =
        endpoint_options(params, 2 * (static_cast<std::uint32_t>(threads) + 2 * replicas));
    options.endpoint.preallocated_bytes = 128;  // of an answer
    options.member.durability = params.choice<raft::Durability>("durability");
    // Without a disk a member that starts again has forgotten its votes. It waits to be added.
    const bool waits =
        env.incarnation() != 0 && options.member.durability == raft::Durability::kMemory;
    if (waits)
      options.contacts = members(params);
    else
      options.member.group = members(params);
    options.member.election_timeout = params.integer("election_timeout_ns");
    options.member.heartbeat = params.integer("heartbeat_ns");
    options.member.unit = std::min(options.member.unit, options.member.heartbeat);
    options.member.snapshot_threshold = params.count("snapshot_entries");
    options.state.max_clients = std::max(
        options.state.max_clients, static_cast<std::size_t>(threads) * params.count("in_flight"));
    options.server.max_in_flight =
        std::max(options.server.max_in_flight, options.state.max_clients);
    std::optional<measure::Interval> interval;  // from the first command on
    measure::Histogram& commit = recorder.histogram("commit");
    options.on_applied = [&](Time came, Time applied) {
      if (!interval) interval.emplace(came, params);
      if (interval->covers(applied)) commit.record(applied - came);
    };
    std::set<std::uint64_t> finished;
    raft::RpcMember member(env, options);
    member.endpoint().register_handler(raft::kFinishedRequest, [&](RequestHandle& handle) {
      std::uint64_t number = threads;
      if (handle.request().size() == sizeof number)
        std::memcpy(&number, handle.request().data(), sizeof number);
      if (number < threads) finished.insert(number);
      handle.respond();
    });
    const auto is_over = [&] { return finished.size() == threads; };
    std::uint64_t seen = 0;
    while (!member.run_until(is_over, env.now() + patience(params))) {
      const std::uint64_t applied = member.member().applied_index() + finished.size();
      if (std::exchange(seen, applied) != applied || waits) continue;
      throw Error(ErrorCode::kTimeout,
                  "node " + std::to_string(env.node()) + " has applied no command for " +
                      std::to_string(params.integer("wait_timeout_ms")) + " ms; " +
                      std::to_string(finished.size()) + " of " + std::to_string(threads) +
                      " client threads have finished");
    }
    member.run_until([] { return false; }, env.now() + kLinger);
    add_rows(recorder, member);
    member.endpoint().close();
  }

  static void add_rows(measure::ThreadRecorder& recorder, raft::RpcMember& member) {
    const auto add = [&](const char* name, std::uint64_t value) {
      recorder.add(name, "count", static_cast<double>(value));
    };
    add("entries", member.member().commit_index());
    add("elections_won", member.member().counters().elections_won);
    add("raft_messages", member.links().counters().sent);
    add("raft_not_sent", member.links().counters().not_sent + member.links().counters().too_long);
    add("retransmissions", member.endpoint().counters().retransmissions);
  }

  static void run_clients(Env& env, const measure::Params& params,
                          measure::ThreadRecorder& recorder, std::uint32_t thread) {
    const std::uint32_t replicas = params.count("replicas");
    const std::uint32_t threads = params.count("threads");
    const std::uint64_t number = std::uint64_t{env.node() - replicas} * threads + thread;
    RaftLoadShape shape;
    shape.members = members(params);
    shape.in_flight = params.count("in_flight");
    shape.value_bytes = params.count("value_bytes");
    shape.keys = static_cast<std::uint64_t>(params.integer("keys"));
    shape.reads = params.real("reads");
    shape.first_client = 1 + number * shape.in_flight;
    shape.try_timeout = params.integer("try_timeout_ns");
    shape.pause = params.integer("pause_ns");
    shape.patience = patience(params);
    std::optional<measure::KvHistory> history;
    if (params.flag("history")) {
      history.emplace(recorder, params,
                      measure::KvHistory::Place{env.node() - replicas, env.nodes() - replicas,
                                                thread, threads, shape.in_flight, 0});
    }
    std::unique_ptr<RaftLoadClient> client;  // before the endpoint: it outlives it
    Endpoint endpoint(env, endpoint_options(params, 2 * replicas), thread);
    client = std::make_unique<RaftLoadClient>(endpoint, shape,
                                              env.rng("erpc_raft/" + std::to_string(thread)),
                                              recorder, history ? &*history : nullptr);
    client->find_leader();
    measure::Interval interval(env.now(), params);
    client->run(interval);
    interval.add_rates(recorder);
    recorder.add("tries", "count", static_cast<double>(client->tries()));
    client->say_finished(number, params.integer("failure_timeout_ns") + kSecond);
    endpoint.close();
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_raft() { return std::make_unique<ErpcRaft>(); }

}  // namespace pyrdma::erpc
