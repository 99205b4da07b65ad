#include "systems/spindle/fuzz/world.h"

#include <algorithm>
#include <array>

#include "fuzz/simulation.h"

namespace pyrdma::spindle::scenario {

namespace {

constexpr std::array kSwitches{
    &Options::batch_delivery, &Options::batch_receive, &Options::batch_send,
    &Options::post_unlocked,  &Options::batch_upcall,  &Options::exact_bytes,
    &Options::short_sends,    &Options::skip_quiet,    &Options::unlocked_upcalls};

// The NIC reads what it sends over PCIe.
Time load_of(const fuzz::Options& options, const std::vector<SubgroupSpec>& subgroups) {
  std::vector<std::uint64_t> out(options.nodes), in(options.nodes);
  for (const SubgroupSpec& spec : subgroups) {
    std::vector<NodeId> members = spec.members;
    for (NodeId node = 0; node < options.nodes && spec.members.empty(); ++node)
      members.push_back(node);
    const std::uint64_t ring =
        std::uint64_t{spec.window} * (spec.max_message + sizeof(std::uint64_t));
    for (const NodeId sender : spec.senders.empty() ? members : spec.senders) {
      out[sender] += ring * (members.size() - 1);
      for (const NodeId member : members) in[member] += member == sender ? 0 : ring;
    }
  }
  const double gbps = std::min(options.profile.link_rate_gbps, options.profile.pcie_rate_gbps);
  const auto bytes = std::ranges::max(out) + std::ranges::max(in);
  return static_cast<Time>(static_cast<double>(bytes) * 8 / gbps);
}

// Both timeouts are longer than the load, and the group's one is longer than all attempts.
void fit_load(Options& group, Time load) {
  const Time more = load / kMicrosecond + 1 - group.timeout_us;
  if (more <= 0) return;
  group.timeout_us += static_cast<std::uint32_t>(more);
  group.suspicion_timeout += (group.retry_count + 1) * more * kMicrosecond;
  group.heartbeat = std::max(group.heartbeat, group.suspicion_timeout / 200);
  group.join_timeout = std::max(group.join_timeout, 6 * group.suspicion_timeout);
}

}  // namespace

Shape::Shape(const fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz spindle shape");
  auto preset = static_cast<Preset>(rng.below(kPresetNames.size()));
  for (std::size_t i = 0; i < kPresetNames.size(); ++i) {
    if (options.preset == kPresetNames[i]) preset = static_cast<Preset>(i);
  }
  group = Options::of(preset);
  // Without nulls a sender without messages stops the others, and a run cannot be complete.
  group.null_sends = rng.below(8) != 0;
  group.predicate_thread = rng.below(4) != 0;
  group.heartbeat = 10 * kMicrosecond;
  group.suspicion_timeout = static_cast<Time>(100 + rng.below(400)) * kMicrosecond;
  group.join_timeout = 20 * kMillisecond;
  group.idle_after = static_cast<Time>(50 + rng.below(400)) * kMicrosecond;
  group.idle_sleep = 5 * kMicrosecond;
  group.timeout_us = 16;
  group.retry_count = static_cast<std::uint32_t>(1 + rng.below(4));
  if (rng.below(4) == 0) group.send_entries = 16;
  if (rng.below(4) == 0) group.first_round = SlotHeader::kTags - rng.below(64);
  Rng batches(options.seed, -1, "fuzz spindle batches");
  if (batches.below(8) == 0) group.fixed_batch = static_cast<std::uint32_t>(2 + batches.below(6));
  // Half of the seeds have each switch by itself, unless a preset is asked for.
  Rng mix(options.seed, -1, "fuzz spindle mix");
  if (options.preset.empty() && mix.below(2) == 0) {
    for (bool Options::*const each : kSwitches) group.*each = mix.below(2) == 0;
  }
  is_patient = mix.below(2) == 0;
  if (is_patient) {
    // A member that waits for room in the queue to a dead one is silent until that connection ends.
    // A packet may be 100 us late: a shorter timeout sends all again so often that connections end.
    group.suspicion_timeout = static_cast<Time>(2000 + mix.below(1000)) * kMicrosecond;
    group.timeout_us = 200;
    group.retry_count = 7;
  }
  leaves = mix.below(2) == 0;
  copies = Rng(options.seed, -1, "fuzz spindle copies").below(2) == 0;
  longest_burst = std::array<std::uint32_t, 4>{1, 12, 12, 60}[mix.below(4)];
  if (mix.below(2) == 0) {
    sends = static_cast<std::uint32_t>(mix.below(60));
    bursts = static_cast<std::uint32_t>(mix.below(99 - sends));
  }
  founders = options.nodes > 3 && rng.below(4) == 0 ? 2 : options.nodes;
  const std::uint64_t count = 1 + rng.below(3);
  for (std::uint64_t g = 0; g < count; ++g) {
    SubgroupSpec& spec = subgroups.emplace_back();
    spec.window = static_cast<std::uint32_t>(1 + rng.below(rng.below(2) == 0 ? 4 : 32));
    spec.max_message = static_cast<std::uint32_t>(24 + rng.below(400));
    if (mix.below(6) == 0) spec.max_message = static_cast<std::uint32_t>(1000 + mix.below(9000));
    if (mix.below(8) == 0) spec.window = static_cast<std::uint32_t>(64 + mix.below(200));
    // Often one node alone sends.
    if (g == 0 && mix.below(4) == 0) spec.senders = {static_cast<NodeId>(mix.below(options.nodes))};
    if (g == 0) continue;  // a subgroup of all nodes shows the order of views
    for (NodeId node = 0; node < options.nodes; ++node) {
      if (rng.below(3) != 0) spec.members.push_back(node);
    }
    for (const NodeId node : spec.members) {
      if (rng.below(2) == 0) spec.senders.push_back(node);
    }
    if (spec.members.empty()) spec.senders.clear();
    if (!spec.members.empty() && spec.senders.empty()) spec.senders = {spec.members[0]};
    if (rng.below(5) == 0) spec.order = Order::kUnordered;
  }
  load = load_of(options, subgroups);
  // In a quarter of the other seeds long messages may cost members their places.
  if (is_patient || Rng(options.seed, -1, "fuzz spindle load").below(4) != 0) fit_load(group, load);
}

bool Shape::outlasts_load() const {
  return std::min(group.suspicion_timeout, Time{group.timeout_us} * kMicrosecond) >= load;
}

namespace {

std::vector<std::vector<Planned>> plans_of(const fuzz::Options& options, const Shape& shape,
                                           std::uint32_t pace) {
  Rng rng(options.seed, -1, "fuzz spindle plan");
  std::vector<std::vector<Planned>> plans(options.nodes);
  for (std::uint32_t id = 0; id < options.operations; ++id) {
    Planned op;
    op.id = id;
    const auto node = static_cast<NodeId>(rng.below(options.nodes));
    const std::uint64_t kind = rng.below(100);
    op.subgroup = static_cast<std::uint32_t>(rng.below(shape.subgroups.size()));
    const std::uint32_t most = shape.subgroups[op.subgroup].max_message;
    op.bytes = rng.below(8) == 0 ? 20 : static_cast<std::uint32_t>(20 + rng.below(most - 19));
    op.count = static_cast<std::uint32_t>(1 + rng.below(shape.longest_burst));
    op.pause = static_cast<Time>(rng.below(4000) * pace);
    if (kind < shape.sends)
      op.kind = Planned::Kind::kSend;
    else if (kind < shape.sends + shape.bursts)
      op.kind = Planned::Kind::kBurst;
    else if (kind < 99 || options.nodes < 3 || !shape.leaves)
      op.kind = Planned::Kind::kPause;
    else
      op.kind = Planned::Kind::kLeave;
    plans[node].push_back(op);
  }
  return plans;
}

}  // namespace

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      shape(wanted),
      plans(plans_of(wanted, shape, faults.pace())),
      next(wanted.nodes),
      is_done(wanted.nodes) {}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, cluster->now(), text);
}

void World::sent(Member sender, std::uint32_t subgroup, std::uint64_t number) {
  Life& life = lives[number_of(sender)];
  life.sent[subgroup] = number + 1;
  if (shape.subgroups[subgroup].order == Order::kUnordered) return;
  const auto key = check::Value::integer(subgroup);
  const auto value = check::Value::pair(number_of(sender), static_cast<std::int64_t>(number));
  const auto op = static_cast<std::int64_t>(opens++);
  history.invoke(cluster->now(), number_of(sender), check::Function::kBcast, key, value, op);
  history.complete(cluster->now(), number_of(sender), check::EventType::kOk,
                   check::Function::kBcast, key, value, op);
}

void World::delivered(Member member, std::uint64_t view, std::uint32_t subgroup, Member sender,
                      std::uint64_t number, bool is_whole) {
  ++outcome.ok;
  phase.progress();
  Life& life = lives[number_of(member)];
  const std::string what = "member " + std::to_string(number_of(member)) + " delivered message " +
                           std::to_string(number) + " of " + std::to_string(number_of(sender)) +
                           " in subgroup " + std::to_string(subgroup);
  if (!is_whole) violation("payload", what + ", whose bytes are wrong");
  std::uint64_t& next_number = life.next[{subgroup, number_of(sender)}];
  if (number < next_number) violation("order", what + " again, or after a later one");
  next_number = number + 1;
  if (shape.subgroups[subgroup].order == Order::kUnordered) return;
  history.point(cluster->now(), number_of(member), check::Function::kDeliver,
                check::Value::integer(subgroup),
                check::Value::pair(number_of(sender), static_cast<std::int64_t>(number)),
                static_cast<std::int64_t>(view));
}

void World::entered(Member member, const ViewShape& view) {
  Life& life = lives[number_of(member)];
  life.member = member;
  life.view = view.id;
  phase.progress();
  std::vector<check::Value> members;
  for (const Member& each : view.members) members.push_back(check::Value::integer(number_of(each)));
  for (std::uint32_t g = 0; g < shape.subgroups.size(); ++g) {
    if (shape.subgroups[g].order == Order::kUnordered || !is_member(member.node, g)) continue;
    history.point(cluster->now(), number_of(member), check::Function::kView,
                  check::Value::integer(g), history.list(members),
                  static_cast<std::int64_t>(view.id));
  }
  for (const Member& each : view.members) {
    if (std::ranges::count(view.members, each.node, &Member::node) > 1)
      violation("view", "view " + std::to_string(view.id) + " has node " +
                            std::to_string(each.node) + " twice");
  }
  const auto known = views.try_emplace(view.id, view.members);
  if (!known.second && known.first->second != view.members)
    violation("view", "view " + std::to_string(view.id) + " has different members at member " +
                          std::to_string(number_of(member)));
}

void World::ended(Member member) {
  const auto found = lives.find(number_of(member));
  if (found != lives.end()) found->second.is_alive = false;
}

bool World::is_member(NodeId node, std::uint32_t subgroup) const {
  const std::vector<NodeId>& members = shape.subgroups[subgroup].members;
  return members.empty() || std::ranges::find(members, node) != members.end();
}

bool World::all_done() const {
  return std::ranges::all_of(is_done, [](bool done) { return done; });
}

std::uint64_t World::losses() const {
  // Each costs one member its place at most. When a NIC fails, its member accuses others over the
  // connections that still work.
  constexpr std::array kOfOneNode{Fault::crash,           Fault::host_crash, Fault::battery_crash,
                                  Fault::isolation,       Fault::pause,      Fault::slow_node,
                                  Fault::coordinator_down};
  constexpr std::array kHarmless{Fault::duplicate,       Fault::reorder,    Fault::cache_miss,
                                 Fault::late_completion, Fault::queue_full, Fault::number_collision,
                                 Fault::number_reuse,    Fault::torn_crash, Fault::clock_skew};
  const auto is_among = [](const auto& kinds, Fault fault) {
    return std::ranges::find(kinds, fault) != kinds.end();
  };
  const FaultCounters& counters = cluster->fault_counters();
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    const bool costs = shape.is_patient ? is_among(kLosses, fault) : !is_among(kHarmless, fault);
    if (!costs || fault_info(fault).draw == FaultDraw::kMemory) continue;
    sum +=
        is_among(kOfOneNode, fault) || counters.fired[i] == 0 ? counters.fired[i] : options.nodes;
  }
  return sum;
}

void World::check_stall() {
  const auto came = std::ranges::count_if(lives, [&](const auto& each) {
    const Life& life = each.second;
    return life.member.incarnation == 0 && life.member.node < shape.founders && life.view != 0;
  });
  if (static_cast<NodeId>(came) < shape.founders)
    return outcome.skipped("stall", "a founder has not come");  // the first view needs them all
  if (!shape.outlasts_load())
    return outcome.skipped("stall", "messages take longer than a timeout");
  const std::uint64_t lost = losses() + leavers.size();
  // A view of n members outlives fewer than half of them. Those that come back may be lost again.
  if (2 * lost >= shape.founders)
    return outcome.skipped("stall", "faults may have cost a majority");
  outcome.made("stall");
  if (is_stalled)
    violation("stall", "no view has a majority, though " + std::to_string(shape.founders) +
                           " founders have lost " + std::to_string(lost) + " members at most");
}

std::string World::describe() const {
  std::string text = "; done:";
  for (const bool done : is_done) text += done ? " yes" : " no";
  for (const auto& [number, life] : lives) {
    if (!life.is_alive) continue;
    text += "; member " + std::to_string(number) + " in view " + std::to_string(life.view) +
            (life.is_running ? "" : ", which is changing");
    for (const auto& [subgroup, count] : life.sent)
      text += ", sent " + std::to_string(count) + " in " + std::to_string(subgroup);
    for (const auto& [key, next_number] : life.next)
      text += ", has " + std::to_string(next_number) + " of " + std::to_string(key.second) +
              " in " + std::to_string(key.first);
  }
  return text;
}

// A member has the messages of another one from the one on that it saw first.
bool World::is_complete() const {
  std::uint64_t view = 0;
  bool is_first = true;
  for (const auto& [number, life] : lives) {
    if (!life.is_alive) continue;
    if (!life.is_running || (!is_first && life.view != view)) return false;
    view = life.view;
    is_first = false;
    for (const auto& [sender, other] : lives) {
      if (!other.is_alive) continue;
      for (const auto& [subgroup, count] : other.sent) {
        const SubgroupSpec& spec = shape.subgroups[subgroup];
        if (!is_member(life.member.node, subgroup) || count == 0 ||
            spec.order == Order::kUnordered || !shape.group.null_sends)
          continue;
        const auto next_number = life.next.find({subgroup, sender});
        // A joiner has the older messages in its state.
        if (next_number == life.next.end() ? life.member.incarnation == 0 && number != sender &&
                                                 life.member.node < shape.founders
                                           : next_number->second != count)
          return false;
      }
    }
  }
  return true;
}

void World::check() {
  check_stall();
  if (is_stalled)
    outcome.skipped("complete", "no view has a majority");
  else if (is_over)
    outcome.made("complete");
  outcome.skipped("majority", "one view");
  fuzz::judge(outcome, options, history, "multicast", cluster->now());
  for (const auto& [id, members] : views) {
    const auto after = views.find(id + 1);
    if (after == views.end()) continue;
    outcome.made("majority");
    const auto stays = static_cast<std::size_t>(std::ranges::count_if(members, [&](Member each) {
      return std::ranges::find(after->second, each) != after->second.end() ||
             leavers.contains(number_of(each));
    }));
    if (2 * stays <= members.size())
      violation("majority", "view " + std::to_string(id + 1) + " has no majority of view " +
                                std::to_string(id));
  }
}

}  // namespace pyrdma::spindle::scenario
