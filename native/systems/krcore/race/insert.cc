// Insertion (RACE, section 3.3).
//
// The client puts the slot into a free place of the less loaded combined bucket and then reads both
// combined buckets again, to find insertions of the same key at the same time. All but one of these
// are undone; the one at the lowest place remains. In the paper a slot is visible at once, so
// another client may read, update or remove a duplicate that is undone later. Here the slot is
// tentative until its client has looked for duplicates: nobody takes it for the key, everybody may
// undo it, and one more compare-and-swap makes it the key's. The first compare-and-swap and the
// reads go behind one doorbell, so an insertion takes three round trips, as in the paper.
#include <algorithm>

#include "env/scope.h"
#include "systems/krcore/race/operation.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

void Operation::place() {
  c_.step(Step::kBlockWritten);
  if (waits_for_rival()) return;
  std::uint32_t used[2] = {0, 0};
  std::uint64_t free_at[2] = {0, 0};
  Slot free_slot[2];
  bool in_overflow[2] = {false, false};
  {
    const Scope step(c_.env, scope::race_place);
    for (std::uint32_t candidate = 0; candidate < 2; ++candidate) {
      const std::uint32_t main = hash_.main(candidate);
      for (std::uint32_t i = 0; i < 2 * kSlotsPerBucket; ++i) {
        // The main bucket first. It is the second one of a combined bucket whose group has the
        // overflow bucket before it.
        const bool is_overflow = i >= kSlotsPerBucket;
        const std::uint32_t bucket = is_overflow ? 1 - main : main;
        const std::uint32_t number = i % kSlotsPerBucket;
        const Slot found = slot(candidate, bucket, number);
        used[candidate] += !found.is_empty();
        if (!found.is_empty() || free_at[candidate] != 0 || !has_key(found.depth())) continue;
        free_at[candidate] = slot_at(candidate, bucket, number);
        free_slot[candidate] = found;
        in_overflow[candidate] = is_overflow;
      }
    }
  }
  std::uint32_t chosen = used[1] < used[0] ? 1 : 0;
  if (free_at[chosen] == 0) chosen = 1 - chosen;
  if (free_at[chosen] == 0) return wait_for_split(true);
  if (in_overflow[chosen]) c_.env.reached("race/overflow bucket used");
  place_at_ = free_at[chosen];
  placed_ = Slot::entry(hash_.fingerprint(), units_, block_->offset, block_->version,
                        free_slot[chosen].depth())
                .tentative();
  expected_ = free_slot[chosen];
  is_placed_ = true;
  c_.links.swap(home_.node, place_at_, expected_.word(), placed_.word(), buffers_.words);
  read_buckets();
  then(&Operation::placed);
}

void Operation::placed() {
  is_placed_ = has_swapped();
  if (!is_placed_) return again("others fill its bucket");
  c_.step(Step::kPlaced);
  if (!c_.options.bugs.looks_again()) return commit();
  looked_again();
}

void Operation::look_again() {
  const Time now = c_.env.now();
  if (deadline_ == 0) deadline_ = now + c_.options.timeout;
  if (now > deadline_) throw_overdue("others insert the same key again and again");
  read_buckets();
  then(&Operation::looked_again);
}

void Operation::looked_again() {
  {
    const Scope step(c_.env, scope::race_look_again);
    collect(true);
    const auto is_own = [&](const Match& match) { return match.at == place_at_; };
    count_ = static_cast<std::uint32_t>(
        std::remove_if(matches_.begin(), matches_.begin() + count_, is_own) - matches_.begin());
  }
  after_blocks_ = &Operation::resolve;
  read_blocks();
}

void Operation::resolve() {
  std::uint32_t higher = 0;
  {
    const Scope step(c_.env, scope::race_resolve);
    for (std::uint32_t i = 0; i < count_; ++i) {
      const Match& match = matches_[i];
      if (match.verdict == Verdict::kUnsure) return look_again();
      if (match.verdict != Verdict::kSame) continue;
      if (!match.slot.is_tentative()) return withdraw();
      if (match.at < place_at_) {
        rival_ = match;
        rival_since_ = c_.env.now();
        return withdraw();
      }
      ++higher;
    }
  }
  c_.step(Step::kLookedAgain);
  if (higher != 0) return undo_others();
  commit();
}

// The key is there, or another insertion of it has a lower place.
void Operation::withdraw() {
  c_.env.reached("race/duplicate removed");
  swap_slot(place_at_, placed_, Slot::empty(placed_.depth()), &Operation::withdrawn);
}

// If it was gone, another client has undone it.
void Operation::withdrawn() {
  is_placed_ = false;
  again("others insert the same key again and again");
}

// An insertion that waits has a lower place to wait for. Its client may have died.
bool Operation::waits_for_rival() {
  if (rival_.at == 0) return false;
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t number = 0; number < kSlotsPerBucket; ++number) {
      if (slot_at(i / 2, i % 2, number) != rival_.at || slot(i / 2, i % 2, number) != rival_.slot)
        continue;
      if (c_.env.now() - rival_since_ < c_.options.patience) {
        again("another insertion of the same key does not end");
      } else {
        c_.env.reached("race/insertion of another undone");
        swap_slot(rival_.at, rival_.slot, Slot::empty(rival_.slot.depth()), &Operation::withdrawn);
        rival_ = {};
      }
      return true;
    }
  }
  rival_ = {};
  return false;
}

void Operation::undo_others() {
  undone_ = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const Match& match = matches_[i];
    if (match.verdict != Verdict::kSame) continue;
    c_.links.swap(home_.node, match.at, match.slot.word(), Slot::empty(match.slot.depth()).word(),
                  buffers_.words + undone_++);
  }
  c_.links.ring(*this, home_.node);
  then(&Operation::undone);
}

// One that has changed may be the key's by now.
void Operation::undone() {
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (matches_[i].verdict != Verdict::kSame) continue;
    if (buffers_.words[at++] != matches_[i].slot.word()) return look_again();
    c_.env.reached("race/duplicate removed");
  }
  commit();
}

// This succeeds only if the slot has been there, tentative, since before the buckets were read: no
// split has passed it, so the buckets showed every slot that has the key.
void Operation::commit() {
  may_have_changed_ = true;
  swap_slot(place_at_, placed_, placed_.plain(), &Operation::committed);
}

void Operation::committed() {
  if (!has_swapped()) {
    may_have_changed_ = is_placed_ = false;
    return again("others undo its insertion");
  }
  c_.step(Step::kCommitted);
  keep_block();
  end(Outcome::kOk);
}

}  // namespace pyrdma::krcore::race
