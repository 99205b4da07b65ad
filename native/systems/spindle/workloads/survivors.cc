// spindle_survivors: members multicast numbered messages while members are killed and come back.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "measure/kv_history.h"
#include "systems/spindle/group.h"
#include "systems/spindle/workloads/options.h"
#include "systems/spindle/workloads/workloads.h"

namespace pyrdma::spindle {

namespace {

/// The begin of a message.
struct Stamp {
  Member sender;
  std::uint64_t number;
  Time sent_at;
};

/// A member in a history: each start of a node is another one.
std::int32_t number_of(Member member) {
  return static_cast<std::int32_t>(member.node << 24 | member.incarnation);
}

/// What a node delivers, checked and recorded. The thread that makes turns calls it.
class Witness {
 public:
  static constexpr std::uint64_t kMostEvents = measure::KvHistory::kMostEvents;

  Witness(Env& env, measure::Recorder& recorder, std::uint32_t bytes, bool has_history)
      : env_(env), latency_(recorder.histogram("multicast")), bytes_(bytes) {
    if (!has_history) return;
    recorder.prepare_threads(1);
    history_ = &recorder.thread(0).history();
    history_->header.model = "multicast";
  }

  void entered(Member self, const ViewShape& view) {
    if (self != self_) {  // another life
      self_ = self;
      next_.clear();
    }
    view_ = view.id;
    views_.fetch_add(1, std::memory_order_relaxed);
    if (history_ == nullptr || is_full()) return;
    std::vector<check::Value> members;
    for (const Member& each : view.members)
      members.push_back(check::Value::integer(number_of(each)));
    history_->point(env_.now(), number_of(self_), check::Function::kView, check::Value::integer(0),
                    history_->list(members), static_cast<std::int64_t>(view_));
  }

  void take(std::span<const Message> messages) {
    const Time now = env_.now();
    for (const Message& message : messages) {
      Stamp stamp{};
      if (message.bytes.size() != bytes_) {
        ++wrong_;
        continue;
      }
      std::memcpy(&stamp, message.bytes.data(), sizeof stamp);
      // A member may enter when others have sent for long; from then on it misses nothing.
      const auto [next, is_first] = next_.try_emplace(number_of(stamp.sender), stamp.number);
      wrong_ += stamp.sender.node != message.node || stamp.number != next->second;
      next->second = stamp.number + 1;
      if (stamp.sender == self_) {
        latency_.record(now - stamp.sent_at);
        own_.store(stamp.number + 1, std::memory_order_release);
      }
      if (history_ == nullptr || is_full()) continue;
      history_->point(
          now, number_of(self_), check::Function::kDeliver, check::Value::integer(0),
          check::Value::pair(number_of(stamp.sender), static_cast<std::int64_t>(stamp.number)),
          static_cast<std::int64_t>(view_));
    }
    delivered_.fetch_add(messages.size(), std::memory_order_relaxed);
    env_.notify(news_);
  }

  /// Own messages of this life that it has delivered.
  std::uint64_t own() const { return own_.load(std::memory_order_acquire); }
  void forget_own() { own_.store(0, std::memory_order_relaxed); }
  std::uint64_t delivered() const { return delivered_.load(std::memory_order_relaxed); }
  std::uint64_t views() const { return views_.load(std::memory_order_relaxed); }
  Watch& news() { return news_; }
  // After the group has ended.
  std::uint64_t wrong() const { return wrong_; }
  bool is_full() const { return history_ != nullptr && history_->events().size() >= kMostEvents; }

 private:
  Env& env_;
  measure::Histogram& latency_;
  check::History* history_ = nullptr;
  const std::uint32_t bytes_;
  Member self_{};
  std::uint64_t view_ = 0, wrong_ = 0;
  std::map<std::int32_t, std::uint64_t> next_;  // number of the next message, by sender
  std::atomic<std::uint64_t> own_{0}, delivered_{0}, views_{0};
  Watch news_;
};

/// One node's part of the run.
class Survivor {
 public:
  Survivor(Env& env, const measure::Params& params, Group& group, Witness& witness)
      : env_(env), params_(params), group_(group), witness_(witness), end_(agree_on_end()) {}

  void run(std::uint32_t bytes, Time interval) {
    Time due = env_.now();
    while (env_.now() < end_) {
      if (group_.standing() != Standing::kMember && !join()) continue;
      try {
        send(bytes);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnavailable) throw;
        continue;  // the others go on without this node
      }
      if (interval == 0) continue;
      due = std::max(due + interval, env_.now() - interval);
      group_.pause_until(std::min(due, end_));
    }
    finish();
  }
  std::uint64_t sent() const { return all_sent_; }
  std::uint64_t joins() const { return joins_; }

 private:
  /// Returns the end of the run. Node 0 sets it once for all nodes, also for restarted ones.
  Time agree_on_end() {
    const std::string key = params_.key("survivors/end");
    fabric::Rendezvous& rendezvous = env_.device().rendezvous();
    if (env_.node() == 0 && !rendezvous.find(key))
      rendezvous.publish_value(key, env_.now() + params_.integer("duration_ns"));
    return rendezvous.await_value<Time>(key, env_.now() + 120 * kSecond);
  }

  bool join() {
    try {
      group_.join(all_nodes(env_));  // it leaves this node out
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      return false;
    }
    ++joins_;
    return true;
  }

  void send(std::uint32_t bytes) {
    const std::span<std::byte> slot =
        group_.reserve(0, std::min(end_, env_.now() + 10 * kMillisecond));
    if (slot.empty()) return;
    if (group_.self() != self_) {  // the first message of this life
      self_ = group_.self();
      sent_ = 0;
      witness_.forget_own();
    }
    const Stamp stamp{self_, sent_++, env_.now()};
    std::memcpy(slot.data(), &stamp, sizeof stamp);
    group_.send(0, bytes);
    ++all_sent_;
  }

  /// Waits for the own messages, then for all members of the view: who ends earlier looks dead.
  void finish() {
    if (group_.standing() != Standing::kMember) return;
    group_.flush(0);
    const Time deadline = env_.now() + params_.integer("wait_timeout_ms") * kMillisecond;
    const auto is_out = [&] { return group_.standing() != Standing::kMember; };
    group_.wait_until([&] { return is_out() || witness_.own() >= sent_; }, deadline,
                      &witness_.news());
    if (!is_out() && witness_.own() < sent_)
      throw Error(ErrorCode::kTimeout, "node " + std::to_string(env_.node()) + " has delivered " +
                                           std::to_string(witness_.own()) + " of its " +
                                           std::to_string(sent_) +
                                           " messages: " + group_.describe_wait(0));
    fabric::Rendezvous& rendezvous = env_.device().rendezvous();
    const auto key = [&](Member member) {
      return params_.key("survivors/done/" + std::to_string(number_of(member)));
    };
    rendezvous.publish_value(key(group_.self()), Time{0});
    const auto all_done = [&] {
      return std::ranges::all_of(group_.members(), [&](const Member& member) {
        return rendezvous.find(key(member)).has_value();
      });
    };
    while (!is_out() && !all_done() && env_.now() < deadline)
      group_.pause_until(env_.now() + kMillisecond);
    // The others look as often.
    group_.pause_until(env_.now() + 4 * kMillisecond);
  }

  Env& env_;
  const measure::Params& params_;
  Group& group_;
  Witness& witness_;
  const Time end_;
  Member self_{};
  std::uint64_t sent_ = 0, all_sent_ = 0, joins_ = 0;
};

class SpindleSurvivors final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    static const std::vector<measure::ParameterSpec> specs = with_group_parameters({
        {"message", Int{1024}, "bytes", "length of a message", sizeof(Stamp), 1 << 23},
        {"interval_ns", Int{100'000}, "ns",
         "time between two messages of a member; 0: as fast as slots are free", 0, 1e12},
        {"duration_ns", Int{10'000'000}, "ns", "how long the members send", 1, 1e15},
        {"history", Int{0}, "bool",
         "record all views and deliveries; pyrdma.check says whether they fit", 0, 1},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const std::uint32_t bytes = message_bytes(params);
    Options options = group_options(params);
    // The group may have ended before a node that comes back finds it.
    if (env.incarnation() != 0)
      options.join_timeout = std::max<Time>(kSecond, 10 * options.suspicion_timeout);
    SubgroupSpec spec;
    spec.window = params.count("window");
    spec.max_message = params.count("max_message");
    Witness witness(env, recorder, bytes, params.flag("history"));
    std::uint64_t sent = 0, joins = 0;
    {
      Group* formed = nullptr;
      Upcalls upcalls;
      upcalls.deliver = [&](std::uint32_t, std::span<const Message> messages) {
        witness.take(messages);
      };
      upcalls.view = [&](const ViewShape& view) { witness.entered(formed->self(), view); };
      Group group(env, options, {spec}, upcalls);
      formed = &group;
      if (env.incarnation() == 0) group.found(all_nodes(env));
      Survivor survivor(env, params, group, witness);
      survivor.run(bytes, params.integer("interval_ns"));
      sent = survivor.sent();
      joins = survivor.joins();
    }
    const auto count = [&](const char* name, std::uint64_t value) {
      recorder.add(name, "count", static_cast<double>(value));
    };
    count("ops", witness.delivered());
    count("sent", sent);
    count("views", witness.views());
    count("joins", joins);
    if (witness.wrong() != 0)
      throw Error(ErrorCode::kInternal, std::to_string(witness.wrong()) +
                                            " messages were lost, out of order or damaged; report "
                                            "this as a bug");
    if (witness.is_full())
      throw_parameter(params, "history",
                      "has more than " + std::to_string(Witness::kMostEvents) +
                          " events; give a longer `interval_ns` or a shorter duration");
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_survivors() { return std::make_unique<SpindleSurvivors>(); }

}  // namespace pyrdma::spindle
