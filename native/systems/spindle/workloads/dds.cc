// spindle_dds: one publisher, and a subscriber on each other node (Spindle, section 4.6).
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "systems/spindle/dds/participant.h"
#include "systems/spindle/scopes.h"
#include "systems/spindle/workloads/meeting.h"
#include "systems/spindle/workloads/options.h"
#include "systems/spindle/workloads/workloads.h"

namespace pyrdma::spindle {

namespace {

/// A sample begins with its number and the time of its loan, as far as it has the room.
struct SampleStamp {
  std::uint64_t number = 0;
  Time loaned = 0;
};
constexpr std::uint64_t kStampPeriod = 8;  // samples per measured latency

/// What a subscriber has seen.
class Subscriber {
 public:
  Subscriber(Env& env, std::uint32_t bytes, std::uint64_t samples, measure::Histogram& latency)
      : env_(env), bytes_(bytes), samples_(samples), latency_(latency) {}

  void take(std::span<const Message> messages) {
    const Scope step(env_, scope::load_upcall);
    Time now = 0;
    for (const Message& message : messages) {
      SampleStamp stamp{next_, 0};
      std::memcpy(&stamp, message.bytes.data(), std::min(message.bytes.size(), sizeof stamp));
      if (message.bytes.size() != bytes_ || (bytes_ >= 8 && stamp.number != next_)) ++wrong_;
      if (bytes_ >= sizeof stamp && next_ % kStampPeriod == 0) {
        if (now == 0) now = env_.now();
        latency_.record(now - stamp.loaned);
      }
      ++next_;
    }
    count_.store(next_, std::memory_order_release);
    if (next_ < samples_ || is_over()) return;
    ended_at_ = env_.now();
    is_over_.store(true, std::memory_order_release);
    env_.notify(over_);
  }
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }
  Watch& over() { return over_; }
  Time ended_at() const { return ended_at_; }
  std::uint64_t wrong() const { return wrong_; }

 private:
  Env& env_;
  const std::uint32_t bytes_;
  const std::uint64_t samples_;
  measure::Histogram& latency_;
  std::uint64_t next_ = 0, wrong_ = 0;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> is_over_{false};
  Watch over_;
  Time ended_at_ = 0;
};

class SpindleDds final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    static const std::vector<measure::ParameterSpec> specs = with_group_parameters({
        {"qos",
         std::string("atomic"),
         "",
         "what subscribers may rely on",
         0,
         0,
         {dds::kQosNames.begin(), dds::kQosNames.end()}},
        {"samples", Int{1000}, "count", "samples that the publisher publishes", 1, 1e9},
        {"pause_ns", Int{0}, "ns", "pause of the publisher after each sample", 0, 1e12},
        {"history", Int{1000}, "count", "samples that a subscriber keeps in memory", 1, 1e7},
        {"sync_every", Int{0}, "count",
         "samples after which the log is synced; 0: at the end of the view", 0, 1e9},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    if (env.nodes() < 2) throw_parameter(params, "qos", "needs a subscriber; give 2 nodes or more");
    dds::Topic topic;
    topic.name = "sequence";
    topic.qos = params.choice<dds::Qos>("qos");
    topic.publishers = {0};
    for (NodeId node = 1; node < env.nodes(); ++node) topic.subscribers.push_back(node);
    topic.window = params.count("window");
    topic.max_sample = params.count("max_message");
    topic.history = params.count("history");
    topic.sync_every = params.count("sync_every");
    const auto samples = static_cast<std::uint64_t>(params.integer("samples"));
    Subscriber subscriber(env, topic.max_sample, samples, recorder.histogram("sample"));
    env.storage().remove("topic-0.log");  // of an earlier run
    dds::DomainParticipant participant(
        env, group_options(params), {topic},
        [&](std::uint32_t, std::span<const Message> messages) { subscriber.take(messages); });
    participant.create(all_nodes(env));
    GroupMeeting meeting(participant.group(), params.key("meeting"));
    const Time timeout = params.integer("wait_timeout_ms") * kMillisecond;
    meeting.wait(timeout);
    const Time begin = env.now();
    if (env.node() == 0)
      publish(env, participant, samples, params.integer("pause_ns"));
    else
      wait_for_samples(env, participant, subscriber, samples);
    if (env.node() != 0) {
      const double seconds = static_cast<double>(subscriber.ended_at() - begin) / 1e9;
      const double rate = static_cast<double>(samples) / seconds / (env.nodes() - 1);
      recorder.add("delivered_bandwidth", "byte/s", rate * topic.max_sample);
      recorder.add("message_rate", "op/s", rate);
      if (topic.qos == dds::Qos::kLogged) {
        recorder.add("logged_bytes", "bytes",
                     static_cast<double>(env.storage().open("topic-0.log")->size()));
      }
    }
    meeting.wait(timeout);
    if (subscriber.wrong() != 0) {
      throw Error(ErrorCode::kInternal, std::to_string(subscriber.wrong()) +
                                            " samples were out of order or damaged; report this "
                                            "as a bug");
    }
  }

 private:
  static void publish(Env& env, dds::DomainParticipant& participant, std::uint64_t samples,
                      Time pause) {
    for (std::uint64_t number = 0; number < samples; ++number) {
      std::span<std::byte> loan;
      while (loan.empty()) loan = participant.loan(0, env.now() + 10 * kMillisecond);
      {
        const Scope step(env, scope::load_message);
        SampleStamp stamp{number, 0};
        if (number % kStampPeriod == 0) stamp.loaned = env.now();
        std::memcpy(loan.data(), &stamp, std::min(loan.size(), sizeof stamp));
      }
      participant.publish(0, static_cast<std::uint32_t>(loan.size()));
      if (pause != 0) participant.group().pause_until(env.now() + pause);
    }
    participant.group().flush(0);
  }

  static void wait_for_samples(Env& env, dds::DomainParticipant& participant,
                               Subscriber& subscriber, std::uint64_t samples) {
    for (std::uint64_t before = ~std::uint64_t{0}; !subscriber.is_over();) {
      if (subscriber.count() == before) {
        throw Error(ErrorCode::kTimeout, "node " + std::to_string(env.node()) + " has " +
                                             std::to_string(before) + " of " +
                                             std::to_string(samples) +
                                             " samples and then got none; is the publisher up?");
      }
      before = subscriber.count();
      participant.group().wait_until([&] { return subscriber.is_over(); }, env.now() + 10 * kSecond,
                                     &subscriber.over());
    }
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_dds() { return std::make_unique<SpindleDds>(); }

}  // namespace pyrdma::spindle
