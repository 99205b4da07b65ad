#include "systems/spindle/membership/membership.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/assert.h"

namespace pyrdma::spindle {

namespace {

bool removes(const std::vector<Change>& changes, Member member) {
  return std::ranges::find(changes, Change{Change::Kind::kRemove, member}) != changes.end();
}

}  // namespace

Membership::Membership(const ViewShape& shape, Rank self, bool partition_safety, Bugs bugs)
    : shape_(shape),
      self_(self),
      partition_safety_(partition_safety && bugs.needs_majority()),
      bugs_(bugs),
      rows_(shape.size()) {
  own().version = 1;
}

void Membership::suspect(Rank rank) {
  if (rank != self_) suspect_all(bit_of(rank));
}

void Membership::suspect_all(RankSet ranks) {
  if ((ranks & ~certain()) == 0) return;
  own().suspected |= ranks;
  own().accusers &= ~ranks;
  is_changed_ = true;
}

void Membership::ask_to_leave() {
  if (own().leaving) return;
  own().leaving = true;
  is_changed_ = true;
}

void Membership::ask_to_join(Member joiner) {
  if (shape_.rank_of(joiner)) return;
  // An earlier start of the node is dead.
  if (const auto older = shape_.rank_of_node(joiner.node);
      older && shape_.members[*older].incarnation < joiner.incarnation)
    suspect(*older);
  if (std::ranges::find(joiners_, joiner) == joiners_.end()) joiners_.push_back(joiner);
}

void Membership::take_row(Rank rank, ControlRow row) {
  if (rank == self_ || row.version <= rows_[rank].version) return;
  rows_[rank] = std::move(row);
}

void Membership::wedged(Rounds received) {
  PYRDMA_ASSERT(!own().wedged);
  own().wedged = true;
  own().received = std::move(received);
  is_changed_ = true;
}

Rank Membership::leader() const { return static_cast<Rank>(std::countr_one(own().suspected)); }

bool Membership::lacks_majority() const {
  return !is_majority(rows_.size() - static_cast<std::size_t>(std::popcount(own().suspected)));
}

// A member that suspects this one is suspected too, and what it says about others does not count:
// it may be the one that hears nothing. The majority decides which side goes on. (In Derecho a
// member that is suspected by any other one ends itself, so one deaf node ends all.) Nobody repeats
// this suspicion: of two members that suspect each other, some would hear of the one first and
// some of the other. So a single false suspicion costs the suspect alone.
void Membership::merge_suspicions() {
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (Rank rank = 0; rank < rows_.size(); ++rank) {
      if (rank == self_ || is_suspected(rank)) continue;
      const ControlRow& row = rows_[rank];
      if ((row.suspected & bit_of(self_)) != 0) {
        own().suspected |= bit_of(rank);
        own().accusers |= bit_of(rank);
        is_new = is_changed_ = true;
      } else if (const RankSet theirs = row.suspected & ~row.accusers; (theirs & ~certain()) != 0) {
        suspect_all(theirs);
        is_new = true;
      }
    }
  }
}

bool Membership::step() {
  merge_suspicions();
  take_commit();
  if (!own().committed) {
    if (is_to_change()) is_to_wedge_ = true;
    leader() == self_ ? lead() : follow();
    commit();
  }
  if (own().accepted) is_to_wedge_ = true;
  if (!is_changed_) return false;
  is_changed_ = false;
  ++own().version;
  return true;
}

bool Membership::is_to_change() const {
  return own().suspected != 0 || std::ranges::any_of(rows_, &ControlRow::wedged) ||
         (leader() == self_ && !due_changes().empty());
}

// What is committed stays so, whoever says it and whatever has become of it. On both sides of a
// partition that may both go on, it holds for one side.
void Membership::take_commit() {
  for (Rank rank = 0; rank < rows_.size() && !own().committed; ++rank) {
    if (!rows_[rank].committed) continue;
    if (is_suspected(rank) && (!partition_safety_ || !bugs_.hears_commits())) continue;
    accept(*rows_[rank].accepted);
    if (own().accepted == rows_[rank].accepted) own().committed = is_changed_ = true;
  }
}

void Membership::lead() {
  if (own().accepted && own().accepted->leader == self_) return;
  if (!is_to_wedge_ || lacks_majority()) return;
  const RankSet lower = bit_of(self_) - 1;
  const bool all_know =
      all_alive([&](const ControlRow& row) { return (row.suspected & lower) == lower; });
  if (!all_know && bugs_.waits_for_suspicions()) return;
  Proposal proposal;
  if (const Proposal* last = last_proposal(); last != nullptr && bugs_.adopts_proposal()) {
    proposal = *last;
    for (const Change& change : due_changes()) {
      if (!bugs_.keeps_changes() && !removes(proposal.changes, change.member))
        proposal.changes.push_back(change);
    }
    if (!bugs_.keeps_trim()) proposal.trim = common_rounds();
  } else {
    // A member that stays must be able to deliver up to the trim, so each one has wedged or goes.
    for (Rank rank = 0; rank < rows_.size(); ++rank) {
      if (is_suspected(rank) ? !is_due(rank) && bugs_.waits_for_accusers() : !rows_[rank].wedged)
        return;
    }
    proposal.changes = due_changes();
    proposal.trim = common_rounds();
  }
  proposal.leader = self_;
  accept(proposal);
}

// Of those that suspect all lower ranks, so that they accept nothing older from now on.
const Proposal* Membership::last_proposal() const {
  const Proposal* last = nullptr;
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    const auto& accepted = rows_[rank].accepted;
    if (is_suspected(rank) || !accepted) continue;
    if (last == nullptr || accepted->leader > last->leader) last = &*accepted;
  }
  return last;
}

/// A suspect is removed when it is certain, or when all the others suspect it too. Members that an
/// accuser does not suspect hear of this leader, and suspect it.
bool Membership::is_due(Rank rank) const {
  return is_certain(rank) ||
         all_alive([&](const ControlRow& row) { return (row.suspected & bit_of(rank)) != 0; });
}

std::vector<Change> Membership::due_changes() const {
  std::vector<Change> changes;
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    if (is_suspected(rank) && is_due(rank))
      changes.push_back({Change::Kind::kRemove, shape_.members[rank]});
  }
  // One member stays: it ends the group when it leaves the view that it has alone.
  std::size_t staying = shape_.size() - changes.size();
  for (Rank rank = 0; rank < rows_.size() && staying > 1; ++rank) {
    if (!rows_[rank].leaving || is_suspected(rank)) continue;
    changes.push_back({Change::Kind::kRemove, shape_.members[rank]});
    --staying;
  }
  for (const Member& joiner : joiners_) {
    const bool is_taken = std::ranges::any_of(changes, [&](const Change& change) {
      return change.kind == Change::Kind::kJoin && change.member.node == joiner.node;
    });
    const auto older = shape_.rank_of_node(joiner.node);
    const bool is_clear = !older || removes(changes, shape_.members[*older]);
    if (staying == kMostMembers || is_taken || !is_clear) continue;
    changes.push_back({Change::Kind::kJoin, joiner});
    ++staying;
  }
  return changes;
}

// A subgroup whose members are all suspected has nobody who would deliver.
Rounds Membership::common_rounds() const {
  Rounds common(own().received.size(), kNotCounted);
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    if (is_suspected(rank)) continue;
    const Rounds& received = rows_[rank].received;
    for (std::size_t i = 0; i < received.size(); ++i) common[i] = std::min(common[i], received[i]);
  }
  return common;
}

void Membership::follow() {
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    if (rank != leader() && bugs_.ignores_suspects()) continue;
    const auto& accepted = rows_[rank].accepted;
    if (accepted && accepted->leader == rank) accept(*accepted);
  }
}

bool Membership::has(const Rounds& trim) const {
  const Rounds& received = own().received;
  if (!own().wedged || trim.size() != received.size()) return false;
  for (std::size_t i = 0; i < trim.size(); ++i) {
    if (received[i] != kNotCounted && trim[i] > received[i]) return false;
  }
  return true;
}

// A member that stays has what its leader says that it has, unless the row is damaged.
void Membership::accept(const Proposal& proposal) {
  if (own().accepted == proposal) return;
  if (!removes(proposal.changes, shape_.members[self_]) && !has(proposal.trim)) return;
  own().accepted = proposal;
  is_changed_ = true;
}

void Membership::commit() {
  if (!own().accepted) return;
  std::size_t accepting = 0;
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    const auto& accepted = rows_[rank].accepted;
    if (accepted && (accepted->leader == own().accepted->leader || !bugs_.compares_echoes()))
      ++accepting;
    else if (!is_suspected(rank) && bugs_.waits_for_echoes())
      return;
  }
  if (!is_majority(accepting) && bugs_.waits_for_echoes()) return;
  own().committed = is_changed_ = true;
}

bool Membership::stays() const { return !removes(own().accepted->changes, shape_.members[self_]); }

std::vector<Member> Membership::next_members() const {
  std::vector<Change> changes = own().accepted->changes;
  if (!bugs_.keeps_joiners() && leader() != self_ && !changes.empty() &&
      changes.back().kind == Change::Kind::kJoin)
    changes.pop_back();
  return members_after(shape_, changes);
}

}  // namespace pyrdma::spindle
