// The receive predicate and null-sends (sections 2.4, 3.2 and 3.3).
#include <algorithm>

#include "systems/spindle/scopes.h"
#include "systems/spindle/subgroup.h"

namespace pyrdma::spindle {

bool Subgroup::has_received() const {
  for (std::uint32_t sender = 0; sender < senders_; ++sender) {
    const Scope step(env_, scope::look_at_sender);
    if (load(guards_[sender]) > rounds_[sender]) return true;
  }
  return false;
}

/// The count of messages in the order of the subgroup before the first one that is missing here.
std::uint64_t Subgroup::first_missing() const {
  std::uint64_t first = ~std::uint64_t{0};
  for (std::uint32_t sender = 0; sender < senders_; ++sender)
    first = std::min(first, rounds_[sender] * senders_ + sender);
  return first;
}

void Subgroup::receive(Pushes& pushes, Upcall upcall) {
  const Scope step(env_, scope::receive);
  std::uint64_t taken = 0;
  for (std::uint32_t sender = 0; sender < senders_; ++sender) {
    const Scope look(env_, scope::take_from_sender);
    const std::uint64_t guard = load(guards_[sender]);
    std::uint64_t& rounds = rounds_[sender];
    if (guard <= rounds) continue;
    const std::uint64_t until = options_.batch_receive ? guard : rounds + 1;
    taken += until - rounds;
    if (shape_.order == Order::kUnordered) {
      deliver_unordered(sender, until, upcall);
      pushes.consumed = true;
    }
    rounds = until;
  }
  if (taken == 0) return;
  counters_.receives.add(taken);
  if (shape_.order == Order::kUnordered) return;
  if (const std::uint64_t received = first_missing(); received > received_) {
    received_ = received;
    table_.store(layout_.received(index_, self_), received);
    pushes.received = true;
  }
  if (options_.null_sends && is_sender()) send_nulls(pushes);
}

// A null is due for each own round that precedes a message received in the order of delivery: for
// message k of sender i these are the rounds below k, and round k if the own place is before i.
void Subgroup::send_nulls(Pushes& pushes) {
  std::uint64_t due = 0;
  for (std::uint32_t sender = 0; sender < senders_; ++sender) {
    if (sender == sender_ || rounds_[sender] == 0) continue;
    due = std::max(due, rounds_[sender] - (sender_ < sender ? 0 : 1));
    if (!bugs_.nulls_end()) due = std::max(due, rounds_[sender] + 1);
  }
  const bool has_queued = queued_.load(std::memory_order_relaxed) != pushed_;
  // Messages of these rounds wait for no full batch: they are what a null would be.
  if (options_.fixed_batch != 0 && has_queued && round_of_[pushed_ % shape_.window] < due &&
      bugs_.ends_batch())
    flush();
  if (due <= sent_rounds_) return;
  counters_.nulls += due - sent_rounds_;
  ++counters_.null_iterations;
  sent_rounds_ = due;
  env_.reached("spindle/nulls");
  // Messages that wait for the send predicate come first; it announces the nulls with them.
  if (has_queued) return;
  pushes.guard = true;
  pushes.guard_value = due;
  table_.store(layout_.guard(index_, self_), due);
}

}  // namespace pyrdma::spindle
