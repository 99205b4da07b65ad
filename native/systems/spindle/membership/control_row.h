// The control row of a member: what it says about the change of the view (Derecho's columns
// suspected, changes, num_changes, num_acked, num_committed, wedged, global_min). Every field is
// monotonic during a view.
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

struct ControlRow {
  std::uint64_t version = 0;  // grows with each change of the row; 0: never written
  RankSet suspected = 0;
  RankSet accusers =
      0;  // of the suspected: those for no other reason than that they suspect the owner
  bool leaving = false;
  /// Proposed changes of the view, in order. A member that has a list in its row acknowledges it.
  std::vector<Change> changes;
  bool committed = false;  // the list is final
  bool wedged = false;     // the owner sends and receives no more messages
  Rounds received;         // what it has received then
  bool trimmed = false;
  Rounds trim;  // what the view delivers
};

/// Returns the bytes of a row, a multiple of 8.
Bytes encode(const ControlRow& row);
/// Returns the version in the bytes of a row that may be torn.
std::uint64_t version_of(const std::byte* row);
/// Returns the row, or nothing if the bytes are torn or are no row of this view.
std::optional<ControlRow> decode(ByteView bytes, const ViewShape& shape, Bugs bugs = {});

}  // namespace pyrdma::spindle
