// The delivery predicate, and the last deliveries of a view (sections 2.4, 3.2 and 3.5).
#include <algorithm>

#include "systems/spindle/scopes.h"
#include "systems/spindle/subgroup.h"

namespace pyrdma::spindle {

/// The count of messages that all members have received.
std::uint64_t Subgroup::stable() const {
  if (!bugs_.waits_for_stability()) return received_;
  std::uint64_t least = received_;
  for (const std::byte* received : received_by_) {
    const Scope step(env_, scope::look_at_member);
    least = std::min(least, load(received));
  }
  return least;
}

bool Subgroup::has_stable() {
  if (delivered_ == received_) return false;  // also of an unordered subgroup
  stable_ = stable();
  return stable_ > delivered_;
}

void Subgroup::note(const Message& message) {
  ++counters_.delivered;
  counters_.delivered_bytes += message.bytes.size();
}

/// Takes the next round in the order; adds its message, unless it is a null.
void Subgroup::take_next() {
  const Scope step(env_, scope::take_round);
  const std::uint32_t sender = next_sender_;
  const SlotHeader head = header(sender, messages_[sender]);
  if (head.tag == tag_of(next_round_) || !bugs_.looks_at_round()) {
    const Scope message(env_, scope::deliver_message);
    const std::byte* at = slot(sender, messages_[sender]) + 8;
    batch_.push_back({sender,
                      view_members_[shape_.senders[sender]].node,
                      next_round_ * senders_ + sender,
                      {at, std::min(head.bytes, shape_.max_message)}});
    note(batch_.back());
    ++messages_[sender];
  }
  skip_round();
}

void Subgroup::skip_round() {
  ++delivered_;
  if (++next_sender_ < senders_) return;
  next_sender_ = 0;
  ++next_round_;
}

void Subgroup::call(Upcall upcall) {
  if (batch_.empty()) return;
  const Scope step(env_, scope::call_upcall);
  upcall(batch_);
  batch_.clear();
}

void Subgroup::deliver(Pushes& pushes, Upcall upcall) {
  const Scope step(env_, scope::deliver);
  if (stable_ <= delivered_) return;
  const std::uint64_t until = options_.batch_delivery ? stable_ : delivered_ + 1;
  counters_.deliveries.add(until - delivered_);
  while (delivered_ < until) {
    take_next();
    if (!options_.batch_upcall) call(upcall);
  }
  call(upcall);
  table_.store(layout_.delivered(index_, self_), delivered_);
  pushes.delivered = true;
}

void Subgroup::deliver_unordered(std::uint32_t sender, std::uint64_t until, Upcall upcall) {
  const NodeId node = view_members_[shape_.senders[sender]].node;
  std::uint64_t& next = messages_[sender];
  for (std::uint64_t round = rounds_[sender]; round < until; ++round) {
    const SlotHeader head = header(sender, next);
    if (head.tag != tag_of(round)) continue;
    const Scope step(env_, scope::deliver_message);
    batch_.push_back({sender,
                      node,
                      round * senders_ + sender,
                      {slot(sender, next) + 8, std::min(head.bytes, shape_.max_message)}});
    note(batch_.back());
    ++next;
    if (!options_.batch_upcall) call(upcall);
  }
  call(upcall);
  counters_.deliveries.add(until - rounds_[sender]);
  table_.store(layout_.consumed(index_, self_) + 8 * sender, next);
}

// Every survivor has all messages below the trim. A round at or above it is one that its sender
// sends again, or that nobody has.
void Subgroup::deliver_to(std::span<const std::uint64_t> trim, Upcall upcall) {
  if (shape_.order == Order::kUnordered || senders_ == 0) return;
  const std::uint64_t last = *std::ranges::max_element(trim);
  while (next_round_ < last) {
    if (next_round_ < trim[next_sender_]) {
      take_next();
      if (!options_.batch_upcall) call(upcall);
    } else {
      env_.reached("spindle/ragged_trim");
      skip_round();
    }
  }
  call(upcall);
}

}  // namespace pyrdma::spindle
