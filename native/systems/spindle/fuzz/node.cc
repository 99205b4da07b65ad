#include "systems/spindle/fuzz/node.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"

namespace pyrdma::spindle::scenario {

namespace {

/// A message: its sender, its number, then bytes that follow from both.
struct Stamp {
  std::uint32_t node, incarnation;
  std::uint64_t number;
};
constexpr std::size_t kStampBytes = 16;
constexpr Time kQuiet = 150 * kMicrosecond;  // more than the last nulls take

std::byte byte_after(const Stamp& stamp, std::size_t i) {
  const std::uint64_t mixed =
      mix64(stamp.number * 1'000'003 + stamp.node * 131 + stamp.incarnation);
  return static_cast<std::byte>(mixed >> i % 8 * 8) ^ static_cast<std::byte>(i);
}

}  // namespace

Node::Node(World& world, Env& env) : world_(world), env_(env), rng_(env.rng("fuzz spindle")) {
  Upcalls upcalls;
  upcalls.deliver = [this](std::uint32_t subgroup, std::span<const Message> messages) {
    for (const Message& message : messages) take(subgroup, message);
  };
  upcalls.view = [this](const ViewShape& shape) {
    view_ = shape.id;
    member_ = group_->self();
    world_.entered(member_, shape);
  };
  upcalls.save = [](std::uint32_t) { return Bytes(8); };
  upcalls.load = [](std::uint32_t, ByteView) {};
  Options options = world.shape.group;
  options.name = "fuzz";
  group_ = std::make_unique<Group>(env, options, world.shape.subgroups, upcalls, world.bugs);
  member_ = group_->self();
}

void Node::take(std::uint32_t subgroup, const Message& message) {
  Stamp stamp{};
  if (message.bytes.size() < kStampBytes + 4) {
    world_.violation("null", "node " + std::to_string(env_.node()) + " delivered " +
                                 std::to_string(message.bytes.size()) + " bytes, which none sent");
    return;
  }
  std::memcpy(&stamp, message.bytes.data(), kStampBytes);
  bool is_whole = stamp.node == message.node;
  for (std::size_t i = kStampBytes; i < message.bytes.size() && is_whole; ++i)
    is_whole = message.bytes[i] == byte_after(stamp, i);
  world_.delivered(member_, view_, subgroup, {stamp.node, stamp.incarnation}, stamp.number,
                   is_whole);
}

void Node::wait(Time duration) { group_->pause_until(env_.now() + duration); }

bool Node::found() {
  std::vector<NodeId> founders(world_.shape.founders);
  for (NodeId node = 0; node < founders.size(); ++node) founders[node] = node;
  try {
    group_->found(founders);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    return false;  // a founder has died before it came
  }
}

bool Node::join() {
  std::vector<NodeId> others;
  for (NodeId node = 0; node < env_.nodes(); ++node) {
    if (node != env_.node()) others.push_back(node);
  }
  try {
    group_->join(others);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    return false;
  }
}

void Node::end_life() {
  world_.ended(member_);
  sent_.clear();
  copies_.clear();
}

bool Node::be_member() {
  while (!world_.is_over) {
    if (group_->standing() == Standing::kMember) return true;
    if (group_->standing() == Standing::kExcluded) {
      end_life();
      ++world_.outcome.reconnects;
    }
    if (has_left_) return false;
    if (join()) return true;
    watch_end();
  }
  return false;
}

bool Node::is_sender(std::uint32_t subgroup) const {
  const auto named = [this](const std::vector<NodeId>& nodes) {
    return nodes.empty() || std::ranges::find(nodes, env_.node()) != nodes.end();
  };
  const SubgroupSpec& spec = world_.shape.subgroups[subgroup];
  return named(spec.members) && named(spec.senders);
}

void Node::build(std::uint32_t subgroup, std::span<std::byte> message) {
  member_ = group_->self();
  const Stamp stamp{member_.node, member_.incarnation, sent_[subgroup]};
  std::memcpy(message.data(), &stamp, kStampBytes);
  for (std::size_t i = kStampBytes; i < message.size(); ++i) message[i] = byte_after(stamp, i);
}

// A sender may wait for members that lag, without nulls also for one that sends nothing.
bool Node::send(std::uint32_t subgroup, std::uint32_t bytes) {
  if (world_.shape.copies && rng_.below(2) == 0) {
    send_copy(subgroup, bytes);
    return true;
  }
  std::span<std::byte> slot;
  try {
    slot = group_->reserve(subgroup, env_.now() + 50 * kMicrosecond);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable) throw;
    return false;  // it was excluded
  }
  check_delivered(subgroup);  // the wait ends when a view begins
  if (slot.empty()) return true;
  if (rng_.below(4) == 0) wait(static_cast<Time>(rng_.below(3000)));  // builds in place
  build(subgroup, slot.first(bytes));
  world_.sent(member_, subgroup, sent_[subgroup]++);
  group_->send(subgroup, bytes);
  ++world_.outcome.checked;
  return true;
}

void Node::send_copy(std::uint32_t subgroup, std::uint32_t bytes) {
  check_delivered(subgroup);
  Bytes message(bytes);
  build(subgroup, message);
  const std::uint64_t number = group_->try_send(subgroup, message);
  if (number == 0) return;
  copies_[subgroup] = {number, sent_[subgroup]};
  world_.sent(member_, subgroup, sent_[subgroup]++);
  ++world_.outcome.checked;
}

// What all members have delivered, its sender has delivered, too.
void Node::check_delivered(std::uint32_t subgroup) {
  const auto found = copies_.find(subgroup);
  if (found == copies_.end() || world_.shape.subgroups[subgroup].order == Order::kUnordered) return;
  const Copy& copy = found->second;
  if (group_->is_delivered(subgroup, copy.number) != true) return;
  const std::int32_t self = number_of(member_);
  if (world_.lives[self].next[{subgroup, self}] > copy.stamp) return;
  world_.violation("delivered", "message " + std::to_string(copy.stamp) + " of " +
                                    std::to_string(self) + " in subgroup " +
                                    std::to_string(subgroup) +
                                    " counts as delivered, and its sender has not delivered it");
}

/// A batch that is not full leaves.
void Node::flush() {
  const auto subgroups = static_cast<std::uint32_t>(world_.shape.subgroups.size());
  for (std::uint32_t g = 0; g < subgroups && world_.shape.group.fixed_batch != 0; ++g)
    group_->flush(g);
}

void Node::act(const Planned& op) {
  switch (op.kind) {
    case Planned::Kind::kSend:
      if (is_sender(op.subgroup)) send(op.subgroup, op.bytes);
      break;
    case Planned::Kind::kBurst:
      for (std::uint32_t i = 0; i < op.count && is_sender(op.subgroup); ++i) {
        if (!send(op.subgroup, op.bytes)) return;
      }
      break;
    case Planned::Kind::kPause:
      wait(op.pause);
      break;
    case Planned::Kind::kLeave:
      world_.leavers.insert(number_of(group_->self()));
      try {
        group_->leave(5 * kMillisecond);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
      }
      has_left_ = true;
      end_life();
      break;
  }
}

// The run ends when all is delivered after the end of the faults, or when no view has a majority.
void Node::watch_end() {
  if (world_.cluster->faults_are_on()) return;
  if (world_.healed_at == kForever) world_.healed_at = world_.cluster->now();
  const Time since = world_.cluster->now() - world_.healed_at;
  const bool is_settled = since > 20 * world_.shape.group.suspicion_timeout;
  bool has_member = false;
  for (const auto& [number, life] : world_.lives) has_member = has_member || life.is_alive;
  if (is_settled && !has_member) {
    world_.is_stalled = world_.is_over = true;
  }
  if (!has_member || !is_settled || !world_.all_done() || !world_.is_complete()) {
    world_.complete_at = kForever;
    world_.nulls.clear();
    return;
  }
  const Time now = world_.cluster->now();
  if (world_.complete_at == kForever) world_.complete_at = now;
  if (group_->standing() == Standing::kMember) check_nulls();
  if (now - world_.complete_at > 3 * kQuiet) world_.is_over = true;
}

void Node::check_nulls() {
  if (world_.cluster->now() - world_.complete_at < kQuiet) return;
  std::uint64_t count = 0;
  for (const SubgroupCounters& each : group_->counters().subgroups) count += each.nulls;
  world_.outcome.made("quiescence");
  const auto first = world_.nulls.try_emplace(env_.node(), count);
  if (first.first->second != count) {
    world_.violation("quiescence", "node " + std::to_string(env_.node()) + " sent " +
                                       std::to_string(count - first.first->second) +
                                       " nulls after the last message");
    first.first->second = count;
  }
}

void Node::run() {
  const NodeId node = env_.node();
  const bool founds = env_.incarnation() == 0 && node < world_.shape.founders;
  if (founds && !found()) {
    world_.is_done[node] = true;
  }
  if (env_.incarnation() != 0) ++world_.outcome.restarts;
  std::vector<Planned>& plan = world_.plans[node];
  while (world_.next[node] < plan.size() && be_member()) {
    const Planned& op = plan[world_.next[node]++];
    const std::uint64_t mark = world_.phase.operation();
    if (world_.options.keeps(op.id)) act(op);
    world_.phase.ended(mark);
    if (has_left_) break;
    if (op.id % 4 == 0) flush();
  }
  for (; world_.next[node] < plan.size(); ++world_.next[node]) world_.phase.operation();
  world_.is_done[node] = true;
  while (!world_.is_over) {
    if (!has_left_ && !be_member()) break;
    if (!has_left_) {
      auto& life = world_.lives[number_of(group_->self())];
      life.is_running = group_->is_settled();
    }
    if (!has_left_) flush();
    watch_end();
    wait(20 * kMicrosecond);
  }
}

}  // namespace pyrdma::spindle::scenario
