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

constexpr const char* kLogName = "topic-0.log";

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> texts_of(dds::DomainParticipant& participant) {
  std::vector<std::string> texts;
  for (const dds::Sample& sample : participant.read(0, 0, 1'000'000))
    texts.push_back(text_of(sample.bytes));
  return texts;
}

// A member is not taken for dead while its disk is slow. Otherwise short times let a view without a
// dead node form before the next power failure.
Options group_options() {
  Options options = Options::of(Preset::kPaper);
  options.heartbeat = kMillisecond;
  options.suspicion_timeout = 60 * kMillisecond;
  options.join_timeout = 500 * kMillisecond;
  options.idle_after = kMillisecond;
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
      durable_(all_.size()),
      is_forfeit_(all_.size()),
      is_rotten_(all_.size()),
      views_files_(all_.size()),
      groups_(all_.size()) {
  std::iota(all_.begin(), all_.end(), NodeId{0});
  topic_.name = "t";
  topic_.qos = dds::Qos::kLogged;
  topic_.publishers = topic_.subscribers = all_;
  topic_.window = static_cast<std::uint32_t>(1 + rng_.below(5));
  topic_.max_sample = 2000;
  topic_.sync_every = static_cast<std::uint32_t>(rng_.below(4));
  rounds_ = static_cast<std::uint32_t>(3 + rng_.below(4));
  rots_ = rng_.below(5) == 0;
}

bool LogsWorld::is_late(NodeId node) const { return std::ranges::find(late_, node) != late_.end(); }

void LogsWorld::run(fabric::sim::SimCluster& cluster) {
  cluster_ = &cluster;
  for (const NodeId node : all_) cluster.expect_restart(node);
  try {
    cluster.run([this](Env& env) { env.node() == count() ? drive(env) : live(env); });
    check();
  } catch (const Error& error) {
    violation("liveness", "round " + std::to_string(round_) + " of " + std::to_string(rounds_) +
                              ": " + error.what());
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
    pass(env, 10'000);
    std::vector<NodeId> order = all_;
    for (NodeId i = count() - 1; i > 0; --i)
      std::swap(order[i], order[rng_.below(std::uint64_t{i} + 1)]);
    for (const NodeId node : order) {
      cluster_->kill(node, fabric::sim::Crash::kHost);
      groups_[node] = nullptr;
      phase_.crashed();
      // The others may have time for a view without it. Often the power fails as that begins.
      if (rng_.below(4) == 0) {
        wait_for_view(env);
        pass(env, rng_.below(3) == 0 ? 150'000 : 500);
      } else {
        pass(env, 1'000);
      }
    }
    ++round_;
    for (const NodeId node : all_) {
      if (is_forfeit_[node]) durable_[node].clear();
      is_forfeit_[node] = false;
    }
    // Those that died last have the longest logs. Too few starters wait for the others.
    const std::size_t late = rng_.below(4) == 0 ? 0 : 1 + rng_.below(std::uint64_t{count()} / 2);
    starters_.assign(order.begin(), order.end() - static_cast<std::ptrdiff_t>(late));
    late_.assign(order.end() - static_cast<std::ptrdiff_t>(late), order.end());
    is_refused_ = has_formed_[0] = has_formed_[1] = false;
    formed_ = 0;
    is_split_ = !is_last() && rng_.below(4) == 0;
    for (const NodeId node : is_split_ ? all_ : starters_) cluster_->restart(node);
    if (is_split_) continue;
    const Time patience = env.now() + 600 * kMillisecond;
    while (formed_ < starters_.size() && !is_refused_ && env.now() < patience)
      env.sleep_until(env.now() + 10 * kMicrosecond);
    if (!is_last() && !is_refused_ && rng_.below(2) == 0) continue;  // they stay away
    for (const NodeId node : late_) {
      pass(env, 500);
      cluster_->restart(node);
    }
  }
}

// Until a node that lives enters a view.
void LogsWorld::wait_for_view(Env& env) {
  const auto newest = [this] {
    std::uint64_t id = 0;
    for (Group* group : groups_) {
      if (group != nullptr) id = std::max(id, group->view_id());
    }
    return id;
  };
  const std::uint64_t before = newest();
  const Time patience = env.now() + 150 * kMillisecond;
  while (newest() <= before && env.now() < patience) env.sleep_until(env.now() + 10 * kMicrosecond);
}

// A bit of the log changes while the node is down.
void LogsWorld::rot(Env& env) {
  if (!rots_ || env.incarnation() == 0 || rng_.below(4) != 0) return;
  const auto file = env.storage().open(kLogName);
  if (file->size() == 0) return;
  is_rotten_[env.node()] = true;
  const std::uint64_t at = rng_.below(file->size());
  std::byte byte{};
  file->read(at, {&byte, 1});
  byte ^= static_cast<std::byte>(1U << rng_.below(8));
  file->write(at, {&byte, 1});
  file->sync();
}

// A bit of the log of views has changed: no other views are found, if any. Then it changes back.
void LogsWorld::rot_views(Env& env) {
  const NodeId node = env.node();
  if (!rots_ || env.incarnation() == 0) return;
  const auto file = env.storage().open("views.log");
  Bytes& whole = views_files_[node];
  if (whole.empty()) {
    whole.resize(file->size());
    file->read(0, whole);
  }
  std::optional<dds::LoggedViews> found;
  try {
    const std::uint64_t at = rng_.below(2) * 4096 + rng_.below(64);
    if (at < whole.size())
      file->write(at, Bytes{whole[at] ^ static_cast<std::byte>(1U << rng_.below(8))});
    found = dds::ViewLog(env, false, bugs_).views();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable) throw;
    env.reached("spindle/views_refused");
  }
  file->write(0, whole);
  file->sync();
  whole.clear();
  if (found && *found != dds::ViewLog(env).views())
    violation("views", "node " + std::to_string(node) + " has forgotten a view");
}

// A log that is refused is cut, and so has lost what was durable: with a word. If it begins the
// domain again, the others lose what it lacks.
std::unique_ptr<dds::DomainParticipant> LogsWorld::open(Env& env, Life& life) {
  const auto make = [&](bool cut_damage) {
    return std::make_unique<dds::DomainParticipant>(
        env, group_options(), std::vector{topic_},
        [&](std::uint32_t, std::span<const Message> messages) { take(env.node(), life, messages); },
        cut_damage, bugs_);
  };
  rot(env);
  rot_views(env);
  try {
    auto participant = make(false);
    is_rotten_[env.node()] = false;
    return participant;
  } catch (const Error& error) {
    const bool is_refused = error.code() == ErrorCode::kUnavailable &&
                            std::string_view(error.what()).find(kLogName) != std::string_view::npos;
    if (!is_rotten_[env.node()] || !is_refused) throw;
  }
  env.reached("spindle/log_refused");
  for (Texts& durable : durable_) durable.clear();
  auto participant = make(true);
  is_rotten_[env.node()] = false;
  return participant;
}

void LogsWorld::live(Env& env) {
  const std::uint32_t round = round_;
  outcome_.restarts += env.incarnation() != 0;
  Life life;
  try {
    const std::unique_ptr<dds::DomainParticipant> opened = open(env, life);
    dds::DomainParticipant& participant = *opened;
    life.participant = &participant;
    groups_[env.node()] = &participant.group();
    expect_kept(env.node(), participant, "at its start");
    try {
      begin(env, participant);
      publish(env, participant);
    } catch (const Error& error) {
      // In all rounds but the last one another node may have died before this one.
      const bool is_loss =
          error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kUnavailable;
      const bool is_excluded = participant.group().standing() == Standing::kExcluded;
      if ((round + 1 == rounds_ && !is_excluded) || !is_loss) throw;
    }
    if (round + 1 < rounds_) env.sleep_until(kForever);  // until the power fails
    finish(env, participant);
  } catch (const Error& error) {
    violation("error", "node " + std::to_string(env.node()) + ", round " + std::to_string(round) +
                           ": " + error.what());
    groups_[env.node()] = nullptr;
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
  if (is_split_) return begin_split(node, participant);
  if (is_late(node) && !is_refused_) {
    durable_[node].clear();  // forfeit
    participant.join(starters_);
    env.reached("spindle/joined_by_log");
    return;
  }
  try {
    if (!is_refused_) forfeit(late_);
    if (is_refused_ || late_.empty())
      restart_all(participant);
    else
      participant.restart(starters_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable || late_.empty()) throw;
    // The others are no majority of the last view, so all begin.
    env.reached("spindle/restart_refused");
    is_refused_ = true;
    forfeit(late_, false);
    restart_all(participant);
  }
  env.reached("spindle/restarted");
  ++formed_;
  expect_kept(node, participant, "after the restart");
}

void LogsWorld::forfeit(const std::vector<NodeId>& nodes, bool value) {
  for (const NodeId node : nodes) is_forfeit_[node] = value;
}

// The power may have failed before the domain began.
void LogsWorld::restart_all(dds::DomainParticipant& participant) {
  try {
    participant.restart(all_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable || !published_.empty()) throw;
    participant.create(all_);
  }
}

// At most one side has a majority of the last view.
void LogsWorld::begin_split(NodeId node, dds::DomainParticipant& participant) {
  const bool side = is_late(node);
  const std::vector<NodeId>& others = side ? starters_ : late_;
  forfeit(others);
  try {
    participant.restart(side ? late_ : starters_);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnavailable) forfeit(others, false);
    throw;
  }
  has_formed_[side] = true;
  if (has_formed_[!side]) violation("split", "two domains began from the logs of one");
  expect_kept(node, participant, "after the restart of a part");
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

// Slow disks may cost a member its place.
void LogsWorld::wait(Env& env, dds::DomainParticipant& participant, const char* what,
                     const std::function<bool()>& ready) {
  Group& group = participant.group();
  const Time deadline = env.now() + 5 * kSecond;
  while (!ready() && env.now() < deadline) {
    if (group.standing() == Standing::kExcluded) {
      try {
        participant.join(all_);  // it leaves this node out
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
      }
    }
    group.wait_until([&] { return ready() || group.standing() == Standing::kExcluded; }, deadline);
  }
  if (!ready()) violation("liveness", "node " + std::to_string(env.node()) + " waits for " + what);
}

/// In the last round all nodes have all samples of each other.
void LogsWorld::finish(Env& env, dds::DomainParticipant& participant) {
  ++finished_;
  Group& group = participant.group();
  const auto is_settled = [&] {
    return finished_ == count() && std::ranges::all_of(groups_, [&](Group* each) {
             return each != nullptr && each->is_settled() &&
                    each->standing() == Standing::kMember && each->members().size() == count() &&
                    each->view_id() == group.view_id();
           });
  };
  // All is delivered some time after the last view has begun.
  for (bool has_stayed = false; !has_stayed && outcome_.violations.empty();) {
    wait(env, participant, "the others", is_settled);
    const std::uint64_t view = group.view_id();
    group.pause_until(env.now() + 200 * kMillisecond);
    has_stayed = is_settled() && group.view_id() == view;
  }
  logs_.push_back(texts_of(participant));
  ++ended_;
  wait(env, participant, "the end of the others", [&] { return ended_ == count(); });
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
  return {
      "spindle_logs",
      "Spindle's logged topics while hosts lose power and start again",
      scenario::run_logs,
      {kLogBugNames.begin(), kLogBugNames.end()},
      {},
      // Faults that cost a group no member: the last round needs all of them.
      {Fault::disk_torn, Fault::disk_slow, Fault::duplicate, Fault::reorder, Fault::cache_miss,
       Fault::late_completion},
      {"spindle/joined_by_log", "spindle/log_cut", "spindle/log_refused", "spindle/restart_refused",
       "spindle/restarted", "spindle/torn_log", "spindle/views_refused"},
      8,
      false};
}

}  // namespace pyrdma::spindle
