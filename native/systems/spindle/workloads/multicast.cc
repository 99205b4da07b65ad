// spindle_multicast: senders stream messages to all members (Spindle, section 4).
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "systems/spindle/group.h"
#include "systems/spindle/scopes.h"
#include "systems/spindle/workloads/meeting.h"
#include "systems/spindle/workloads/options.h"
#include "systems/spindle/workloads/workloads.h"

namespace pyrdma::spindle {

namespace {

using Int = std::int64_t;

enum class Share : std::uint8_t { kNone, kOne, kHalf, kAll, kRest };
constexpr std::uint32_t kLatencyPeriod = 8;  // own messages per measured latency

/// So many nodes. Of an odd number, the smaller half (at least one). The rest: all but one.
NodeId nodes_of(Share share, NodeId nodes) {
  switch (share) {
    case Share::kNone:
      return 0;
    case Share::kOne:
      return 1;
    case Share::kHalf:
      return std::max(1U, nodes / 2);
    case Share::kAll:
      return nodes;
    case Share::kRest:
      return std::max(1U, nodes) - 1;
  }
  return 0;
}

struct LoadPlan {
  explicit LoadPlan(Env& env, const measure::Params& params)
      : senders(nodes_of(params.choice<Share>("senders"), env.nodes())),
        // The last senders are delayed: the order of the view begins with the others.
        delayed(nodes_of(params.choice<Share>("delayed"), senders)),
        subgroups(params.count("subgroups")),
        active(std::min(params.count("active"), subgroups)),
        messages(static_cast<std::uint64_t>(params.integer("messages"))),
        bytes(message_bytes(params)),
        delay(params.integer("delay_ns")),
        duration(params.integer("duration_ns")),
        upcall(params.integer("upcall_ns")),
        copies_in(params.flag("copy_in")),
        copies_out(params.flag("copy_out")) {
    sends = env.node() < senders;
    is_delayed = sends && env.node() >= senders - delayed;
  }
  /// Deliveries of a node after which it ends.
  std::uint64_t target() const {
    return duration != 0 ? ~std::uint64_t{0} : messages * senders * active;
  }

  NodeId senders, delayed;
  std::uint32_t subgroups, active;
  std::uint64_t messages;
  std::uint32_t bytes;
  Time delay, duration, upcall;
  bool copies_in, copies_out;
  bool sends, is_delayed;  // this node
};

/// What the upcalls of a node see.
class Receiver {
 public:
  Receiver(Env& env, const LoadPlan& plan, measure::Histogram& latency)
      : env_(env), plan_(plan), latency_(latency), next_(plan.subgroups) {
    for (auto& each : next_) each.resize(env.nodes());
    if (plan.copies_out) copy_.resize(plan.bytes);
    sent_at_.resize(plan.subgroups);
  }

  void take(std::uint32_t subgroup, std::span<const Message> messages) {
    const Scope step(env_, scope::load_upcall);
    Time now = 0;
    for (const Message& message : messages) {
      check(subgroup, message);
      if (plan_.upcall != 0) env_.work(plan_.upcall);
      if (plan_.copies_out) {
        env_.charge_copy(message.bytes.size());
        std::memcpy(copy_.data(), message.bytes.data(), message.bytes.size());
      }
      if (message.node != env_.node()) continue;
      const std::uint64_t index = next_[subgroup][message.node] - 1;
      if (index % kLatencyPeriod != 0) continue;
      if (now == 0) now = env_.now();
      latency_.record(now - sent_at(subgroup, index));
    }
    const std::uint64_t count = delivered_.load(std::memory_order_relaxed) + messages.size();
    delivered_.store(count, std::memory_order_release);
    if (count < plan_.target() || is_over()) return;
    ended_at_ = now != 0 ? now : env_.now();
    end();
  }
  void sends(std::uint32_t subgroup, std::uint64_t index) {
    if (index % kLatencyPeriod == 0) sent_at(subgroup, index) = env_.now();
  }
  void end() {
    is_over_.store(true, std::memory_order_release);
    env_.notify(over_);
  }
  void set_window(std::uint32_t window) {
    for (auto& each : sent_at_) each.resize(window / kLatencyPeriod + 2);
  }

  std::uint64_t delivered() const { return delivered_.load(std::memory_order_acquire); }
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  Watch& over() { return over_; }
  Time ended_at() const { return ended_at_; }
  std::uint64_t wrong() const { return wrong_; }

 private:
  Time& sent_at(std::uint32_t subgroup, std::uint64_t index) {
    std::vector<Time>& times = sent_at_[subgroup];
    return times[index / kLatencyPeriod % times.size()];
  }
  // A message begins with its number, if it has the room.
  void check(std::uint32_t subgroup, const Message& message) {
    std::uint64_t& next = next_[subgroup][message.node];
    const std::uint64_t expected = next++;
    if (message.bytes.size() != plan_.bytes) ++wrong_;
    if (message.bytes.size() < sizeof expected) return;
    std::uint64_t number = 0;
    std::memcpy(&number, message.bytes.data(), sizeof number);
    wrong_ += number != expected;
  }

  Env& env_;
  const LoadPlan& plan_;
  measure::Histogram& latency_;
  std::vector<std::vector<std::uint64_t>> next_;  // number of the next message, by subgroup, node
  std::vector<std::vector<Time>> sent_at_;        // of the own messages
  std::vector<std::byte> copy_;
  std::atomic<std::uint64_t> delivered_{0};
  std::atomic<bool> is_over_{false};
  Watch over_;
  Time ended_at_ = 0;
  std::uint64_t wrong_ = 0;
};

class SpindleMulticast final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_group_parameters({
        {"senders",
         std::string("all"),
         "",
         "nodes that send, and that the group knows as senders",
         0,
         0,
         {"none", "one", "half", "all"}},
        {"delayed",
         std::string("none"),
         "",
         "senders that wait after each message; rest: all but the first",
         0,
         0,
         {"none", "one", "half", "all", "rest"}},
        {"delay_ns", Int{0}, "ns",
         "time that a delayed sender computes after each message; -1: it "
         "sends nothing",
         -1, 1e12},
        {"messages", Int{1000}, "count",
         "messages of each sender; with delayed senders the others send more, until each node has "
         "delivered as many as all together",
         1, 1e9},
        {"duration_ns", Int{0}, "ns", "measured time; 0: by messages", 0, 1e15},
        {"message", Int{0}, "bytes", "length of a message; 0: the longest", 0, 1 << 23},
        {"subgroups", Int{1}, "count", "subgroups, each of all nodes", 1, 256},
        {"active", Int{1}, "count", "subgroups in which each sender sends, in turn", 1, 256},
        {"start_spread_ns", Int{10'000}, "ns",
         "time within which the nodes begin, each at a random moment", 0, 1e12},
        {"upcall_ns", Int{0}, "ns", "time that the upcall of a message computes", 0, 1e9},
        {"copy_in", Int{0}, "bool", "copy each message into its slot", 0, 1},
        {"copy_out", Int{0}, "bool", "copy each message out of its slot at delivery", 0, 1},
        {"timed", Int{0}, "bool", "measure the times of predicates and posts", 0, 1},
        {"batch_sizes", Int{0}, "bool", "record how often a batch of node 0 had each size", 0, 1},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const LoadPlan plan(env, params);
    Options options = group_options(params);
    options.timed = params.flag("timed");
    Receiver receiver(env, plan, recorder.histogram("multicast"));
    receiver.set_window(params.count("window"));
    SubgroupSpec spec;
    spec.window = params.count("window");
    spec.max_message = params.count("max_message");
    for (NodeId node = 0; node < plan.senders; ++node) spec.senders.push_back(node);
    if (plan.senders == 0) throw_parameter(params, "senders", "is none; at least one must send");
    Upcalls upcalls;
    upcalls.deliver = [&receiver](std::uint32_t subgroup, std::span<const Message> messages) {
      receiver.take(subgroup, messages);
    };
    Group group(env, options, std::vector<SubgroupSpec>(plan.subgroups, spec), upcalls);
    group.found(all_nodes(env));
    GroupMeeting meeting(group, params.key("meeting"));
    const Time timeout = params.integer("wait_timeout_ms") * kMillisecond;
    meeting.wait(timeout);
    // Programs on different machines do not begin in one nanosecond.
    const auto spread = static_cast<std::uint64_t>(params.integer("start_spread_ns"));
    if (spread != 0)
      group.pause_until(env.now() + static_cast<Time>(env.rng("spindle start").below(spread)));
    const Time begin = env.now();
    const std::uint64_t before = receiver.delivered();
    const std::uint64_t sent = plan.sends ? send(env, group, plan, receiver, begin) : 0;
    wait_for_end(env, group, plan, receiver, begin);
    const Time end = plan.duration != 0 ? env.now() : receiver.ended_at();
    const Measured measured{plan.duration != 0 ? receiver.delivered() - before : plan.target(),
                            sent, end - begin};
    add_rows(env, group, plan, measured, recorder, params.flag("batch_sizes"));
    meeting.wait(timeout);
    if (receiver.wrong() != 0) {
      throw Error(ErrorCode::kInternal, std::to_string(receiver.wrong()) +
                                            " messages were out of order or damaged; report this "
                                            "as a bug");
    }
  }

 private:
  struct Measured {
    std::uint64_t delivered, sent;
    Time runtime;
  };

  static std::uint64_t send(Env& env, Group& group, const LoadPlan& plan, Receiver& receiver,
                            Time begin) {
    if (plan.is_delayed && plan.delay < 0) return 0;
    std::vector<std::byte> source(plan.copies_in ? plan.bytes : 0);
    const bool by_deliveries = plan.delayed != 0 || plan.duration != 0;
    std::uint64_t sent = 0;
    for (; by_deliveries ? !receiver.is_over() : sent < plan.messages; ++sent) {
      for (std::uint32_t g = 0; g < plan.active; ++g) {
        std::span<std::byte> slot;
        do {
          slot = group.reserve(g, env.now() + 10 * kMillisecond);
        } while (slot.empty() && !receiver.is_over());
        if (slot.empty()) return sent;
        if (plan.duration != 0 && sent % kLatencyPeriod == 0 &&
            env.now() - begin >= plan.duration) {
          receiver.end();
        }
        {
          const Scope step(env, scope::load_message);
          receiver.sends(g, sent);
          if (plan.copies_in) {
            env.charge_copy(plan.bytes);
            std::memcpy(slot.data(), source.data(), plan.bytes);
          }
          if (plan.bytes >= sizeof sent) std::memcpy(slot.data(), &sent, sizeof sent);
        }
        group.send(g, plan.bytes);
        if (plan.is_delayed) env.work(plan.delay);
      }
    }
    for (std::uint32_t g = 0; g < plan.active; ++g) group.flush(g);
    return sent;
  }

  static void wait_for_end(Env& env, Group& group, const LoadPlan& plan, Receiver& receiver,
                           Time begin) {
    if (plan.duration != 0) {
      group.pause_until(begin + plan.duration);
      return receiver.end();
    }
    const Time most = 10 * kSecond;  // without a delivery
    std::uint64_t before = ~std::uint64_t{0};
    while (!receiver.is_over()) {
      const std::uint64_t now = receiver.delivered();
      if (now == before) {
        throw Error(ErrorCode::kTimeout, "node " + std::to_string(env.node()) + " has delivered " +
                                             std::to_string(now) + " of " +
                                             std::to_string(plan.target()) +
                                             " messages and then none: " + group.describe_wait(0));
      }
      before = now;
      group.wait_until([&] { return receiver.is_over(); }, env.now() + most, &receiver.over());
    }
  }

  static void add_rows(Env& env, Group& group, const LoadPlan& plan, const Measured& measured,
                       measure::Recorder& recorder, bool has_batch_sizes) {
    const auto runtime = static_cast<double>(measured.runtime);
    const auto nodes = static_cast<double>(env.nodes());
    const double rate = static_cast<double>(measured.delivered) / runtime * 1e9;
    recorder.add("delivered_bandwidth", "byte/s", rate * plan.bytes / nodes);
    recorder.add("message_rate", "op/s", rate / nodes);
    const Group::Counters counters = group.counters();
    SubgroupCounters all;
    Time active_time = 0, predicate_time = 0, post_time = 0;
    for (std::uint32_t g = 0; g < plan.subgroups; ++g) {
      const SubgroupCounters& each = counters.subgroups[g];
      all.add(each);
      predicate_time += each.predicate_time;
      post_time += each.post_time;
      if (g < plan.active) active_time += each.predicate_time;
    }
    const auto count = [&](const char* name, std::uint64_t value) {
      recorder.add(name, "count", static_cast<double>(value));
    };
    count("ops", measured.delivered);
    count("sent", measured.sent * plan.active);
    count("pushes", all.pushes);
    count("requests", counters.requests);
    count("nulls", all.nulls);
    count("null_iterations", all.null_iterations);
    count("send_batches", all.sends.batches());
    count("send_batched", all.sends.messages());
    count("receive_batches", all.receives.batches());
    count("receive_batched", all.receives.messages());
    count("delivery_batches", all.deliveries.batches());
    count("delivery_batched", all.deliveries.messages());
    recorder.add("table_bytes", "bytes", static_cast<double>(counters.table_bytes));
    if (plan.is_delayed) {
      count("delayed_null_iterations", all.null_iterations);
    } else if (plan.sends) {
      count("continuous_null_iterations", all.null_iterations);
      count("continuous_senders", 1);
    }
    if (env.node() != 0) return;
    recorder.add("runtime", "ns", runtime);
    recorder.add("sender_wait_share", "%",
                 100 * static_cast<double>(counters.sender_wait) / runtime);
    if (group.options().timed) {
      recorder.add("post_time", "ns", static_cast<double>(post_time));
      recorder.add("post_share_of_predicates", "%",
                   100 * static_cast<double>(post_time) / static_cast<double>(predicate_time));
      recorder.add("post_share_of_thread", "%", 100 * static_cast<double>(post_time) / runtime);
      recorder.add("active_predicate_share", "%",
                   100 * static_cast<double>(active_time) / static_cast<double>(predicate_time));
      recorder.add("upcall_share", "%", 100 * static_cast<double>(counters.upcalls) / runtime);
    }
    if (!has_batch_sizes) return;
    const std::pair<const char*, const BatchSizes*> stages[] = {
        {"send_batch_", &all.sends},
        {"receive_batch_", &all.receives},
        {"delivery_batch_", &all.deliveries}};
    for (const auto& [stage, sizes] : stages) {
      for (std::size_t size = 1; size < sizes->counts().size(); ++size) {
        if (sizes->counts()[size] != 0)
          count((stage + std::to_string(size)).c_str(), sizes->counts()[size]);
      }
    }
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_multicast() { return std::make_unique<SpindleMulticast>(); }

}  // namespace pyrdma::spindle
