#include "systems/spindle/membership/membership.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/assert.h"

namespace pyrdma::spindle {

namespace {

/// Whether `list` begins with all of `prefix`.
bool begins_with(const std::vector<Change>& list, const std::vector<Change>& prefix) {
  return list.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), list.begin());
}

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
  if (!partition_safety_) return false;
  std::uint32_t staying = 0;
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    // The list of an older leader may remove more members than this one suspects.
    const bool is_lost = removes(own().changes, shape_.members[rank]) && !rows_[rank].leaving;
    staying += !is_suspected(rank) && !is_lost;
  }
  return 2 * staying <= shape_.size();
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
  if (leader() == self_)
    lead();
  else
    follow();
  if (own().suspected != 0 || !own().changes.empty()) is_to_wedge_ = true;
  if (!is_changed_) return false;
  is_changed_ = false;
  ++own().version;
  return true;
}

void Membership::lead() {
  const RankSet lower = bit_of(self_) - 1;
  const bool all_know =
      all_alive([&](const ControlRow& row) { return (row.suspected & lower) == lower; });
  if (!all_know && bugs_.waits_for_suspicions()) return;
  if (lacks_majority()) return;
  adopt_list();
  if (!own().committed || !bugs_.keeps_committed()) propose();
  if (own().committed && own().wedged && !own().trimmed) find_trim();
}

// The rows of the members alive agree as far as they go: each list comes from the last leader, and
// nobody copies from a leader that it suspects.
void Membership::adopt_list() {
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    if (is_suspected(rank) || rank == self_ || own().committed) continue;
    const ControlRow& row = rows_[rank];
    const bool is_further = row.changes.size() > own().changes.size();
    if (!row.committed && (!is_further || !bugs_.adopts_proposal())) continue;
    own().changes = row.changes;
    own().committed = row.committed;
    is_changed_ = true;
  }
}

bool Membership::add(const Change& change) {
  std::vector<Change>& list = own().changes;
  if (list.size() == kMostChanges || std::ranges::find(list, change) != list.end()) return false;
  list.push_back(change);
  is_changed_ = true;
  return true;
}

void Membership::propose() {
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    // Members that an accuser does not suspect hear of this leader, and suspect it.
    const bool is_due = is_suspected(rank) && (is_certain(rank) || all_alive([&](const auto& row) {
                                                 return (row.suspected & bit_of(rank)) != 0;
                                               }));
    if (is_due) add({Change::Kind::kRemove, shape_.members[rank]});
  }
  // One member stays: it ends the group when it leaves the view that it has alone.
  std::size_t staying = 0;
  for (const Member& member : shape_.members) staying += !removes(own().changes, member);
  for (Rank rank = 0; rank < rows_.size() && staying > 1; ++rank) {
    if (rows_[rank].leaving && !is_suspected(rank) &&
        add({Change::Kind::kRemove, shape_.members[rank]}))
      --staying;
  }
  for (const Member& joiner : joiners_) {
    const std::size_t joining = static_cast<std::size_t>(
        std::ranges::count(own().changes, Change::Kind::kJoin, &Change::kind));
    const bool is_taken = std::ranges::any_of(own().changes, [&](const Change& change) {
      return change.kind == Change::Kind::kJoin && change.member.node == joiner.node;
    });
    const auto older = shape_.rank_of_node(joiner.node);
    const bool is_clear = !older || removes(own().changes, shape_.members[*older]);
    if (staying + joining < kMostMembers && !is_taken && is_clear)
      add({Change::Kind::kJoin, joiner});
  }
  if (own().changes.empty()) return;
  const std::vector<Change>& list = own().changes;
  if (!all_alive([&](const ControlRow& row) { return begins_with(row.changes, list); })) return;
  own().committed = true;
  is_changed_ = true;
}

// A trim never exceeds what this member has received, unless the row is damaged.
void Membership::copy_trim(const Rounds& trim) {
  const Rounds& received = own().received;
  if (trim.size() != received.size()) return;
  for (std::size_t i = 0; i < trim.size(); ++i) {
    if (received[i] != kNotCounted && trim[i] > received[i]) return;
  }
  own().trim = trim;
  own().trimmed = is_changed_ = true;
}

void Membership::find_trim() {
  for (Rank rank = 0; rank < rows_.size() && bugs_.keeps_trim(); ++rank) {
    if (is_suspected(rank) || !rows_[rank].trimmed) continue;
    return copy_trim(rows_[rank].trim);
  }
  if (!all_alive([](const ControlRow& row) { return row.wedged; })) return;
  // A subgroup whose members are all suspected has nobody who would deliver.
  own().trim.assign(own().received.size(), kNotCounted);
  for (Rank rank = 0; rank < rows_.size(); ++rank) {
    if (is_suspected(rank)) continue;
    const Rounds& received = rows_[rank].received;
    for (std::size_t i = 0; i < received.size(); ++i)
      own().trim[i] = std::min(own().trim[i], received[i]);
  }
  own().trimmed = is_changed_ = true;
}

void Membership::follow() {
  const ControlRow& leading = rows_[leader()];
  const RankSet lower = bit_of(leader()) - 1;
  if ((leading.suspected & lower) != lower) return;  // it does not know yet that it leads
  if (!own().committed && (leading.committed || leading.changes.size() > own().changes.size())) {
    own().changes = leading.changes;
    own().committed = leading.committed;
    is_changed_ = true;
  }
  for (const ControlRow& row : rows_) {
    if (&row != &leading && bugs_.ignores_suspects()) continue;
    if (!own().committed || !own().wedged || !row.trimmed || own().trimmed) continue;
    copy_trim(row.trim);
  }
}

bool Membership::is_agreed() const {
  if (!own().committed || !own().trimmed) return false;
  if (!bugs_.waits_for_echoes()) return true;
  return !lacks_majority() && all_alive([](const ControlRow& row) { return row.trimmed; });
}

bool Membership::stays() const { return !removes(own().changes, shape_.members[self_]); }

std::vector<Member> Membership::next_members() const {
  std::vector<Member> next;
  for (const Member& member : shape_.members) {
    if (!removes(own().changes, member)) next.push_back(member);
  }
  bool is_first = true;
  for (const Change& change : own().changes) {
    if (change.kind != Change::Kind::kJoin) continue;
    if (is_first || bugs_.keeps_joiners() || leader() == self_) next.push_back(change.member);
    is_first = false;
  }
  return next;
}

}  // namespace pyrdma::spindle
