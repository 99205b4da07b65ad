// The view change as a pure step machine: no clock, no network (Derecho, section on view changes;
// virtual synchrony). The host hands it the rows of the other members and what it suspects; the
// machine changes the own row and says what the host does next.
//
//   1. A member suspects another one, or the leader learns of a joiner or a leaver.
//   2. Suspicions spread from row to row. Nobody reads the row of a member that it suspects.
//   3. Every member wedges: it stops sending and receiving, and declares how much it has received.
//   4. The leader, the lowest member that nobody alive suspects, proposes a list of changes. A new
//      leader first waits until all members suspect all lower ones, and goes on with their list.
//   5. Members copy the list, which acknowledges it. The leader commits it when all have.
//   6. The leader computes the trim: how many messages of each sender all members have. Members
//      copy it.
//   7. When all have copied it, each member delivers up to the trim and enters the next view.
//
// Steps 5 to 7 need a majority of the view, so that two sides of a partition never both go on.
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
  /// All members have agreed on the end of this view: deliver up to trim().
  bool is_agreed() const;
  const Rounds& trim() const { return own().trim; }
  /// The members of the next view, by rank. Requires is_agreed().
  std::vector<Member> next_members() const;
  /// Whether this member is in the next view. Requires a committed list.
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
  void suspect_all(RankSet ranks);
  void merge_suspicions();
  void lead();
  void follow();
  void adopt_list();
  void propose();
  bool add(const Change& change);
  void find_trim();
  void copy_trim(const Rounds& trim);

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
