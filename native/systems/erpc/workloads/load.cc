// erpc_load: threads send requests in batches and keep several batches under way (eRPC, section 6).
#include "measure/load.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "systems/erpc/scopes.h"
#include "systems/erpc/workloads/node_meeting.h"
#include "systems/erpc/workloads/options.h"
#include "systems/erpc/workloads/workloads.h"

namespace pyrdma::erpc {

namespace {

using Int = std::int64_t;

enum class Pattern : std::uint8_t { kAll, kColumns, kPairs, kIncast };
constexpr std::uint8_t kLoadType = 1;

struct LoadShape {
  std::uint32_t request, response, batch, in_flight;
  bool is_checked;  // a response begins with the first bytes of its request
};

/// The requests of one thread. A batch is sent as a whole once its last response has come.
class LoadClient {
 public:
  LoadClient(Endpoint& endpoint, std::vector<SessionId> sessions, const LoadShape& shape, Rng rng,
             measure::Histogram& latency)
      : endpoint_(endpoint),
        env_(endpoint.env()),
        sessions_(std::move(sessions)),
        shape_(shape),
        same_bytes_(!shape.is_checked
                        ? 0
                        : std::min<std::size_t>({shape.request, shape.response, sizeof ticket_})),
        rng_(rng),
        latency_(latency),
        calls_(shape.in_flight),
        waiting_((shape.in_flight + shape.batch - 1) / shape.batch) {
    for (std::uint32_t i = 0; i < shape.in_flight; ++i) {
      calls_[i].batch = i / shape.batch;
      calls_[i].request = {sessions_[0],
                           kLoadType,
                           endpoint.allocate(shape.request),
                           endpoint.allocate(shape.response),
                           &LoadClient::end,
                           this,
                           i};
      std::memset(calls_[i].request.request->data(), static_cast<int>(i), shape.request);
    }
  }
  ~LoadClient() {
    for (const Call& call : calls_) {
      if (call.is_under_way) continue;  // the endpoint may still own them
      endpoint_.free(call.request.request);
      endpoint_.free(call.request.response);
    }
  }
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  void run(measure::Interval& interval, Time timeout) {
    interval_ = &interval;
    for (std::uint32_t i = 0; i < waiting_.size(); ++i) issue(i);
    run_until([&] { return is_over_ || failed_ != Outcome::kOk; }, kForever);
    if (!run_until([&] { return under_way_ == 0 || failed_ != Outcome::kOk; },
                   env_.now() + timeout)) {
      throw Error(ErrorCode::kTimeout, "requests did not end: " + endpoint_.describe_pending(),
                  false);
    }
    if (failed_ != Outcome::kOk) {
      throw Error(ErrorCode::kUnavailable,
                  std::string("a request ended as '") + to_string(failed_) +
                      "': has a node died, or does the load starve its event loop? See "
                      "failure_timeout_ns",
                  false);
    }
    if (wrong_ != 0) {
      throw Error(ErrorCode::kInternal, std::to_string(wrong_) +
                                            " responses were not those of their requests; report "
                                            "this as a bug");
    }
  }

 private:
  struct Call {
    Request request;
    Time began = 0;
    std::uint32_t batch = 0;
    bool is_under_way = false;
  };

  // With a timer of its own, a loop without a response ends with its interval too.
  template <class Done>
  bool run_until(Done&& done, Time deadline) {
    return endpoint_.run_until(
        [&] {
          if (!is_over_) is_over_ = interval_->over(endpoint_.recent());
          return done();
        },
        deadline);
  }

  void issue(std::uint32_t batch) {
    const Scope step(env_, scope::load_issue);
    const std::uint32_t first = batch * shape_.batch;
    const std::uint32_t last = std::min(first + shape_.batch, shape_.in_flight);
    const Time now = endpoint_.recent();
    for (std::uint32_t i = first; i < last; ++i) {
      Call& call = calls_[i];
      call.began = now;
      call.is_under_way = true;
      if (shape_.request >= sizeof ticket_)
        std::memcpy(call.request.request->data(), &ticket_, sizeof ticket_);
      ++ticket_;
      ++under_way_;
      ++waiting_[batch];
      if (sessions_.size() > 1) call.request.session = sessions_[rng_.below(sessions_.size())];
      endpoint_.enqueue_request(call.request);
    }
  }

  static void end(void* context, std::uint64_t tag, Outcome outcome) {
    static_cast<LoadClient*>(context)->finish(static_cast<std::uint32_t>(tag), outcome);
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
    if (!is_right(call)) [[unlikely]]
      ++wrong_;
    const Time now = endpoint_.recent();
    if (interval_->count(now)) latency_.record(now - call.began);
    if (interval_->over(now)) is_over_ = true;
    if (--waiting_[call.batch] == 0 && !is_over_) issue(call.batch);
  }

  bool is_right(const Call& call) const {
    const MsgBuffer& response = *call.request.response;
    if (response.size() != shape_.response) return false;
    const std::byte *sent = call.request.request->data(), *got = response.data();
    if (same_bytes_ == sizeof ticket_) [[likely]] {
      std::uint64_t a = 0, b = 0;
      std::memcpy(&a, sent, sizeof a);
      std::memcpy(&b, got, sizeof b);
      return a == b;
    }
    return std::memcmp(sent, got, same_bytes_) == 0;
  }

  Endpoint& endpoint_;
  Env& env_;
  const std::vector<SessionId> sessions_;
  const LoadShape shape_;
  const std::size_t same_bytes_;  // at the beginning of a request and its response
  Rng rng_;
  measure::Histogram& latency_;
  measure::Interval* interval_ = nullptr;
  std::vector<Call> calls_;
  std::vector<std::uint32_t> waiting_;  // for each batch: responses that have not come
  std::uint64_t ticket_ = 1, wrong_ = 0;
  std::uint32_t under_way_ = 0;
  bool is_over_ = false;
  Outcome failed_ = Outcome::kOk;
};

class ErpcLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_endpoint_parameters({
        {"pattern",
         std::string("all"),
         "",
         "who sends to whom: every thread to all threads of the other nodes, every thread to its "
         "like on the other nodes (columns), even nodes to the next odd one (pairs), or all nodes "
         "to node 0 (incast)",
         0,
         0,
         {"all", "columns", "pairs", "incast"}},
        {"request", Int{32}, "bytes", "length of a request", 0, 8 << 20},
        {"response", Int{32}, "bytes", "length of a response", 0, 8 << 20},
        {"batch", Int{1}, "count", "requests that a thread sends at once", 1, 4096},
        {"in_flight", Int{1}, "count", "requests of a thread under way", 1, 1 << 16},
        {"sessions", Int{1}, "count", "sessions of a thread to each thread that it sends to", 1,
         1 << 15},
        {"service_ns", Int{0}, "ns", "time that a handler computes", 0, 1e9},
        {"workers", Int{0}, "count",
         "worker threads of each endpoint that run the handlers; 0: the dispatch thread runs them",
         0, 64},
        {"background", Int{0}, "bytes",
         "length of the requests and responses of one more thread on each node but node 0, one at "
         "a "
         "time, to a random one of these nodes; 0: no such thread",
         0, 8 << 20},
        {"record_rtt", Int{0}, "bool", "record the round-trip time of each packet", 0, 1},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const std::uint32_t threads = params.count("threads");
    const bool has_background = params.count("background") != 0 && env.node() != 0;
    const std::uint32_t all = threads + (has_background ? 1 : 0);
    recorder.prepare_threads(all);
    NodeMeeting meeting(env, params, all);
    measure::on_threads(env, all, [&](std::uint32_t thread) {
      run_thread(env, params, recorder.thread(thread), meeting, thread);
    });
  }

 private:
  static void run_thread(Env& env, const measure::Params& params, measure::ThreadRecorder& recorder,
                         NodeMeeting& meeting, std::uint32_t thread) {
    const std::uint32_t threads = params.count("threads");
    const bool is_background = thread >= threads;
    const std::vector<EndpointName> servers =
        is_background ? background_servers(env, threads) : servers_of(env, params, thread);
    Options options = endpoint_options(params, most_sessions(env, params, is_background));
    options.workers = params.count("workers");
    LoadShape shape{params.count("request"), params.count("response"), params.count("batch"),
                    params.count("in_flight"), options.request_copies};
    if (is_background)
      shape = {params.count("background"), params.count("background"), 1, 1, shape.is_checked};
    shape.batch = std::min(shape.batch, shape.in_flight);
    options.max_message = std::max({options.max_message, shape.request, shape.response});
    env.device().open();
    const std::uint32_t payload =
        checked(options, env.device().capabilities()).packet_bytes - kHeaderRoom;
    options.preallocated_bytes = std::clamp(shape.response, 32U, payload);
    Endpoint endpoint(env, options, thread);
    serve(endpoint, shape.response, params.integer("service_ns"));
    std::vector<SessionId> sessions;
    for (std::uint32_t i = 0; i < params.count("sessions"); ++i) {
      for (const EndpointName& server : servers)
        sessions.push_back(endpoint.create_session(server));
    }
    endpoint.connect(sessions);
    measure::Histogram& latency = recorder.histogram(is_background ? "background" : "rpc");
    meeting.wait(endpoint, thread, 1);
    measure::Interval interval(env.now(), params);
    if (params.flag("record_rtt") && !is_background) {
      measure::Histogram& rtt = recorder.histogram("rtt");
      endpoint.probe_round_trips([&rtt, &interval, &endpoint](Time time) {
        if (interval.covers(endpoint.recent())) rtt.record(time);
      });
    }
    if (sessions.empty()) endpoint.run_for(params.integer("warmup_ns"));
    const TransportCounters packets = endpoint.packets();
    const Counters counters = endpoint.counters();
    if (!sessions.empty()) {
      LoadClient client(endpoint, sessions, shape, env.rng("erpc_load/" + std::to_string(thread)),
                        latency);
      client.run(interval, params.integer("wait_timeout_ms") * kMillisecond);
    } else {
      const Time begin = env.now();
      endpoint.run_for(params.integer("duration_ns"));
      add_served(recorder, endpoint, packets, env.now() - begin);
    }
    endpoint.probe_round_trips(nullptr);
    add_rows(recorder, endpoint, packets, counters);
    if (!is_background && !sessions.empty()) interval.add_rates(recorder);
    meeting.wait(endpoint, thread, 2);
  }

  // Of a server that sends no requests: all its packets are those of long requests.
  static void add_served(measure::ThreadRecorder& recorder, const Endpoint& endpoint,
                         const TransportCounters& packets, Time time) {
    const std::uint64_t bytes =
        (endpoint.packets().received - packets.received) * endpoint.payload();
    recorder.add("served_bandwidth", "byte/s",
                 time > 0 ? static_cast<double>(bytes) / static_cast<double>(time) * 1e9 : 0);
  }

  static void add_rows(measure::ThreadRecorder& recorder, const Endpoint& endpoint,
                       const TransportCounters& packets, const Counters& counters) {
    const auto add = [&](const char* name, std::uint64_t now, std::uint64_t before) {
      recorder.add(name, "count", static_cast<double>(now - before));
    };
    add("packets_sent", endpoint.packets().sent, packets.sent);
    add("packets_received", endpoint.packets().received, packets.received);
    add("doorbells", endpoint.packets().doorbells, packets.doorbells);
    add("retransmissions", endpoint.counters().retransmissions, counters.retransmissions);
    add("rate_updates", endpoint.counters().rate_updates, counters.rate_updates);
    add("paced_packets", endpoint.counters().paced, counters.paced);
    add("handled", endpoint.counters().handled, counters.handled);
    recorder.add("session_bytes", "bytes", static_cast<double>(endpoint.memory_per_session()));
  }

  // The first bytes of a response are those of its request.
  static void serve(Endpoint& endpoint, std::uint32_t response, Time service) {
    const bool has_workers = endpoint.options().workers != 0;
    endpoint.register_handler(
        kLoadType,
        [response, service](RequestHandle& handle) {
          if (service != 0) handle.endpoint().env().work(service);
          const std::span<std::byte> answer = handle.response(response);
          const std::size_t same = std::min({answer.size(), handle.request().size(), sizeof(Int)});
          if (same != 0) std::memcpy(answer.data(), handle.request().data(), same);
          handle.respond();
        },
        has_workers ? RunIn::kWorker : RunIn::kDispatch);
  }

  static std::vector<EndpointName> background_servers(Env& env, std::uint32_t thread) {
    std::vector<EndpointName> servers;
    for (NodeId node = 1; node < env.nodes(); ++node) {
      if (node != env.node()) servers.push_back({node, thread});
    }
    return servers;
  }

  static std::vector<EndpointName> servers_of(Env& env, const measure::Params& params,
                                              std::uint32_t thread) {
    const std::uint32_t threads = params.count("threads");
    const NodeId self = env.node();
    std::vector<EndpointName> servers;
    switch (params.choice<Pattern>("pattern")) {
      case Pattern::kAll:
        for (NodeId node = 0; node < env.nodes(); ++node) {
          for (std::uint32_t i = 0; i < threads && node != self; ++i) servers.push_back({node, i});
        }
        break;
      case Pattern::kColumns:
        for (NodeId node = 0; node < env.nodes(); ++node) {
          if (node != self) servers.push_back({node, thread});
        }
        break;
      case Pattern::kPairs:
        if (self % 2 == 0 && self + 1 < env.nodes()) servers.push_back({self + 1, thread});
        break;
      case Pattern::kIncast:
        if (self != 0) servers.push_back({0, thread});
        break;
    }
    return servers;
  }

  static std::uint32_t most_sessions(Env& env, const measure::Params& params, bool is_background) {
    const std::uint32_t others = env.nodes() - 1;
    const std::uint32_t each = params.count("sessions");
    const auto pattern = params.choice<Pattern>("pattern");
    if (pattern == Pattern::kPairs && !is_background) return each;
    if (pattern == Pattern::kAll && !is_background)
      return 2 * others * params.count("threads") * each;
    return 2 * others * each;
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_load() { return std::make_unique<ErpcLoad>(); }

}  // namespace pyrdma::erpc
