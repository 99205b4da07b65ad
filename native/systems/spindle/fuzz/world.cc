#include "systems/spindle/fuzz/world.h"

#include <algorithm>
#include <array>

#include "fuzz/simulation.h"

namespace pyrdma::spindle::scenario {

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
  founders = options.nodes > 3 && rng.below(4) == 0 ? 2 : options.nodes;
  const std::uint64_t count = 1 + rng.below(3);
  for (std::uint64_t g = 0; g < count; ++g) {
    SubgroupSpec& spec = subgroups.emplace_back();
    spec.window = static_cast<std::uint32_t>(1 + rng.below(rng.below(2) == 0 ? 4 : 32));
    spec.max_message = static_cast<std::uint32_t>(24 + rng.below(400));
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
    op.count = static_cast<std::uint32_t>(1 + rng.below(12));
    op.pause = static_cast<Time>(rng.below(4000) * pace);
    if (kind < 45)
      op.kind = Planned::Kind::kSend;
    else if (kind < 75)
      op.kind = Planned::Kind::kBurst;
    else if (kind < 99 || options.nodes < 3)
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

bool World::may_lose_members() const {
  constexpr std::array kHarmless{Fault::duplicate,       Fault::reorder,    Fault::cache_miss,
                                 Fault::late_completion, Fault::queue_full, Fault::number_collision,
                                 Fault::number_reuse};
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (options.faults[fault].rate > 0 && std::ranges::find(kHarmless, fault) == kHarmless.end())
      return true;
  }
  return false;
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
  fuzz::judge(outcome, options, history, "multicast", cluster->now());
  for (const auto& [id, members] : views) {
    const auto after = views.find(id + 1);
    if (after == views.end()) continue;
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
