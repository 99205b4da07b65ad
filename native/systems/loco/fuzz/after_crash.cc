// The end of a run in which a node has died. The others still have what does not lie on the dead
// node and was not in its hands; whatever else fails blames it.
#include <algorithm>

#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/fuzz/node.h"

namespace pyrdma::loco::scenario {

using check::EventType;
using check::Function;
using check::Value;

bool Node::is_here(NodeId node) const { return world_.usable[node] && !world_.fates.is_dead(node); }

// Returns false after an error.
bool Node::attempt(FunctionRef<void()> part) {
  world_.phase.progress();
  try {
    part();
    return true;
  } catch (const Error& error) {
    world_.fates.failed(env_.node(), error);
    return false;
  }
}

void Node::settle() {
  if (!world_.usable[env_.node()] || world_.left != 0) return;
  for (std::uint32_t caller = 0; caller < kCallers; ++caller) {
    if (!held_[caller]) continue;
    Caller& me = manager_.caller(caller);
    attempt([&] { locks_->release(me, *held_[caller], Fence::kNone); });
  }
  attempt([&] { static_cast<void>(manager_.caller(0).fence_global()); });
}

void Node::look_around() {
  if (!world_.usable[env_.node()] || world_.left != 0) return;
  Caller& me = manager_.caller(0);
  look_at_variables(me);
  look_at_words(me);
  drain_rings(me);
  if (is_member() && !world_.locks_alone) drain_queue(me);
  if (is_member()) take_locks(me);
  if (store_) read_keys(me);
  ++world_.looked;
}

void Node::look_at_variables(Caller& me) {
  for (NodeId owner = 0; owner < owners_; ++owner) {
    look(me, owner, false);
    const auto copy = pushed_[owner]->try_load();
    if (is_here(owner) && (!copy || copy->words[0] < world_.placed[owner]))
      world_.violation("lost push", "node " + std::to_string(env_.node()) + " does not hold push " +
                                        std::to_string(world_.placed[owner]) + " of node " +
                                        std::to_string(owner) + ", which lives");
    if (!attempt([&] { look(me, owner, true); }) && is_here(owner))
      world_.violation("lost variable", "node " + std::to_string(env_.node()) +
                                            " cannot pull the variable of node " +
                                            std::to_string(owner) + ", which lives");
  }
}

// The checker judges the sums.
void Node::look_at_words(Caller& me) {
  check::History& log = world_.log(Log::kWords);
  for (std::uint32_t word = 0; word < kWords; ++word) {
    const Value key = Value::integer(word);
    const std::int32_t process = world_.next_process();
    std::uint64_t sum = 0;
    log.invoke(env_.now(), process, Function::kRead, key, {});
    const bool ended = attempt([&] { sum = words_.load(me, word); });
    log.complete(env_.now(), process, ended ? EventType::kOk : EventType::kInfo, Function::kRead,
                 key, ended ? Value::integer(static_cast<std::int64_t>(sum)) : Value::none());
    if (!ended && is_here(words_.host_of(word)))
      world_.violation("lost word", "node " + std::to_string(env_.node()) + " cannot read word " +
                                        std::to_string(word) + ", whose host lives");
  }
}

// A message whose call threw an error may have come.
void Node::drain_rings(Caller& me) {
  for (std::uint32_t ring = 0; ring < rings_.size(); ++ring) {
    const NodeId writer = rings_[ring]->writer();
    if (writer == env_.node()) continue;
    attempt([&] {
      while (hear(me, ring)) rings_[ring]->acknowledge(me);
    });
    const std::uint64_t heard = world_.received[{env_.node(), ring}], sent = world_.sent[ring];
    if (heard <= sent + 1 && (heard >= sent || !is_here(writer))) continue;
    world_.violation("lost message", "node " + std::to_string(env_.node()) + " has read " +
                                         std::to_string(heard) + " of the " + std::to_string(sent) +
                                         " messages of ring " + std::to_string(ring) +
                                         " after a crash");
  }
}

// One living member takes values until there is none, or until an error. The checker judges them.
void Node::drain_queue(Caller& me) {
  const auto& members = shape_.members;
  if (env_.node() != *std::ranges::find_if(members, [&](NodeId node) { return is_here(node); }))
    return;
  check::History& log = world_.log(Log::kQueue);
  std::optional<std::uint64_t> value;
  const auto pop = [&] {
    const std::int32_t process = world_.next_process();
    log.invoke(env_.now(), process, Function::kDeq, {}, {});
    const bool ended = attempt([&] { value = queue_->try_pop(me); });
    log.complete(
        env_.now(), process, ended ? EventType::kOk : EventType::kInfo, Function::kDeq, {},
        ended && value ? Value::integer(static_cast<std::int64_t>(*value)) : Value::none());
    return ended && value.has_value();
  };
  std::uint32_t popped = 0;
  while (popped <= kQueueCapacity && pop()) ++popped;
  if (popped > kQueueCapacity)
    world_.violation("capacity", "the queue holds " + std::to_string(popped) + " values");
}

// One living member takes each lock. It gets those whose host lives, unless a dead node, or a
// client with an error, may have kept them. Then the record is that of the last holder.
void Node::take_locks(Caller& me) {
  const auto& members = shape_.members;
  if (env_.node() != *std::ranges::find_if(members, [&](NodeId node) { return is_here(node); }))
    return;
  while (!attempt([&] { me.report_dropped(locks_.get()); })) {
  }
  for (std::uint32_t lock = 0; lock < kLocks; ++lock) {
    const NodeId host = (locks_->host_of(lock) + lock % 2) % env_.nodes();
    const bool free = world_.lock_use.is_free(lock, world_.fates);
    const bool taken = attempt([&] {
      locks_->acquire(me, lock);
      if (free && is_here(host)) use_record(me, me, lock, host);
      locks_->release(me, lock, Fence::kNone);
    });
    if (taken || !world_.lock_use.is_free(lock, world_.fates) || !is_here(locks_->host_of(lock)))
      continue;
    world_.violation("lost lock", "node " + std::to_string(env_.node()) + " does not get lock " +
                                      std::to_string(lock) + ", whose host and last holder live");
  }
}

// A key that lies on a living node can be read, unless a change of it was cut off.
void Node::read_keys(Caller& me) {
  check::History& log = world_.log(Log::kStore);
  while (!attempt([&] { me.report_dropped(store_.get()); })) {
  }
  for (std::uint32_t number = 0; number < kKeys; ++number) {
    const Value key = Value::integer(number);
    const std::int32_t process = world_.next_process();
    log.invoke(env_.now(), process, Function::kGet, key, {});
    Wide found;
    bool there = false;
    const bool ended = attempt([&] {
      there =
          store_->lookup(me, number, std::as_writable_bytes(std::span(&found, 1))) == Outcome::kOk;
    });
    log.complete(env_.now(), process, ended ? EventType::kOk : EventType::kInfo, Function::kGet,
                 key,
                 there ? Value::integer(static_cast<std::int64_t>(found.words[0])) : Value::none());
    if (there && found.words != wide(0, found.words[0]).words)
      world_.violation("torn", "node " + std::to_string(env_.node()) + " finds a value of key " +
                                   std::to_string(number) + " that no client wrote");
    const std::optional<Location> place = store_->locate(number);
    if (!ended && place && is_here(place->node) && world_.unsure[number] == 0)
      world_.violation("lost value", "node " + std::to_string(env_.node()) + " cannot read key " +
                                         std::to_string(number) + ", which lies on a living node");
  }
}

}  // namespace pyrdma::loco::scenario
