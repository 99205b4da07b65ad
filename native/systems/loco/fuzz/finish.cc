// The end of a run without dead nodes: everything that was sent has been heard, copies equal the
// last push, indices are equal, and no slot is lost. Safety alone would hide a loss.
#include <algorithm>

#include "base/error.h"
#include "systems/loco/fuzz/node.h"

namespace pyrdma::loco::scenario {

using check::EventType;
using check::Function;
using check::Value;

void Node::finish() {
  Caller& me = manager_.caller(0);
  finish_variables(me);
  finish_rings(me);
  if (is_member()) finish_queue(me);
  if (is_member()) finish_locks(me);
  if (store_) finish_store();
  barrier_.wait(me);
  check_rings();
  if (store_) check_indices();
  ++world_.finished;
}

void Node::finish_variables(Caller& me) {
  for (NodeId owner = 0; owner < owners_; ++owner) {
    const auto copy = pushed_[owner]->try_load();
    if (!copy || copy->words != wide(owner, world_.pushed[owner]).words) {
      world_.violation("lost push", "node " + std::to_string(env_.node()) + " does not hold push " +
                                        std::to_string(world_.pushed[owner]) + " of node " +
                                        std::to_string(owner) + ", the last one");
    }
    look(me, owner, true);
  }
  for (std::uint32_t word = 0; word < kWords; ++word) {
    const std::uint64_t sum = words_.load(me, word);
    if (sum != world_.sums[word]) {
      world_.violation("lost addition", "word " + std::to_string(word) + " holds " +
                                            std::to_string(sum) + "; all additions make " +
                                            std::to_string(world_.sums[word]));
    }
  }
}

void Node::finish_rings(Caller& me) {
  for (std::uint32_t ring = 0; ring < rings_.size(); ++ring) {
    if (rings_[ring]->writer() == env_.node()) continue;
    while (hear(me, ring)) {
    }
    rings_[ring]->acknowledge(me);
    const std::uint64_t heard = world_.received[{env_.node(), ring}];
    if (heard != world_.sent[ring]) {
      world_.violation("lost message", "node " + std::to_string(env_.node()) + " has read " +
                                           std::to_string(heard) + " of the " +
                                           std::to_string(world_.sent[ring]) +
                                           " messages of ring " + std::to_string(ring));
    }
  }
}

void Node::check_rings() {
  for (std::uint32_t ring = 0; ring < rings_.size(); ++ring) {
    RingBuffer& each = *rings_[ring];
    if (each.writer() != env_.node() || world_.sent[ring] == 0) continue;
    if (each.acknowledged(world_.sent_to[ring])) continue;
    world_.violation("lost acknowledgement",
                     "the writer of ring " + std::to_string(ring) +
                         " misses the acknowledgements of" +
                         text_of(each.unacknowledged(world_.sent_to[ring])));
  }
}

// One member empties the queue. The checker sees these operations too.
void Node::finish_queue(Caller& me) {
  if (env_.node() != shape_.members.front()) return;
  while (world_.queued != 0) {
    const std::uint64_t left = world_.queued;
    dequeue(me);
    if (world_.queued == left) {
      return world_.violation(
          "lost value", "the queue is empty; it should hold " + std::to_string(left) + " values");
    }
  }
  if (queue_->try_pop(me)) world_.violation("lost value", "the queue holds a value too many");
  std::uint32_t room = 0;
  while (room <= kQueueCapacity && queue_->try_push(me, room)) ++room;
  if (room != kQueueCapacity)
    world_.violation("capacity", "the queue takes " + std::to_string(room) + " values");
}

// Every lock is free again. A release by a caller that does not hold the lock is refused, and the
// report names the holder.
void Node::finish_locks(Caller& me) {
  if (env_.node() != shape_.members.back()) return;
  const auto report = [&](Caller& by, std::uint32_t lock) -> std::string {
    try {
      locks_->release(by, lock, Fence::kNone);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument) return error.what();
      throw;
    }
    return "";
  };
  for (std::uint32_t lock = 0; lock <= kDroppedLock; ++lock) {
    const std::optional<std::uint64_t> ticket = locks_->acquire(me, lock);
    const std::string held = report(manager_.caller(kOutsider), lock);
    const std::string holder = "caller 0 of node " + std::to_string(env_.node()) +
                               " holds it, with ticket " + std::to_string(*ticket);
    locks_->release(me, lock, Fence::kNone);
    const std::string free = report(me, lock);
    if (held.ends_with(holder) && free.ends_with("none of the nodes that answer holds it"))
      continue;
    world_.violation("holder", "lock " + std::to_string(lock) + ": " + holder +
                                   "; reported: " + held + "; and when it is free: " + free);
  }
}

void Node::finish_store() {
  const std::string lost = world_.places.note(*store_, kDroppedKey + 1);
  if (!lost.empty()) world_.violation("lost slot", lost);
}

void Node::check_indices() {
  if (const std::optional<Key> key = world_.places.unequal())
    world_.violation("indices", "the nodes have different places of key " + std::to_string(*key));
  // A key that all indices have can be read.
  Caller& me = manager_.caller(0);
  for (Key key = 0; key <= kDroppedKey; ++key) {
    Wide found;
    const Outcome outcome = store_->lookup(me, key, std::as_writable_bytes(std::span(&found, 1)));
    if ((outcome == Outcome::kOk) != world_.places.has(key)) {
      world_.violation("lost value", "node " + std::to_string(env_.node()) +
                                         " has a place of key " + std::to_string(key) +
                                         " and cannot read it");
    }
  }
}

}  // namespace pyrdma::loco::scenario
