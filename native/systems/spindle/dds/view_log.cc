#include "systems/spindle/dds/view_log.h"

#include <algorithm>

#include "base/checksum.h"
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

// The record: its number, the views, a checksum.
ViewLog::ViewLog(Env& env) : file_(env.storage().open("views.log")) {
  env.storage().sync();
  for (std::uint64_t at = 0; at < 2 * kPlace && at < file_->size(); at += kPlace) {
    Bytes content(std::min(kPlace, file_->size() - at));
    content.resize(file_->read(at, content));
    ByteReader in(content);
    const auto number = in.get<std::uint64_t>();
    const LoggedViews views = get_views(in);
    const std::size_t covered = content.size() - in.left();
    if (!in.ok() || in.get<std::uint64_t>() != checksum(ByteView(content).first(covered), 1) ||
        !in.ok() || number <= writes_)
      continue;
    writes_ = number;
    views_ = views;
  }
}

void ViewLog::write(const LoggedViews& views) {
  views_ = views;
  Bytes record;
  ByteWriter out(record);
  out.put(++writes_);
  put_views(out, views);
  out.put(checksum(record, 1));
  file_->write(writes_ % 2 * kPlace, record);
  file_->sync();
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
