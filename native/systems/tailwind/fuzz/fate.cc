#include "systems/tailwind/fuzz/fate.h"

#include <algorithm>
#include <utility>

namespace pyrdma::tailwind::scenario {

namespace {

using fabric::sim::Crash;

constexpr Time kLook = 50 * kMicrosecond;    // between two looks
constexpr Time kAimed = 5 * kMicrosecond;    // the same, while a crash waits for its moment
constexpr Time kMoment = 20 * kMillisecond;  // in which the moment comes, or the crash does without
/// Windows of one run. More would only make it long.
constexpr std::uint32_t kMostWindows = 32;
/// In which a server that cannot be reached is taken for dead.
constexpr Time kDetection = 2 * kMillisecond;

Crash crash_of(Fault fault) {
  return fault == Fault::crash        ? Crash::kProcess
         : fault == Fault::host_crash ? Crash::kHost
                                      : Crash::kHostBattery;
}

bool is_crash(Fault fault) {
  return fault == Fault::crash || fault == Fault::host_crash || fault == Fault::battery_crash;
}

}  // namespace

Fate::Fate(World& world, Env& env)
    : world_(world),
      env_(env),
      rng_(env.rng("fuzz tailwind fate")),
      patience_(world.options.recovery_limit),
      lost_patience_(world.options.recovery_limit / 4) {
  if (world.shape.outage) outage_after_ = 1 + rng_.below(world.options.operations);
}

Fate::~Fate() {
  for (auto* hook :
       {&world_.at_answer, &world_.at_write, &world_.at_cleaning, &world_.at_head, &world_.at_roll})
    *hook = nullptr;
}

void Fate::run() {
  while (!world_.is_over) {
    const Time next = now() + kLook;
    while (now() < next && !world_.is_over) {
      const bool is_aimed = !dying_.empty() || awaits_moment();
      env_.sleep_until(env_.now() + (is_aimed ? std::min(next - now(), kAimed) : next - now()));
      end_dying();
    }
    watch();
    if (world_.outcome.begun != 0 && world_.cluster->faults_are_on()) draw(now());
  }
}

// Faults that come one upon the other soon cost more servers than there are replicas, and the rest
// of a long run finds a store that waits. So in most seeds they wait until the store has got over
// the last ones.
void Fate::draw(Time now) {
  for (const Fault fault : kCostly) {
    if (!world_.phase.begins(fault, kLook, rng_)) continue;
    if (std::ranges::find(waiting_, fault) == waiting_.end()) waiting_.push_back(fault);
  }
  if (outage_after_ != 0 && world_.outcome.begun >= outage_after_ &&
      may_begin(now, Fault::partition) && !world_.at_answer) {
    outage_after_ = 0;
    world_.at_answer = [this](NodeId) {
      if (world_.unsettled() == 0) end_all();
    };
  }
  if (now >= again_) {
    again_ = kForever;
    crash_later(again_as_);
  }
  if (now >= moment_until_) {
    moment_until_ = kForever;
    if (awaits_moment()) kill_any(again_as_);
    world_.at_cleaning = world_.at_head = world_.at_roll = nullptr;
  }
  if (const auto& wanted = world_.shape.cleaner_crash;
      wanted && !awaits_moment() && begun_ < kMostWindows && may_begin(now, *wanted)) {
    ++begun_;
    await_cleaner(*wanted);
  }
  if (waiting_.empty() || begun_ == kMostWindows || !may_begin(now, waiting_.front())) return;
  ++begun_;
  const Fault fault = waiting_.front();
  waiting_.erase(waiting_.begin());
  begin(fault);
}

bool Fate::may_begin(Time now, Fault fault) const {
  const std::uint32_t most = is_crash(fault) ? world_.shape.most_unsettled : 0;
  return world_.shape.is_rash || (now >= quiet_from_ && world_.unsettled() <= most);
}

void Fate::begin(Fault fault) {
  if (is_crash(fault)) return crash_later(fault);
  const bool may_cut =
      fault == Fault::partition_partial || fault == Fault::partition || fault == Fault::isolation;
  if (may_cut && rng_.below(2) == 0 && !world_.at_answer) {
    world_.at_answer = [this](NodeId server) { cut_off(server); };
    return;
  }
  world_.cluster->open_fault(fault);
  quiet_from_ = now() + world_.options.faults[fault].max + kDetection;
}

// What is answered must survive the crash of whoever has answered, and the log that of its server
// between two heads, and amid the work of its cleaner.
void Fate::crash_later(Fault fault) {
  const std::uint64_t when = world_.has_cleaned() && rng_.below(2) == 0 ? 2 : rng_.below(4);
  const auto soon = [this, fault](NodeId server) {
    if (may_kill(server)) end_soon(server, fault);
  };
  again_as_ = fault;
  if (when == 0 && !world_.at_answer) {
    world_.at_answer = [this, fault](NodeId server) {
      if (may_kill(server)) kill(server, fault);
    };
  } else if (when == 1 && !world_.at_write) {
    world_.at_write = soon;
  } else if (when == 2 && !awaits_moment()) {
    if (world_.has_cleaned() || rng_.below(2) == 0)
      await_cleaner(fault);
    else
      world_.at_roll = soon;
    moment_until_ = now() + kMoment;
  } else {
    kill_any(fault);
  }
}

void Fate::await_cleaner(Fault fault) {
  if (rng_.below(3) != 0) {
    world_.at_head = [this, fault](NodeId server) {
      if (may_kill(server)) end_at_head(server, fault);
    };
    return;
  }
  for (auto& [id, life] : world_.lives) life.survivors.reset();
  world_.at_cleaning = [this, fault](NodeId server) {
    if (may_kill(server)) end_soon(server, fault);
  };
}

/// The head may be nowhere when the node dies, while others have heard what had to wait for it. As
/// many others die as the store survives.
void Fate::end_at_head(NodeId server, Fault fault) {
  std::vector<NodeId> others;
  for (NodeId other = 0; other < world_.shape.store.servers; ++other)
    if (other != server) others.push_back(other);
  for (std::size_t i = others.size(); i > 1; --i) std::swap(others[i - 1], others[rng_.below(i)]);
  const Time at = now() + static_cast<Time>(10 + rng_.below(30)) * kMicrosecond;
  dying_.push_back({at, kForever, server, fault});
  while (!others.empty() && may_kill(others.back())) {
    dying_.push_back({at, kForever, others.back(), fault});
    others.pop_back();
  }
  others.resize(others.size() / 2 + rng_.below(1 + others.size() % 2));
  for (const NodeId deaf : others) world_.cluster->block(server, deaf, at - now() + kLook);
}

/// Nobody but the first client reaches the server, for longer than the others wait.
void Fate::cut_off(NodeId server) {
  const Time duration = kMillisecond + static_cast<Time>(rng_.below(8 * kMillisecond));
  for (NodeId other = 0; other < world_.options.nodes; ++other) {
    if (other == server || other == env_.node()) continue;
    world_.cluster->block(server, other, duration);
    world_.cluster->block(other, server, duration);
  }
  quiet_from_ = now() + duration + kDetection;
}

bool Fate::may_kill(NodeId server) const {
  return world_.unsettled() + dying_.size() < world_.shape.store.replicas &&
         !world_.down.contains(server);
}

/// The node dies soon. In most cases only some servers get what it sends before.
void Fate::end_soon(NodeId node, Fault fault) {
  const std::uint64_t left = 1 + rng_.below(rng_.below(2) == 0 ? 20 : 80);
  const Time now = this->now();
  const std::uint64_t draw = rng_.below(3);
  const Time silent = draw == 0   ? kForever
                      : draw == 1 ? now
                                  : now + static_cast<Time>(rng_.below(left)) * kMicrosecond;
  dying_.push_back({now + static_cast<Time>(left) * kMicrosecond, silent, node, fault});
  end_dying();
}

void Fate::end_dying() {
  const Time now = this->now();
  for (Dying& each : dying_) {
    if (now < each.silent_from) continue;
    each.silent_from = kForever;
    for (NodeId other = 0; other < world_.shape.store.servers; ++other)
      if (other != each.node && rng_.below(3) != 0)
        world_.cluster->block(each.node, other, each.at - now + kLook);
  }
  for (const Dying& each : std::vector<Dying>(dying_))
    if (each.at <= now && !world_.down.contains(each.node)) kill(each.node, each.fault);
  std::erase_if(dying_, [&](const Dying& each) { return each.at <= now; });
}

/// `is_outage`: all servers die, so no primary replaces what batteries have saved.
void Fate::kill(NodeId node, Fault fault, bool is_outage) {
  ++world_.outcome.faults.fired[static_cast<std::size_t>(fault)];
  ++world_.outcome.faults.reached[static_cast<std::size_t>(fault)];
  world_.phase.crashed();
  world_.down.insert(node);
  for (auto& [id, life] : world_.lives) {
    if (id.node != node || life.has_ended) continue;
    life.is_saved = is_outage && fault == Fault::battery_crash;
    world_.server_ended(id);
  }
  const Crash crash = crash_of(fault);
  if (crash == Crash::kHostBattery) world_.battery_saves();
  const auto& setting = world_.options.faults[fault];
  const Time least = std::max<Time>(setting.min, 1), most = std::max(setting.max, least + 1);
  world_.cluster->kill(node, crash);
  world_.cluster->restart_later(
      node, least + static_cast<Time>(rng_.below(static_cast<std::uint64_t>(most - least))));
  // Another one amid the recovery, or at once.
  if (is_outage || rng_.below(2) == 0) return;
  again_ = now() + static_cast<Time>(rng_.below(rng_.below(2) == 0 ? 20 : 1500)) * kMicrosecond;
  again_as_ = fault;
}

bool Fate::kill_any(Fault fault) {
  const Shape& shape = world_.shape;
  NodeId victim = static_cast<NodeId>(rng_.below(shape.store.servers));
  const std::uint64_t draw = rng_.below(10);
  if (draw == 0 && shape.store.coordinator != env_.node() && !has_bad_disks(world_.options)) {
    victim = shape.store.coordinator;
  } else if (draw == 1 && env_.node() + 1 < world_.options.nodes) {
    victim = env_.node() + 1;
  } else if (!may_kill(victim)) {
    return false;
  }
  if (world_.down.contains(victim)) return false;
  if (rng_.below(2) == 0)
    kill(victim, fault);
  else
    end_soon(victim, fault);
  return true;
}

void Fate::end_all() {
  for (NodeId node = 0; node < world_.shape.store.servers; ++node)
    if (!world_.down.contains(node)) kill(node, *world_.shape.outage, true);
}

void Fate::watch() {
  if (world_.all_done() && world_.cluster->faults_are_on()) world_.cluster->heal();
  const fuzz::Outcome& sum = world_.outcome;
  if (sum.begun == 0 || world_.cluster->faults_are_on()) return;
  const Time now = this->now();
  const std::uint64_t progress = sum.begun + sum.ok + sum.fail;
  const Time work = world_.disk_work();
  const bool is_over = patience_.is_over(now, progress, work);
  // What is lost does not come again.
  const bool is_lost_over = lost_patience_.is_over(now, progress, work) && is_lost();
  if (world_.reads_all || world_.is_stalled) {
    if (is_over) give_up(now);
    return;
  }
  const bool is_complete = world_.all_done() && world_.is_whole() && world_.garbage().empty();
  if (is_complete && (has_crashed_ || !world_.shape.has_last_crash)) {
    world_.outcome.made("whole");
    world_.reads_all = true;
    renew(now);
  } else if (is_complete) {
    has_crashed_ = true;
    renew(now);
    kill(static_cast<NodeId>(rng_.below(world_.shape.store.servers)), Fault::crash);
  } else if (is_over || is_lost_over) {
    give_up(now);
  }
}

void Fate::renew(Time now) {
  world_.phase.progress();
  patience_.renew(now);
  lost_patience_.renew(now);
}

// A store that waits for data serves what it has.
void Fate::give_up(Time now) {
  if (world_.is_stalled) {
    world_.outcome.skipped("final reads", "a store that lacks data does not answer");
    world_.is_over = true;
  } else if (is_lost()) {
    world_.outcome.skipped("whole", "more servers died than the store survives");
    world_.check_lost();
    world_.is_stalled = true;
    renew(now);
  } else {
    world_.is_over = true;
    world_.violation("liveness",
                     "the store is not whole again" + world_.describe() + world_.garbage());
  }
}

}  // namespace pyrdma::tailwind::scenario
