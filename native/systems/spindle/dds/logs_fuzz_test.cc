// Logged topics while hosts lose power, again and again (V5 and V6 of the properties):
// - what was durable at a node is in all logs after a restart with this node;
// - all logs are equal in the end: of nodes that restart together, and of one that comes later;
// - a log has only samples that were published, each once, in the order of their publisher.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/spindle/dds/participant.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

constexpr std::uint32_t kNodes = 3, kDriver = 3;  // the driver is outside of the domain
const std::uint64_t kSeeds = (fuzz::kSlowed ? 20 : 400) * fuzz::search_factor();

using Texts = std::vector<std::string>;

struct Counts {
  std::uint64_t restarts = 0, later_joins = 0, refused = 0, durable = 0;
  std::map<std::string, std::uint64_t> branches;
};

/// One run: rounds that end with the crash of all nodes, and a last one in which all catch up.
class LogWorld {
 public:
  LogWorld(std::uint64_t seed, Counts& counts)
      : seed_(seed), rng_(seed, 0, "spindle logs"), counts_(counts), durable_(kNodes) {
    topic_.name = "t";
    topic_.qos = Qos::kLogged;
    topic_.publishers = all_nodes(kNodes);
    topic_.subscribers = all_nodes(kNodes);
    topic_.window = static_cast<std::uint32_t>(1 + rng_.below(5));
    topic_.max_sample = 2000;
    topic_.sync_every = static_cast<std::uint32_t>(rng_.below(4));
    rounds_ = static_cast<std::uint32_t>(2 + rng_.below(3));
  }

  void run() {
    fabric::sim::SimOptions options = runtime::sim_options(kNodes + 1, true, seed_);
    if (rng_.below(2) == 0) options.faults[Fault::disk_torn].rate = 0.5;
    options.time_limit = 100 * kSecond;
    fabric::sim::SimCluster cluster(options);
    cluster_ = &cluster;
    for (NodeId node = 0; node < kNodes; ++node) cluster.expect_restart(node);
    try {
      cluster.run([this](Env& env) { env.node() == kDriver ? drive(env) : live(env); });
    } catch (const Error& error) {
      FAIL() << where() << ", round " << round_ << ", late node " << late_ << ": " << error.what();
    }
    for (const auto& [name, count] : cluster.branches())
      counts_.branches[std::string(name)] += count;
    check();
  }

 private:
  bool is_last() const { return round_ + 1 == rounds_; }
  std::string where() const { return "seed " + std::to_string(seed_); }

  void drive(Env& env) {
    const auto pass = [&](std::uint64_t most_us) {
      env.sleep_until(env.now() + static_cast<Time>(rng_.below(most_us)) * kMicrosecond);
    };
    while (!is_last()) {
      pass(3'000);
      std::vector<NodeId> order = all_nodes(kNodes);
      std::swap(order[0], order[rng_.below(kNodes)]);
      for (const NodeId node : order) {
        cluster_->kill(node, fabric::sim::Crash::kHost);
        pass(rng_.below(4) == 0 ? 2'000 : 120);  // now and then enough for a view without it
      }
      ++round_;
      // The one that was killed last has the longest log.
      late_ = rng_.below(3) == 0 ? kNodes : order[2 - rng_.below(2)];
      is_refused_ = false;
      formed_ = 0;
      starters_ = all_nodes(kNodes);
      std::erase(starters_, late_);
      for (const NodeId node : starters_) cluster_->restart(node);
      if (late_ == kNodes || (!is_last() && rng_.below(3) == 0)) continue;
      const Time patience = env.now() + 60 * kMillisecond;
      while (formed_ < 2 && !is_refused_ && env.now() < patience)
        env.sleep_until(env.now() + 10 * kMicrosecond);
      pass(500);
      cluster_->restart(late_);
    }
  }

  void live(Env& env) {
    const std::uint32_t round = round_;
    Options options = options_of("sim", Options::of(Preset::kPaper));
    Texts delivered;
    std::uint64_t view = 0;
    DomainParticipant* self = nullptr;
    DomainParticipant participant(
        env, options, {topic_}, [&](std::uint32_t, std::span<const Message> messages) {
          // The end of a view makes its samples durable, and so does the listener's own sync.
          Texts& durable = durable_[env.node()];
          if (std::exchange(view, self->group().view_id()) != self->group().view_id())
            durable.insert(durable.end(), delivered.begin(), delivered.end());
          for (const Message& each : messages)
            (topic_.sync_every == 1 ? durable : delivered).push_back(text_of(each.bytes));
        });
    self = &participant;
    expect_kept(env, participant, "its disk");
    try {
      begin(env, participant);
      publish(env, participant);
    } catch (const Error& error) {
      // Another node has died before this one.
      if (round + 1 == rounds_) throw;
      if (error.code() != ErrorCode::kTimeout && error.code() != ErrorCode::kUnavailable) throw;
    }
    if (round + 1 < rounds_) env.sleep_until(kForever);  // until the power fails
    finish(participant);
  }

  /// What was durable at the node is in its log.
  void expect_kept(Env& env, DomainParticipant& participant, const char* what) {
    const Texts& durable = durable_[env.node()];
    const Texts log = texts_of(participant);
    const std::set<std::string> kept(log.begin(), log.end());
    for (const std::string& text : durable)
      EXPECT_TRUE(kept.contains(text)) << where() << ": node " << env.node() << " lost "
                                       << text.substr(0, 12) << " of its disk after " << what;
    counts_.durable += durable.size();
  }

  void begin(Env& env, DomainParticipant& participant) {
    if (env.incarnation() == 0) return participant.create(all_nodes(kNodes));
    if (env.node() == late_ && !is_refused_) {
      // The others may have begun without what only this node's disk has.
      durable_[env.node()].clear();
      participant.join(starters_);
      ++counts_.later_joins;
      return;
    }
    try {
      participant.restart(is_refused_ ? all_nodes(kNodes) : starters_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable || late_ == kNodes) throw;
      // The two are no majority of the last view, so all three begin.
      ++counts_.refused;
      is_refused_ = true;
      participant.restart(all_nodes(kNodes));
    }
    ++counts_.restarts;
    ++formed_;
    if (!is_refused_ && late_ != kNodes) durable_[late_].clear();
    expect_kept(env, participant, "the restart");
  }

  void publish(Env& env, DomainParticipant& participant) {
    Rng rng = env.rng("samples");
    const std::uint64_t count = 1 + rng.below(30);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string text = std::to_string(env.node()) + '.' +
                               std::to_string(env.incarnation()) + '.' + std::to_string(i) + '.';
      const std::span<std::byte> memory = participant.loan(0);
      const std::size_t bytes = text.size() + rng.below(rng.below(4) == 0 ? 1500 : 100);
      std::memset(memory.data(), 'x', bytes);
      std::memcpy(memory.data(), text.data(), text.size());
      published_.insert(text_of(memory.first(bytes)));
      participant.publish(0, static_cast<std::uint32_t>(bytes));
      if (rng.below(3) == 0)
        participant.group().pause_until(env.now() + static_cast<Time>(rng.below(200'000)));
    }
  }

  /// In the last round all nodes have all samples of each other.
  void finish(DomainParticipant& participant) {
    ++finished_;
    const auto wait = [&](const std::function<bool()>& ready) {
      EXPECT_TRUE(participant.group().wait_until(ready, participant.group().env().now() + kSecond))
          << where();
    };
    wait([&] { return finished_ == kNodes && participant.group().members().size() == kNodes; });
    Env& env = participant.group().env();
    participant.group().pause_until(env.now() + 5 * kMillisecond);  // all is delivered
    logs_.push_back(texts_of(participant));
    ++ended_;
    wait([&] { return ended_ == kNodes; });
  }

  static std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static Texts texts_of(DomainParticipant& participant) {
    Texts texts;
    for (const Sample& sample : participant.read(0, 0, 100'000))
      texts.push_back(text_of(sample.bytes));
    return texts;
  }

  void check() {
    ASSERT_EQ(logs_.size(), kNodes) << where();
    for (const Texts& log : logs_) EXPECT_TRUE(log == logs_[0]) << where();
    std::map<std::string, std::uint64_t> next;  // by publisher
    for (const std::string& text : logs_[0]) {
      EXPECT_TRUE(published_.contains(text)) << where();
      const std::size_t second = text.find('.', text.find('.') + 1);
      const std::uint64_t number = std::stoull(text.substr(second + 1));
      EXPECT_EQ(number, next[text.substr(0, second)]++) << where() << ' ' << text.substr(0, 12);
    }
  }

  const std::uint64_t seed_;
  Rng rng_;
  Counts& counts_;
  Topic topic_;
  std::uint32_t rounds_ = 0, round_ = 0;
  fabric::sim::SimCluster* cluster_ = nullptr;
  std::vector<Texts> durable_;
  std::set<std::string> published_;
  NodeId late_ = kNodes;
  std::vector<NodeId> starters_;
  bool is_refused_ = false;
  std::uint32_t formed_ = 0, finished_ = 0, ended_ = 0;
  std::vector<Texts> logs_;
};

TEST(SpindleLogsFuzz, LogsSurvivePowerFailures) {
  Counts counts;
  for (std::uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed)
    LogWorld(seed, counts).run();
  EXPECT_GT(counts.restarts, kSeeds);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  EXPECT_GT(counts.later_joins, kSeeds / 2);
  EXPECT_GT(counts.refused, kSeeds / 10) << "no majority of the last view";
  EXPECT_GT(counts.durable, 100 * kSeeds);
  EXPECT_GT(counts.branches["spindle/torn_log"], kSeeds / 4);
  EXPECT_GT(counts.branches["spindle/log_cut"], 20U);
}

}  // namespace
}  // namespace pyrdma::spindle::dds
