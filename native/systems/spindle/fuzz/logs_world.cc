#include "systems/spindle/fuzz/logs_world.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "fuzz/failing_syncs.h"
#include "fuzz/fault_phase.h"

namespace pyrdma::spindle::scenario {

namespace {

constexpr const char* kLogName = "topic-0.log";
constexpr std::uint32_t kLongLog = 2500;  // samples

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> texts_of(dds::DomainParticipant& participant) {
  std::vector<std::string> texts;
  for (const dds::Sample& sample : participant.read(0, 0, 1'000'000))
    texts.push_back(text_of(sample.bytes));
  return texts;
}

}  // namespace

LogsWorld::LogsWorld(const fuzz::Options& options, fuzz::Outcome& outcome, fuzz::FaultPhase& phase)
    : options_(options),
      outcome_(outcome),
      phase_(phase),
      rng_(options.seed, -1, "fuzz spindle logs"),
      bugs_(Bugs::named(options.mutation)),
      all_(options.nodes),
      oracle_(count(), topic_,
              [this](const char* kind, const std::string& text) { violation(kind, text); }),
      is_rotten_(all_.size()),
      is_cut_(all_.size()),
      views_files_(all_.size()),
      has_begun_(all_.size()),
      fails_(all_.size()),
      comes_back_(all_.size()),
      running_(all_.size()),
      groups_(all_.size()) {
  std::iota(all_.begin(), all_.end(), NodeId{0});
  topic_.name = "t";
  topic_.qos = dds::Qos::kLogged;
  topic_.publishers = topic_.subscribers = all_;
  topic_.window = static_cast<std::uint32_t>(1 + rng_.below(5));
  topic_.max_sample = 2000;
  topic_.sync_every = std::array{0U, 1U, 1U, 2U, 3U}[rng_.below(5)];
  grows_ = rng_.below(4) == 0;
  if (count() > 2 && rng_.below(grows_ ? 2 : 4) == 0)
    topic_.subscribers.erase(topic_.subscribers.begin());
  rounds_ = static_cast<std::uint32_t>(3 + rng_.below(4));
  rots_ = rng_.below(5) == 0;
  founders_ = all_;
  const std::size_t least = all_.size() - topic_.subscribers.size() + 1;  // one subscriber
  if (grows_)
    founders_.resize(least);
  else if (rng_.below(2) == 0)
    founders_.resize(least + rng_.below(topic_.subscribers.size()));
  // The one member with a long log may die while it hands it on, and a publisher has none.
  if (rng_.below(grows_ && least == 2 ? 2 : 16) == 0) is_filled_ = true;
  joins_at_once_ = grows_ || rng_.below(2) == 0;
}

// A member is not taken for dead while its disk is slow. Otherwise short times let a view without a
// dead node form before the next power failure.
Options LogsWorld::group_options() {
  Options options = Options::of(Preset::kPaper);
  options.heartbeat = kMillisecond;
  options.suspicion_timeout = 60 * kMillisecond;
  options.join_timeout = 500 * kMillisecond;
  options.idle_after = kMillisecond;
  options.timeout_us = 16;
  options.retry_count = 3;
  return options;
}

bool LogsWorld::is_founder(NodeId node) const {
  return std::ranges::find(founders_, node) != founders_.end();
}
bool LogsWorld::is_late(NodeId node) const { return std::ranges::find(late_, node) != late_.end(); }

void LogsWorld::run(fabric::sim::SimCluster& cluster) {
  cluster_ = &cluster;
  for (const NodeId node : all_) cluster.expect_restart(node);
  try {
    cluster.run([this](Env& env) {
      if (env.node() < count()) return live(env);
      env.node() == count() ? drive(env) : be_client(env);
    });
    oracle_.end(logs_, options_.kept.has_value());
  } catch (const Error& error) {
    violation("liveness", "round " + std::to_string(round_) + " of " + std::to_string(rounds_) +
                              ": " + error.what());
  }
}

void LogsWorld::violation(const char* kind, const std::string& text) {
  outcome_.report(kind, cluster_->now(), text);
}

// A bit of the log changes while the node is down.
void LogsWorld::rot(Env& env) {
  if (!rots_ || !had_published_ || rng_.below(4) != 0) return;
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

// The founders agree on a long log, which the others do not have. A disk takes its time for each
// request: longer than a member may be silent, if there is one for each sample.
void LogsWorld::fill_log(Env& env) {
  if (!is_filled_ || had_published_ || !is_founder(env.node()) ||
      !topic_.has_subscriber(env.node()))
    return;
  dds::SampleLog log(env, kLogName);
  for (std::uint64_t i = log.samples(); i < kLongLog; ++i) {
    const std::string text = "filled.0." + std::to_string(i);
    log.append(0, std::as_bytes(std::span(text)));
    oracle_.published(text);
  }
  log.sync();
}

// A log that is refused is cut, and so has lost what was durable: with a word.
std::unique_ptr<dds::DomainParticipant> LogsWorld::open(Env& env) {
  const NodeId node = env.node();
  const auto make = [&](bool cut_damage) {
    return std::make_unique<dds::DomainParticipant>(
        env, group_options(), std::vector{topic_},
        [this, node](std::uint32_t, std::span<const Message> messages) {
          if (groups_[node] != nullptr)  // else its life is over
            oracle_.delivered(node, groups_[node]->view_id(), messages);
          outcome_.ok += messages.size();
        },
        cut_damage, bugs_);
  };
  fill_log(env);
  rot(env);
  rot_views(env);
  const dds::LoggedView ran = dds::ViewLog(env).views().ran;
  oracle_.runs(ran.id, ran.members);
  std::unique_ptr<dds::DomainParticipant> participant;
  try {
    participant = make(false);
  } catch (const Error& error) {
    const bool is_refused = error.code() == ErrorCode::kUnavailable &&
                            std::string_view(error.what()).find(kLogName) != std::string_view::npos;
    if (!is_rotten_[node] || !is_refused) throw;
    env.reached("spindle/log_refused");
    is_cut_[node] = true;  // also if the power fails before the next line ends
    participant = make(true);
  }
  if (is_cut_[node]) oracle_.damaged(texts_of(*participant));
  is_rotten_[node] = is_cut_[node] = false;
  return participant;
}

void LogsWorld::look_at_view(NodeId node, Group& group) {
  const std::uint64_t view = group.view_id();
  if (running_[node].view == view || !group.is_settled() || group.view_id() != view) return;
  running_[node] = {view, {}};
  for (const Member& member : group.members()) running_[node].members.push_back(member.node);
}

void LogsWorld::live(Env& whole) {
  const std::uint32_t round = round_;
  outcome_.restarts += whole.incarnation() != 0;
  fuzz::EnvWithFailingSyncs env(whole, [&, node = whole.node()](std::uint64_t unsynced) {
    const bool fails = fails_[node] && unsynced != 0;
    if (fails) fails_[node] = false;
    return fails;
  });
  try {
    const std::unique_ptr<dds::DomainParticipant> opened = open(env);
    dds::DomainParticipant& participant = *opened;
    groups_[env.node()] = &participant.group();
    struct Ending {
      Group*& group;
      ~Ending() { group = nullptr; }
    } const ending{groups_[env.node()]};
    oracle_.started(env.node(), texts_of(participant));
    try {
      begin(env, participant);
      has_begun_[env.node()] = true;
      publish(env, participant);
    } catch (const Error& error) {
      // In all rounds but the last one another node may have died before this one.
      const bool is_loss =
          error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kUnavailable;
      const bool is_excluded = participant.group().standing() == Standing::kExcluded;
      if ((round + 1 == rounds_ && !is_excluded) || !is_loss) throw;
    }
    while (round + 1 < rounds_) {  // until the power fails
      look_at_view(env.node(), participant.group());
      env.sleep_until(env.now() + 500 * kMicrosecond);
    }
    finish(env, participant);
  } catch (const Error& error) {
    violation("error", "node " + std::to_string(env.node()) + ", round " + std::to_string(round) +
                           ": " + error.what());
    if (round + 1 < rounds_) env.sleep_until(kForever);
  }
}

void LogsWorld::begin(Env& env, dds::DomainParticipant& participant) {
  const NodeId node = env.node();
  if (comes_back_[node]) {
    env.reached("spindle/failed_opened");
    return join(node, participant, all_);  // it leaves this node out
  }
  if (env.incarnation() == 0) return begin_first(env, participant);
  if (is_split_) return begin_split(node, participant);
  if (is_late(node) && !is_refused_) return join(node, participant, starters_);
  try {
    if (!is_refused_) oracle_.forfeit(late_);
    if (is_refused_ || late_.empty())
      restart_all(env, participant);
    else
      participant.restart(starters_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable || late_.empty()) throw;
    // The others are no majority of the last view, so all begin.
    env.reached("spindle/restart_refused");
    is_refused_ = true;
    oracle_.forfeit(late_, false);
    restart_all(env, participant);
  }
  env.reached("spindle/restarted");
  ++formed_;
  oracle_.began(node, is_refused_ ? all_ : starters_, texts_of(participant));
}

void LogsWorld::begin_first(Env& env, dds::DomainParticipant& participant) {
  if (is_founder(env.node())) {
    participant.create(founders_);
    return oracle_.began(env.node(), founders_, texts_of(participant));
  }
  if (!joins_at_once_)
    env.sleep_until(env.now() + static_cast<Time>(rng_.below(3'000)) * kMicrosecond);
  join(env.node(), participant, founders_);
}

void LogsWorld::join(NodeId node, dds::DomainParticipant& participant,
                     const std::vector<NodeId>& contacts) {
  participant.join(contacts);
  participant.group().env().reached("spindle/joined_by_log");
  const Texts log = texts_of(participant);
  oracle_.joined(node, participant.group().view_id(), log);
}

// The power may have failed before the domain began.
void LogsWorld::restart_all(Env& env, dds::DomainParticipant& participant) {
  try {
    participant.restart(all_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable || had_published_) throw;
    begin_first(env, participant);
  }
}

// At most one side has a majority of the last view.
void LogsWorld::begin_split(NodeId node, dds::DomainParticipant& participant) {
  const bool side = is_late(node);
  const std::vector<NodeId>& others = side ? starters_ : late_;
  oracle_.forfeit(others);
  try {
    participant.restart(side ? late_ : starters_);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnavailable) oracle_.forfeit(others, false);
    throw;
  }
  has_formed_[side] = true;
  if (has_formed_[!side]) violation("split", "two domains began from the logs of one");
  oracle_.began(node, side ? late_ : starters_, texts_of(participant));
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
      oracle_.published(text_of(memory.first(bytes)));
      has_published_ = true;
      participant.publish(0, static_cast<std::uint32_t>(bytes));
    }
    if (pause != 0) participant.group().pause_until(env.now() + pause);
    look_at_view(env.node(), participant.group());
    if (rng.below(6) == 0) oracle_.sync(env.node(), [&] { participant.sync(); });
  }
}

// Slow disks may cost a member its place.
void LogsWorld::wait(Env& env, dds::DomainParticipant& participant, const char* what,
                     const std::function<bool()>& ready) {
  Group& group = participant.group();
  const Time deadline = env.now() + 5 * kSecond;
  while (!ready() && env.now() < deadline) {
    if (group.standing() == Standing::kExcluded) {
      has_begun_[env.node()] = false;
      try {
        join(env.node(), participant, all_);  // it leaves this node out
        has_begun_[env.node()] = true;
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
    return finished_ == count() && is_client_over_ &&
           std::ranges::all_of(groups_, [&](Group* each) {
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
  if (topic_.has_subscriber(env.node())) logs_.push_back(texts_of(participant));
  ++ended_;
  wait(env, participant, "the end of the others", [&] { return ended_ == count(); });
}

}  // namespace pyrdma::spindle::scenario
