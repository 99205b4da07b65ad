// The view change as a pure step machine: no clock, no network (Derecho, section on view changes;
// virtual synchrony). The host hands it the rows of the other members and what it suspects; the
// machine changes the own row and says what the host does next.
//
//   1. A member suspects another one, or the leader learns of a joiner or a leaver.
//   2. Suspicions spread from row to row, and are for ever. Nobody follows a leader that it
//   suspects.
//   3. Every member wedges: it stops sending and receiving, and declares how much it has received.
//   4. The leader is the lowest member that nobody alive suspects. It waits until all that it does
//      not suspect have wedged and suspect all lower members. Then it proposes, once, how the view
//      ends: the changes of the members, and the trim, which is how much of each sender all of them
//      have. If one of them has accepted a proposal of an older leader, it proposes the same again.
//   5. Members copy the proposal of their leader, which accepts it.
//   6. When a majority of the view, and all that a member does not suspect, have accepted the
//      proposal of one leader, the proposal is committed. The member delivers up to the trim and
//      enters the next view. Its last row says so to those that come later.
//
// README.md has the argument why all members commit the same proposal, and why each of them can
// deliver up to its trim.
#pragma once
#include <optional>
#include <vector>

#include "systems/spindle/membership/control_row.h"

namespace pyrdma::spindle {

class Membership {
 public:
  Membership(const ViewShape& shape, Rank self, bool partition_safety = true, Bugs bugs = {});

  // What the host tells it.

  /// The member does not answer, or a connection to it has broken.
  void suspect(Rank rank);
  void ask_to_leave();
  /// A node asks to join. Only the leader proposes it.
  void ask_to_join(Member joiner);
  /// A newer row of another member.
  void take_row(Rank rank, ControlRow row);
  /// The host has wedged: it has received so many rounds, and will take no more.
  void wedged(Rounds received);
  /// Makes all steps that are possible. Returns true if the own row has changed: push it.
  bool step();

  // What the host asks.

  const ControlRow& row() const { return own(); }
  const ControlRow& row_of(Rank rank) const { return rows_[rank]; }
  /// The host must stop sending and receiving, then call wedged().
  bool is_to_wedge() const { return is_to_wedge_ && !own().wedged; }
  bool is_changing() const { return is_to_wedge_; }
  /// The end of this view is decided: deliver up to trim().
  bool is_agreed() const { return own().committed && own().wedged; }
  /// Requires an accepted proposal.
  const Rounds& trim() const { return own().accepted->trim; }
  /// Whether this member has received all of the trim. Requires an accepted proposal. A member that
  /// stays has it; one that the others took for dead may lack messages.
  bool has_trim() const { return has(own().accepted->trim); }
  /// The members of the next view, by rank. Requires an accepted proposal.
  std::vector<Member> next_members() const;
  /// Whether this member is in the next view. Requires an accepted proposal.
  bool stays() const;
  /// So many members are suspected that the rest may not install a view.
  bool lacks_majority() const;
  RankSet suspected() const { return own().suspected; }
  bool is_suspected(Rank rank) const { return (own().suspected & bit_of(rank)) != 0; }
  /// It is suspected for another reason than that it suspects this member.
  bool is_certain(Rank rank) const { return (certain() & bit_of(rank)) != 0; }
  Rank leader() const;

 private:
  ControlRow& own() { return rows_[self_]; }
  const ControlRow& own() const { return rows_[self_]; }
  template <class Test>
  bool all_alive(Test&& test) const {
    for (Rank rank = 0; rank < rows_.size(); ++rank) {
      if (!is_suspected(rank) && !test(rows_[rank])) return false;
    }
    return true;
  }
  RankSet certain() const { return own().suspected & ~own().accusers; }
  bool is_majority(std::size_t members) const {
    return !partition_safety_ || 2 * members > rows_.size();
  }
  void suspect_all(RankSet ranks);
  void merge_suspicions();
  bool has(const Rounds& trim) const;
  bool is_to_change() const;
  void take_commit();
  void lead();
  void follow();
  void accept(const Proposal& proposal);
  void commit();
  const Proposal* last_proposal() const;
  bool is_due(Rank rank) const;
  std::vector<Change> due_changes() const;
  Rounds common_rounds() const;

  const ViewShape& shape_;
  const Rank self_;
  const bool partition_safety_;
  const Bugs bugs_;
  std::vector<ControlRow> rows_;
  std::vector<Member> joiners_;
  bool is_to_wedge_ = false;
  bool is_changed_ = false;  // the own row, since the last step
};

}  // namespace pyrdma::spindle
