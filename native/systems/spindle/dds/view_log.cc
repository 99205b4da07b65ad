#include "systems/spindle/dds/view_log.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "systems/spindle/shape.h"

namespace pyrdma::spindle::dds {

namespace {

void put_view(ByteWriter& out, const LoggedView& view) {
  out.put(view.id);
  out.put(static_cast<std::uint32_t>(view.members.size()));
  for (const NodeId member : view.members) out.put(member);
}

LoggedView get_view(ByteReader& in) {
  LoggedView view;
  view.id = in.get<std::uint64_t>();
  const auto members = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < std::min(members, kMostMembers); ++i)
    view.members.push_back(in.get<std::uint32_t>());
  return view;
}

bool has(const std::vector<NodeId>& nodes, NodeId node) {
  return std::ranges::find(nodes, node) != nodes.end();
}

/// Whether a node that knows `views` can have accepted `view`.
bool may_have_accepted(const LoggedViews& views, const LoggedView& view) {
  return views.accepted.id > view.id || views.accepted == view;
}

}  // namespace

void put_views(ByteWriter& out, const LoggedViews& views) {
  put_view(out, views.accepted);
  put_view(out, views.ran);
}

LoggedViews get_views(ByteReader& in) {
  LoggedViews views;
  views.accepted = get_view(in);
  views.ran = get_view(in);
  return views;
}

namespace {

constexpr std::uint64_t kViewSector = 512;
constexpr std::uint64_t kFormat = 2;  // of a record; seeds its checksum
constexpr std::uint64_t kMostView = 8 + 2 + 2 * kMostMembers;
static_assert(8 + 2 * kMostView + 8 <= kViewSector);

struct ViewRecord {
  std::uint64_t number = 0;
  LoggedViews views;
};

// Number, the ids of both views, their sizes, their members, a checksum.
Bytes record_of(std::uint64_t number, const LoggedViews& views) {
  Bytes record;
  ByteWriter out(record);
  out.put(number);
  for (const LoggedView* view : {&views.accepted, &views.ran}) {
    out.put(view->id);
    out.put(static_cast<std::uint16_t>(view->members.size()));
    for (const NodeId member : view->members) {
      if (member > 0xffff) {
        throw Error(ErrorCode::kInvalidArgument,
                    "logged topics: node " + std::to_string(member) + "; the most is 65535");
      }
      out.put(static_cast<std::uint16_t>(member));
    }
  }
  out.put(checksum(record, kFormat));
  return record;
}

std::optional<ViewRecord> record_in(ByteView sector) {
  ByteReader in(sector);
  ViewRecord record;
  record.number = in.get<std::uint64_t>();
  for (LoggedView* view : {&record.views.accepted, &record.views.ran}) {
    view->id = in.get<std::uint64_t>();
    const auto members = in.get<std::uint16_t>();
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(members, kMostMembers); ++i)
      view->members.push_back(in.get<std::uint16_t>());
  }
  const std::size_t covered = sector.size() - in.left();
  const auto sum = in.get<std::uint64_t>();
  const bool is_whole =
      in.ok() && record.number != 0 && sum == checksum(sector.first(covered), kFormat);
  return is_whole ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace

ViewLog::ViewLog(Env& env, bool forgets, Bugs bugs) : file_(env.storage().open("views.log")) {
  env.storage().sync();
  for (std::uint64_t at = 0; at < 2 * kPlace; at += kPlace) {
    Bytes sector(kViewSector);
    sector.resize(file_->read(at, sector));
    const auto record = record_in(sector);
    const bool is_unused = is_zeros(sector);
    if (!record && !is_unused && bugs.refuses_damaged_views()) {
      if (!forgets) {
        throw Error(ErrorCode::kUnavailable,
                    "log 'views.log' does not verify at offset " + std::to_string(at) +
                        ": it is damaged, or of another version, and this node no longer knows "
                        "which views it has agreed to; with cut_damage it can join() the domain "
                        "that the others restart");
      }
      is_lost_ = true;
    }
    if (!record || record->number <= writes_) continue;
    writes_ = record->number;
    views_ = record->views;
  }
  if (is_lost_)
    views_ = {};
  else if (writes_ != 0)
    write(views_);
}

void ViewLog::write(const LoggedViews& views) {
  const Bytes record = record_of(writes_ + 1, views);
  file_->write((writes_ + 1) % 2 * kPlace, record);
  file_->sync();
  ++writes_;
  views_ = views;
  is_lost_ = false;
}

std::vector<LoggedView> must_have_majority(const std::vector<NodeId>& nodes,
                                           const std::vector<LoggedViews>& known) {
  std::vector<LoggedView> views;
  LoggedView ran;
  for (const LoggedViews& each : known) {
    if (each.ran.id > ran.id) ran = each.ran;
  }
  if (ran.id != 0) views.push_back(ran);
  for (const LoggedViews& each : known) {
    const LoggedView& view = each.accepted;
    if (view.id <= ran.id || std::ranges::find(views, view) != views.end()) continue;
    bool may_have_run = true;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (has(view.members, nodes[i]) && !may_have_accepted(known[i], view)) may_have_run = false;
    }
    if (may_have_run) views.push_back(view);
  }
  return views;
}

}  // namespace pyrdma::spindle::dds
