// The views that a participant knows of, in a file: what a restart needs to decide who may begin.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "env/env.h"
#include "env/storage.h"
#include "systems/spindle/bugs.h"

namespace pyrdma::spindle::dds {

struct LoggedView {
  std::uint64_t id = 0;  // 0: none
  std::vector<NodeId> members;
  bool operator==(const LoggedView&) const = default;
};

struct LoggedViews {
  /// The last view that this node agreed to. All members agree before it runs.
  LoggedView accepted;
  /// The last view that ran here, or in which the samples were delivered that this node has copied.
  LoggedView ran;
  bool operator==(const LoggedViews&) const = default;
};

void put_views(ByteWriter& out, const LoggedViews& views);
LoggedViews get_views(ByteReader& in);

/// Two places take turns, so that a write that a crash tears leaves the record before it. A record
/// lies in one sector, which a crash leaves as it was or as it was written (File). So a place that
/// is neither zeros nor a whole record is damaged. The older record must not stand for it: this
/// node could forget a view that it has agreed to, and begin again while the others still run in
/// it.
class ViewLog {
 public:
  /// Reads the newest record, and makes it durable: the process that wrote it may have ended before
  /// its sync. Throws Error(kUnavailable) if a place is damaged; with `forgets` the node has lost
  /// its views instead.
  explicit ViewLog(Env& env, bool forgets = false, Bugs bugs = {});

  const LoggedViews& views() const { return views_; }
  /// What this node has agreed to is not known, until the next write().
  bool is_lost() const { return is_lost_; }
  /// Blocks until the views are durable. Throws Error(kInvalidArgument) for a node above 65,535.
  void write(const LoggedViews& views);

 private:
  static constexpr std::uint64_t kPlace = 4096;  // bytes

  std::unique_ptr<File> file_;
  std::uint64_t writes_ = 0;
  LoggedViews views_;
  bool is_lost_ = false;
};

/// A restart by `nodes`, each of which knows `known`. Returns the members that must begin, more
/// than half of each list:
///   - of the newest view that ran;
///   - of each later view that some node accepted, unless a member of it is here that did not: then
///     it never ran, and never will. A node accepts views in the order of their numbers.
/// Two groups of nodes that have nobody in common cannot both have these. Empty: no view may have
/// run.
std::vector<LoggedView> must_have_majority(const std::vector<NodeId>& nodes,
                                           const std::vector<LoggedViews>& known);

}  // namespace pyrdma::spindle::dds
