// The five invariants of Raft (Ongaro and Ousterhout 2014, Figure 3), checked after every event:
// Election Safety, Leader Append-Only, Log Matching, Leader Completeness, State Machine Safety.
// Each log keeps, per index, a digest of all entries up to it, so that two numbers decide whether
// two logs are equal up to an index. Every event costs O(1) or O(log n), a truncation its length.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "check/invariants/violation.h"

namespace pyrdma::check {

/// The caller reports the steps of the nodes in order. `at` is the event's index, for the messages.
/// Indices begin at 1. A digest stands for a command.
class RaftInvariants {
 public:
  MaybeViolation leader(std::uint32_t at, std::int32_t node, std::int64_t term);
  /// The node leads no more: it stepped down or restarted. Its log stays.
  void follower(std::int32_t node) { nodes_[node].leads = 0; }
  /// The entry comes directly after the last one; a truncation removed conflicting entries before.
  MaybeViolation append(std::uint32_t at, std::int32_t node, std::int64_t index, std::int64_t term,
                        std::uint64_t command);
  /// The log now ends with entry `last`.
  MaybeViolation truncate(std::uint32_t at, std::int32_t node, std::int64_t last);
  /// All entries up to `index` are committed, as `node` learns in `term`.
  MaybeViolation commit(std::uint32_t at, std::int32_t node, std::int64_t index, std::int64_t term);
  MaybeViolation apply(std::uint32_t at, std::int32_t node, std::int64_t index,
                       std::uint64_t command);
  /// A snapshot of all entries up to `index` replaces the log.
  MaybeViolation snapshot(std::uint32_t at, std::int32_t node, std::int64_t index);
  /// The node restarts: its state machine begins again, its log stays.
  void recover(std::int32_t node);

 private:
  struct Entry {
    std::int64_t term = 0;
    std::uint64_t digest = 0;  // covers all entries up to this one
    std::uint32_t at = 0;
  };
  struct Node {
    std::int64_t leads = 0;  // the term that it leads, or 0
    std::int64_t base = 0;   // entries up to this one are in a snapshot
    std::uint64_t base_digest = 0;
    std::vector<Entry> log;
    std::int64_t applied = 0;
    std::int64_t last() const { return base + static_cast<std::int64_t>(log.size()); }
    const Entry* at(std::int64_t index) const {
      if (index <= base || index > last()) return nullptr;
      return &log[static_cast<std::size_t>(index - base - 1)];
    }
    std::uint64_t digest(std::int64_t index) const {
      return index == base ? base_digest : at(index)->digest;
    }
  };
  struct Committed {
    std::uint64_t digest = 0;
    std::int64_t term = 0;  // the term in which a node first learned it
    std::uint32_t at = 0;
  };
  struct Applied {
    std::uint64_t command = 0;
    std::int32_t node = 0;
    std::uint32_t at = 0;
  };

  /// Returns whether the node's log holds the committed entries up to `index`.
  bool has(const Node& node, std::int64_t index) const;
  std::int64_t committed() const { return static_cast<std::int64_t>(committed_.size()); }

  std::map<std::int32_t, Node> nodes_;
  std::map<std::int64_t, std::pair<std::int32_t, std::uint32_t>> leader_of_;  // term: node, event
  std::map<std::pair<std::int64_t, std::int64_t>, Entry> entries_;            // by index and term
  std::vector<Committed> committed_;                                          // [i] is index i + 1
  std::map<std::int64_t, Applied> applied_;
};

/// The points, all with a node, are leader (epoch: term), follower, append (key: index, epoch: term
/// of the entry, value: command), truncate (value: last index left), commit (value: index, epoch:
/// the node's term), apply (key: index, value: command), snapshot (key: index) and recover.
MaybeViolation check_raft(const History& history, const Operations& operations);

}  // namespace pyrdma::check
