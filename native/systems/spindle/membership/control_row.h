// The control row of a member: what it says about the end of the view (Derecho's columns suspected,
// changes, num_changes, num_acked, num_committed, wedged, num_received, global_min). Suspicions,
// flags and the number of the accepted proposal only grow during a view.
//
// A row spans many cache lines, so a reader may see it torn. It carries a checksum; a row that does
// not fit its checksum is read again later.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "systems/spindle/bugs.h"
#include "systems/spindle/shape.h"

namespace pyrdma::spindle {

/// A bit for each rank.
using RankSet = std::uint64_t;
constexpr RankSet bit_of(Rank rank) { return RankSet{1} << rank; }

struct Change {
  enum class Kind : std::uint8_t { kRemove, kJoin };
  Kind kind = Kind::kRemove;
  Member member;
  bool operator==(const Change&) const = default;
};
inline constexpr std::uint32_t kMostChanges = 2 * kMostMembers;

/// Rounds of each sender of each subgroup of a view, in the order of the subgroups. kNotCounted: of
/// a subgroup without the owner.
using Rounds = std::vector<std::uint64_t>;
inline constexpr std::uint64_t kNotCounted = ~std::uint64_t{0};

/// How a view ends.
struct Proposal {
  Rank leader = 0;              // who proposes it: each leader proposes once, so this names it
  std::vector<Change> changes;  // of the members, in order
  Rounds trim;                  // what the view delivers
  bool operator==(const Proposal&) const = default;
};

struct ControlRow {
  std::uint64_t version = 0;  // grows with each change of the row; 0: never written
  RankSet suspected = 0;
  RankSet accusers =
      0;  // of the suspected: those for no other reason than that they suspect the owner
  bool leaving = false;
  bool wedged = false;  // the owner sends and receives no more messages
  Rounds received;      // what it has received then
  /// The proposal of the last leader that the owner has followed.
  std::optional<Proposal> accepted;
  bool committed = false;  // the view ends so
};

/// Returns the bytes of a row, a multiple of 8.
Bytes encode(const ControlRow& row);
/// Returns the version in the bytes of a row that may be torn.
std::uint64_t version_of(const std::byte* row);
/// Returns the row, or nothing if the bytes are torn or are no row of this view. Nodes are below
/// `nodes`.
std::optional<ControlRow> decode(ByteView bytes, const ViewShape& shape, NodeId nodes,
                                 Bugs bugs = {});
/// Returns the members of the next view, by rank: those that stay, then those that join.
std::vector<Member> members_after(const ViewShape& shape, const std::vector<Change>& changes);

}  // namespace pyrdma::spindle
