#include "systems/spindle/fuzz/logs_world.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "fuzz/fault_phase.h"
#include "fuzz/simulation.h"
#include "systems/spindle/fuzz/spindle_scenario.h"

namespace pyrdma::spindle {
namespace scenario {

namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> texts_of(dds::DomainParticipant& participant) {
  std::vector<std::string> texts;
  for (const dds::Sample& sample : participant.read(0, 0, 1'000'000))
    texts.push_back(text_of(sample.bytes));
  return texts;
}

// Short times let a view without a dead node form before the next power failure.
Options group_options() {
  Options options = Options::of(Preset::kPaper);
  options.heartbeat = 20 * kMicrosecond;
  options.suspicion_timeout = 400 * kMicrosecond;
  options.join_timeout = 50 * kMillisecond;
  options.idle_after = 200 * kMicrosecond;
  options.timeout_us = 16;
  options.retry_count = 3;
  return options;
}

}  // namespace

LogsWorld::LogsWorld(const fuzz::Options& options, fuzz::Outcome& outcome, fuzz::FaultPhase& phase)
    : options_(options),
      outcome_(outcome),
      phase_(phase),
      rng_(options.seed, -1, "fuzz spindle logs"),
      bugs_(Bugs::named(options.mutation)),
      all_(options.nodes - 1),
      durable_(all_.size()) {
  std::iota(all_.begin(), all_.end(), NodeId{0});
  topic_.name = "t";
  topic_.qos = dds::Qos::kLogged;
  topic_.publishers = topic_.subscribers = all_;
  topic_.window = static_cast<std::uint32_t>(1 + rng_.below(5));
  topic_.max_sample = 2000;
  topic_.sync_every = static_cast<std::uint32_t>(rng_.below(4));
  rounds_ = static_cast<std::uint32_t>(2 + rng_.below(3));
  late_ = count();
}

void LogsWorld::run(fabric::sim::SimCluster& cluster) {
  cluster_ = &cluster;
  for (const NodeId node : all_) cluster.expect_restart(node);
  try {
    cluster.run([this](Env& env) { env.node() == count() ? drive(env) : live(env); });
    check();
  } catch (const Error& error) {
    violation("liveness", "round " + std::to_string(round_) + " of " + std::to_string(rounds_) +
                              ", late node " + std::to_string(late_) + ": " + error.what());
  }
}

void LogsWorld::violation(const char* kind, const std::string& text) {
  outcome_.report(kind, cluster_->now(), text);
}

void LogsWorld::pass(Env& env, std::uint64_t most_us) {
  env.sleep_until(env.now() + static_cast<Time>(rng_.below(most_us)) * kMicrosecond);
}

void LogsWorld::drive(Env& env) {
  while (!is_last()) {
    pass(env, 3'000);
    std::vector<NodeId> order = all_;
    for (NodeId i = count() - 1; i > 0; --i)
      std::swap(order[i], order[rng_.below(std::uint64_t{i} + 1)]);
    for (const NodeId node : order) {
      cluster_->kill(node, fabric::sim::Crash::kHost);
      phase_.crashed();
      pass(env, rng_.below(4) == 0 ? 2'000 : 120);  // now and then enough for a view without it
    }
    ++round_;
    // The one that died last has the longest log.
    late_ = rng_.below(4) == 0 ? count() : order[order.size() - 1 - (rng_.below(4) == 0)];
    is_refused_ = false;
    formed_ = 0;
    starters_ = all_;
    std::erase(starters_, late_);
    for (const NodeId node : starters_) cluster_->restart(node);
    if (late_ == count() || (!is_last() && rng_.below(3) == 0)) continue;
    const Time patience = env.now() + 60 * kMillisecond;
    while (formed_ < starters_.size() && !is_refused_ && env.now() < patience)
      env.sleep_until(env.now() + 10 * kMicrosecond);
    pass(env, 500);
    cluster_->restart(late_);
  }
}

void LogsWorld::live(Env& env) {
  const std::uint32_t round = round_;
  outcome_.restarts += env.incarnation() != 0;
  Life life;
  try {
    dds::DomainParticipant participant(
        env, group_options(), {topic_},
        [&](std::uint32_t, std::span<const Message> messages) { take(env.node(), life, messages); },
        false, bugs_);
    life.participant = &participant;
    expect_kept(env.node(), participant, "at its start");
    try {
      begin(env, participant);
      publish(env, participant);
    } catch (const Error& error) {
      // In all rounds but the last one another node may have died before this one.
      const bool is_loss =
          error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kUnavailable;
      if (round + 1 == rounds_ || !is_loss) throw;
    }
    if (round + 1 < rounds_) env.sleep_until(kForever);  // until the power fails
    finish(env, participant);
  } catch (const Error& error) {
    violation("error", "node " + std::to_string(env.node()) + ", round " + std::to_string(round) +
                           ": " + error.what());
    if (round + 1 < rounds_) env.sleep_until(kForever);
  }
}

// The end of a view makes its samples durable, and so does the listener's own sync.
void LogsWorld::take(NodeId node, Life& life, std::span<const Message> messages) {
  Texts& durable = durable_[node];
  const std::uint64_t view = life.participant->group().view_id();
  if (std::exchange(life.view, view) != view) {
    durable.insert(durable.end(), life.delivered.begin(), life.delivered.end());
    life.delivered.clear();
  }
  for (const Message& each : messages)
    (topic_.sync_every == 1 ? durable : life.delivered).push_back(text_of(each.bytes));
  outcome_.ok += messages.size();
}

/// What was durable at the node is in its log.
void LogsWorld::expect_kept(NodeId node, dds::DomainParticipant& participant, const char* when) {
  const Texts log = texts_of(participant);
  const std::set<std::string> kept(log.begin(), log.end());
  for (const std::string& text : durable_[node]) {
    if (kept.contains(text)) continue;
    return violation("durable", "node " + std::to_string(node) + " has lost " + text.substr(0, 12) +
                                    " of its disk, found " + when);
  }
  outcome_.checked += durable_[node].size();
}

void LogsWorld::begin(Env& env, dds::DomainParticipant& participant) {
  const NodeId node = env.node();
  if (env.incarnation() == 0) return participant.create(all_);
  if (node == late_ && !is_refused_) {
    // The others may have begun without what only this node's disk has.
    durable_[node].clear();
    participant.join(starters_);
    env.reached("spindle/joined_by_log");
    return;
  }
  try {
    participant.restart(is_refused_ ? all_ : starters_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable || late_ == count()) throw;
    // The others are no majority of the last view, so all begin.
    env.reached("spindle/restart_refused");
    is_refused_ = true;
    participant.restart(all_);
  }
  env.reached("spindle/restarted");
  ++formed_;
  if (!is_refused_ && late_ != count()) durable_[late_].clear();
  expect_kept(node, participant, "after the restart");
}

void LogsWorld::publish(Env& env, dds::DomainParticipant& participant) {
  Rng rng = env.rng("samples");
  const std::uint64_t most = std::max(2U, 2 * options_.operations / (rounds_ * count()));
  const std::uint64_t samples = 1 + rng.below(most);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::string text = std::to_string(env.node()) + '.' + std::to_string(env.incarnation()) +
                             '.' + std::to_string(i) + '.';
    const std::size_t bytes = text.size() + rng.below(rng.below(4) == 0 ? 1500 : 100);
    const Time pause = rng.below(3) == 0 ? static_cast<Time>(rng.below(200'000)) : 0;
    phase_.operation();
    if (options_.keeps(operations_++)) {
      const std::span<std::byte> memory = participant.loan(0);
      std::memset(memory.data(), 'x', bytes);
      std::memcpy(memory.data(), text.data(), text.size());
      published_.insert(text_of(memory.first(bytes)));
      participant.publish(0, static_cast<std::uint32_t>(bytes));
    }
    if (pause != 0) participant.group().pause_until(env.now() + pause);
  }
}

/// In the last round all nodes have all samples of each other.
void LogsWorld::finish(Env& env, dds::DomainParticipant& participant) {
  ++finished_;
  const auto wait = [&](const std::function<bool()>& ready, const char* what) {
    if (!participant.group().wait_until(ready, env.now() + kSecond))
      violation("liveness", "node " + std::to_string(env.node()) + " waits for " + what);
  };
  wait([&] { return finished_ == count() && participant.group().members().size() == count(); },
       "the others");
  participant.group().pause_until(env.now() + 5 * kMillisecond);  // all is delivered
  logs_.push_back(texts_of(participant));
  ++ended_;
  wait([&] { return ended_ == count(); }, "the end of the others");
}

void LogsWorld::check() {
  if (logs_.size() != count()) return violation("liveness", "a node has not come to the end");
  for (const Texts& log : logs_) {
    if (log != logs_[0])
      return violation("logs", "two logs differ; they have " + std::to_string(log.size()) +
                                   " and " + std::to_string(logs_[0].size()) + " samples");
  }
  std::map<std::string, std::uint64_t> next;  // by publisher
  for (const std::string& text : logs_[0]) {
    const std::size_t second = text.find('.', text.find('.') + 1);
    if (!published_.contains(text) || second == std::string::npos)
      return violation("logs", "the logs have a sample that nobody published");
    const std::uint64_t number = std::stoull(text.substr(second + 1));
    std::uint64_t& expected = next[text.substr(0, second)];
    // Samples that are left out have numbers too.
    if (number < expected || (number > expected && !options_.kept))
      return violation("order", text.substr(0, 12) + " follows " + std::to_string(expected));
    expected = number + 1;
  }
}

namespace {

fuzz::Outcome run_logs(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  // The faults last to the end: to end them would start the dead nodes.
  constexpr Time kLimit = 100 * kSecond;
  if (options.faults.heal_at == kForever) options.faults.heal_at = kLimit;
  fuzz::FaultPhase phase(options, outcome);
  ++options.nodes;  // the driver
  LogsWorld world(options, outcome, phase);
  fabric::sim::SimCluster cluster(fuzz::simulation_of(options, kLimit));
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  world.run(cluster);
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace
}  // namespace scenario

fuzz::Scenario logs_scenario() {
  return {"spindle_logs",
          "Spindle's logged topics while hosts lose power and start again",
          scenario::run_logs,
          {kLogBugNames.begin(), kLogBugNames.end()},
          {},
          // Faults that cost a group no member: the last round needs all of them.
          {Fault::disk_torn, Fault::duplicate, Fault::reorder, Fault::cache_miss,
           Fault::late_completion},
          {"spindle/joined_by_log", "spindle/log_cut", "spindle/restart_refused",
           "spindle/restarted", "spindle/torn_log"},
          8};
}

}  // namespace pyrdma::spindle
