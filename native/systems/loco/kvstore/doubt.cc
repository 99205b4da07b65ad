// Changes that may have happened or not (not in the paper, which has no failures).
//
// The answers of a slot's node may be lost for longer than the retries of the connection last,
// while both nodes live. The write of an update or of a removal then ends with an error, and may
// have happened, wholly, in part, or not at all. Its node cannot find out: its connection to the
// slot's node is gone. It gives the lock of the key back in doubt (TicketLocks::start_release).
// Whoever takes that lock later reads the state word of the slot before it changes a key:
//
// - The slot has the counter of the index and is valid: no removal of the key has begun. The change
//   goes on. An update that was cut off in the middle has left the slot torn; the next update
//   writes the whole slot, and a removal does not read it.
// - The slot is not valid: a removal has happened, and its node did not announce it. The operation
//   announces it, which is the rest of that removal, and then does its own change on a key that
//   does not exist.
//
// Why histories stay linearizable. The operation that was cut off has thrown, so it may take effect
// at any later time, or never. A removal takes effect when the valid bit is unset, as every
// removal: from then on lookups find no key, and so does every change, because the lock is in doubt
// before the next holder has it. An update takes effect when its last byte is placed. Without the
// mark an update would write into a slot that no lookup takes, and an insertion would find the key
// in the index for ever. Exactly one removal of a place is announced, because the operation that
// was cut off announces nothing after its error, and the lock orders all others.
//
// A slot is filled again only after all nodes have applied its removal. A write that is still on
// its way then would destroy another key. It cannot be: the connection fails when its last
// retransmission has had no answer for the connection's whole timeout, the removal and the
// insertion take several round trips more, and a target places the packets of a write that it has
// taken within microseconds. This needs that no packet stays in the network for longer than that
// timeout, which reliable connections need themselves before they use a packet number again.
//
// If the node of the lock does not answer either, the lock is lost (ticket_lock.h), and the key
// stays as it is. A change that was cut off before its write has no part in this: its lock is given
// back without the mark, or the operation goes on (operation.h).
#include "base/remote_word.h"
#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco {

bool KvOperation::inquire() {
  const std::optional<Location> found = store_->index_.find(key_);
  if (!found) return change_locked();
  at_ = *found;
  me_->env().reached("store/lock in doubt");
  if (at_.node == store_->self()) {
    return settle(load_acquire(reinterpret_cast<const std::uint64_t*>(store_->slot(at_.slot))));
  }
  slot_.key = store_->values_.read(*me_, at_.node, at_.slot * store_->slot_bytes_,
                                   slot_.block.sge(sizeof(std::uint64_t)));
  step_ = Step::kInquiring;
  return false;
}

bool KvOperation::settle(std::uint64_t state) {
  if (state == state_word(at_.counter, true)) return change_locked();
  check_indices();
  me_->env().reached("store/removal of another node ended");
  settles_ = true;
  return announce();
}

// The removal of the other operation is over on all nodes.
bool KvOperation::end_settled() {
  settles_ = false;
  step_ = Step::kLocking;  // an error from here on leaves nothing but the lock to give back
  return change_locked();
}

// Without this check the operation would keep the lock for ever, because an index cannot follow.
void KvOperation::check_indices() {
  const NodeId lost = store_->lost_.load(std::memory_order_relaxed);
  if (lost == fabric::kNoNode) [[likely]]
    return;
  release();
  step_ = Step::kOver;
  throw Error(ErrorCode::kUnavailable,
              "key " + std::to_string(key_) + " of '" + store_->name() + "' is not changed: node " +
                  std::to_string(lost) + " was killed or cut off from node " +
                  std::to_string(store_->self()) +
                  ", so its index would not follow; let another node change the key, or make the "
                  "store again without one of the two nodes",
              true)
      .blaming({lost});
}

void KvOperation::throw_torn() {
  const TicketLocks::Report lock = store_->locks_.report(*me_, store_->lock_of(key_));
  throw_overdue("its slot at node " + std::to_string(at_.node) + " is torn: " +
                    (lock.in_doubt ? "an update was cut off before its value was whole; update the "
                                     "key or remove it"
                                   : "an update has not written its whole value, and its node may "
                                     "have ended") +
                    ". Of the key's lock: " + lock.text,
                lock.blamed);
}

}  // namespace pyrdma::loco
