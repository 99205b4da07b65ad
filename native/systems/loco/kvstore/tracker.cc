// The tracker (paper, section 6). Each node announces changes of the index on a ring buffer of its
// own. A thread of every other node applies and acknowledges them.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

// The call does not wait for room: the operation tries again.
bool KvOperation::announce() {
  const Scope step(me_->env(), scope::announce);
  TrackerMessage message;
  message.kind = inserts() ? TrackerMessage::Kind::kInsert : TrackerMessage::Kind::kRemove;
  message.node = at_.node;
  message.slot = at_.slot;
  message.counter = at_.counter;
  message.key = key_;
  RingBuffer& tracker = store_->tracker_of(store_->self());
  step_ = Step::kAnnouncing;  // after an error the operation goes on from here
  std::optional<std::uint64_t> position;
  {
    const std::lock_guard lock(store_->announcing_);
    position = tracker.try_broadcast(*me_, std::as_bytes(std::span(&message, 1)));
  }
  if (!position) {
    me_->env().reached("store/tracker full");
    if (overdue()) [[unlikely]]
      check_readers();
    return false;
  }
  announced_ = *position;
  retrying_ = 0;
  step_ = Step::kAnnounced;
  return advance();
}

bool KvOperation::announced() {
  RingBuffer& tracker = store_->tracker_of(store_->self());
  const Scope step(me_->env(), scope::announced);
  if (tracker.acknowledged(announced_)) return true;
  if (overdue()) [[unlikely]]
    check_readers();
  return false;
}

// The operation waits for room in the tracker, or for all indices. Returns if no reader is to
// blame: the ring waits for a message of another caller then, and that wait has an end.
void KvOperation::check_readers() {
  RingBuffer& tracker = store_->tracker_of(store_->self());
  const bool waits_for_room = step_ == Step::kAnnouncing;
  const std::vector<NodeId> readers = waits_for_room ? tracker.awaited_for(sizeof(TrackerMessage))
                                                     : tracker.unacknowledged(announced_);
  if (readers.empty()) return;
  throw_overdue("the nodes" + text_of(readers) + " have not acknowledged " +
                    (waits_for_room ? "earlier changes of the index, so the tracker's ring is full"
                                    : "the change of the index"),
                readers);
}

void KvStore::track() {
  Env& env = manager().env();
  Caller& me = manager().caller(manager().options().callers - 1);
  constexpr Time kLeast = kMicrosecond;
  Time pause = kLeast;
  while (!stopping_.load(std::memory_order_acquire)) {
    const Scope step(env, scope::track);
    if (apply_news(me)) {
      pause = kLeast;
    } else {
      env.sleep_until(env.now() + pause);
      pause = std::min(2 * pause, options_.tracker_pause);
    }
  }
}

bool KvStore::apply_news(Caller& me) {
  bool any = false;
  for (const NodeId node : participants()) {
    if (node == self() || held_back(node)) continue;
    RingBuffer& ring = tracker_of(node);
    bool here = false;
    while (const auto bytes = ring.next(me)) {
      TrackerMessage message;
      std::memcpy(&message, bytes->data(), sizeof message);
      apply(message);
      here = true;
    }
    if (here) ring.acknowledge(me);
    any |= here;
  }
  return any;
}

// Now and then the thread leaves one ring alone, so that the news of the other rings overtake it.
bool KvStore::held_back(NodeId node) {
  if (options_.tracker_hold == 0) return false;
  const Time now = manager().env().now();
  if (now >= held_until_ && hold_draws_.below(8) == 0) {
    held_ = participants()[hold_draws_.below(participants().size())];
    held_until_ = now + static_cast<Time>(
                            hold_draws_.below(static_cast<std::uint64_t>(options_.tracker_hold)));
  }
  return node == held_ && now < held_until_;
}

void KvStore::apply(const TrackerMessage& message) {
  const Scope step(manager().env(), scope::apply);
  if (message.kind == TrackerMessage::Kind::kInsert) {
    index_.set(message.key, {message.node, message.slot, message.counter});
  } else {
    index_.erase(message.key);
    if (message.node == self()) give_slot(message.slot);
  }
}

}  // namespace pyrdma::loco
