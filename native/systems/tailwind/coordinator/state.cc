#include "systems/tailwind/coordinator/state.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "base/quote.h"
#include "systems/tailwind/coordinator/changes.h"

namespace pyrdma::tailwind {

namespace {

bool may_name_table(std::string_view name) {
  return !name.empty() && name.size() <= CoordinatorState::kMostTableName;
}

bool may_count_tablets(std::size_t count) {
  return count != 0 && count <= CoordinatorState::kMostTablets;
}

/// `range` may be empty: its first hash is then behind its last one.
bool overlap(const HashRange& of_tablet, const HashRange& range) {
  return of_tablet.table == range.table && range.first <= range.last &&
         of_tablet.first <= range.last && range.first <= of_tablet.last;
}

/// Position::word() has room for it.
bool has_word(const Position& position) {
  return position.segment < Position::kSegments && position.end < 1U << 24;
}

/// Whether `dead` has something of `ranges`.
bool has_some(const ClusterView& view, ServerId dead, const std::vector<HashRange>& ranges) {
  return std::ranges::any_of(view.tablets, [&](const Tablet& tablet) {
    return tablet.owner == dead && std::ranges::any_of(ranges, [&](const HashRange& range) {
             return overlap(tablet.range, range);
           });
  });
}

/// Returns `tablets` after what `dead` has of `range` went to another owner. Keeps the order.
std::vector<Tablet> moved(const std::vector<Tablet>& tablets, ServerId dead, const HashRange& range,
                          ServerId owner, Position since) {
  std::vector<Tablet> result;
  const auto add = [&](Tablet tablet, std::uint64_t first, std::uint64_t last) {
    tablet.range.first = first;
    tablet.range.last = last;
    result.push_back(tablet);
  };
  for (const Tablet& tablet : tablets) {
    if (tablet.owner != dead || !overlap(tablet.range, range)) {
      result.push_back(tablet);
      continue;
    }
    const auto [table, first, last] = tablet.range;
    if (first < range.first) add(tablet, first, range.first - 1);
    add({tablet.range, owner, since}, std::max(first, range.first), std::min(last, range.last));
    if (last > range.last) add(tablet, range.last + 1, last);
  }
  return result;
}

}  // namespace

CoordinatorState::CoordinatorState(Storage& storage, std::string name, std::uint64_t first_epoch)
    : storage_(storage), name_(std::move(name)) {
  view_.epoch = first_epoch;
  if (storage_.exists(name_)) load();
  rewrite();
}

// ---- questions ----

KnownVersions CoordinatorState::versions(ServerId server) const {
  const auto found = versions_.find(server);
  return found == versions_.end() ? KnownVersions() : found->second;
}

const LogCut* CoordinatorState::cut(ServerId dead) const {
  const auto found = cuts_.find(dead);
  return found == cuts_.end() ? nullptr : &found->second;
}

std::uint64_t CoordinatorState::known_version(ServerId server, std::uint64_t segment) const {
  const auto found = versions_.find(server);
  if (found == versions_.end()) return 0;
  const auto version = found->second.find(segment);
  return version == found->second.end() ? 0 : version->second;
}

ListedServer* CoordinatorState::listed(ServerId server) {
  const auto found = std::ranges::find(view_.servers, server, &ListedServer::id);
  return found == view_.servers.end() ? nullptr : &*found;
}

bool CoordinatorState::is_listed(ServerId server) const {
  return view_.is_up(server) || is_dead(server);
}

bool CoordinatorState::is_dead(ServerId server) const {
  return std::ranges::find(view_.servers, ListedServer{server, ServerState::kDead}) !=
         view_.servers.end();
}

bool CoordinatorState::is_newest(ServerId server) const {
  const auto newest = newest_lives_.find(server.node);
  return newest == newest_lives_.end() || server.life > newest->second;
}

bool CoordinatorState::has_tablets(ServerId server) const {
  return std::ranges::find(view_.tablets, server, &Tablet::owner) != view_.tablets.end();
}

bool CoordinatorState::has_room_for(std::size_t tablets) const {
  return view_.tablets.size() + tablets <= kMostOfAllTables;
}

/// What all commands count on.
bool CoordinatorState::is_sound() const {
  const auto is_table = [&](const auto& table) {
    return may_name_table(table.first) && table.second != 0 && table.second <= tables_.size();
  };
  const auto is_known = [&](const ListedServer& server) {
    const auto newest = newest_lives_.find(server.id.node);
    return newest != newest_lives_.end() && server.id.life <= newest->second;
  };
  return clients_end_ != 0 && std::ranges::all_of(tables_, is_table) &&
         std::ranges::all_of(view_.servers, is_known) &&
         std::ranges::all_of(versions_, [&](const auto& of) { return is_listed(of.first); }) &&
         std::ranges::all_of(cuts_, [&](const auto& of) { return is_dead(of.first); }) &&
         std::ranges::all_of(view_.tablets, [&](const Tablet& tablet) {
           return is_listed(tablet.owner) && tablet.range.table <= tables_.size();
         });
}

// ---- commands ----

bool CoordinatorState::enlist(ServerId server) {
  if (is_newest(server)) commit(change_of(Change::kEnlist, server));
  return view_.is_up(server);
}

bool CoordinatorState::apply_enlist(ByteReader& in) {
  const ServerId server = get_server(in);
  if (!in.done() || !is_newest(server)) return false;
  for (ListedServer& other : view_.servers) {
    if (other.id.node == server.node) other.state = ServerState::kDead;
  }
  const auto at = std::ranges::upper_bound(view_.servers, server, {}, &ListedServer::id);
  view_.servers.insert(at, {server, ServerState::kUp});
  newest_lives_[server.node] = server.life;
  ++view_.epoch;
  return true;
}

bool CoordinatorState::declare_dead(ServerId server) {
  if (!view_.is_up(server)) return false;
  commit(change_of(Change::kDeclareDead, server));
  return true;
}

bool CoordinatorState::apply_declare_dead(ByteReader& in) {
  const ServerId server = get_server(in);
  if (!in.done() || !view_.is_up(server)) return false;
  listed(server)->state = ServerState::kDead;
  ++view_.epoch;
  return true;
}

bool CoordinatorState::raise_version(ServerId server, std::uint64_t segment,
                                     std::uint64_t version) {
  if (!view_.is_up(server)) return false;
  if (version <= known_version(server, segment)) return true;
  Bytes change = change_of(Change::kRaiseVersion, server);
  ByteWriter out(change);
  out.put(segment);
  out.put(version);
  commit(change);
  return true;
}

bool CoordinatorState::apply_raise_version(ByteReader& in) {
  const ServerId server = get_server(in);
  const auto segment = in.get<std::uint64_t>();
  const auto version = in.get<std::uint64_t>();
  if (!in.done() || !view_.is_up(server) || version <= known_version(server, segment)) return false;
  versions_[server][segment] = version;
  return true;
}

std::uint64_t CoordinatorState::create_table(std::string_view name,
                                             const std::vector<ServerId>& owners) {
  if (const auto found = tables_.find(std::string(name)); found != tables_.end())
    return found->second;
  if (!may_name_table(name))
    throw Error(ErrorCode::kInvalidArgument,
                "tailwind: a table's name has " + std::to_string(name.size()) +
                    " bytes; choose one of 1 to " + std::to_string(kMostTableName));
  if (!may_count_tablets(owners.size()))
    throw Error(ErrorCode::kInvalidArgument, "tailwind: table " + in_quotes(name) + " would have " +
                                                 std::to_string(owners.size()) +
                                                 " tablets; choose 1 to " +
                                                 std::to_string(kMostTablets));
  if (!has_room_for(owners.size()))
    throw Error(ErrorCode::kInvalidArgument,
                "tailwind: with the " + std::to_string(owners.size()) + " tablets of table " +
                    in_quotes(name) + " there would be " +
                    std::to_string(view_.tablets.size() + owners.size()) +
                    "; all tables have at most " + std::to_string(kMostOfAllTables) +
                    " when one is made, so give it fewer owners or use the tables that are there");
  for (const ServerId owner : owners) {
    if (!view_.is_up(owner))
      throw Error(ErrorCode::kInvalidArgument, "tailwind: table " + in_quotes(name) +
                                                   " cannot have a tablet at " + to_string(owner) +
                                                   ", which is not up; choose another server");
  }
  Bytes change;
  ByteWriter out = begin_change(change, Change::kCreateTable);
  put_name(out, name);
  put_size(out, owners.size());
  for (const ServerId owner : owners) out.put(owner.number());
  commit(change);
  return tables_.size();
}

bool CoordinatorState::apply_create_table(ByteReader& in) {
  const std::string name = get_name(in);
  std::vector<ServerId> owners;
  get_list(in, [&] { owners.push_back(get_server(in)); });
  const bool is_possible =
      in.done() && may_name_table(name) && !tables_.contains(name) &&
      may_count_tablets(owners.size()) && has_room_for(owners.size()) &&
      std::ranges::all_of(owners, [&](ServerId owner) { return view_.is_up(owner); });
  if (!is_possible) return false;
  const std::uint64_t table = tables_.size() + 1;  // tables stay
  tables_[name] = table;
  const auto first = [&](std::size_t tablet) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(tablet) << 64) /
                                      owners.size());
  };
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const std::uint64_t last = i + 1 == owners.size() ? ~std::uint64_t{0} : first(i + 1) - 1;
    view_.tablets.push_back({{table, first(i), last}, owners[i], {}});
  }
  ++view_.epoch;
  return true;
}

const LogCut& CoordinatorState::record_cut(ServerId dead, const LogCut& cut) {
  if (!is_dead(dead))
    throw Error(ErrorCode::kInternal,
                "tailwind: " + to_string(dead) + " is not dead, so its log has no cut");
  if (!cuts_.contains(dead)) {
    Bytes change = change_of(Change::kRecordCut, dead);
    ByteWriter out(change);
    put_cut(out, cut);
    commit(change);
  }
  return cuts_.at(dead);
}

bool CoordinatorState::apply_record_cut(ByteReader& in) {
  const ServerId dead = get_server(in);
  LogCut cut = get_cut(in);
  return in.done() && is_dead(dead) && cuts_.try_emplace(dead, std::move(cut)).second;
}

bool CoordinatorState::move_tablets(ServerId dead, const std::vector<HashRange>& ranges,
                                    ServerId owner, Position since) {
  PYRDMA_ASSERT(has_word(since));
  if (view_.is_up(dead))
    throw Error(ErrorCode::kInternal,
                "tailwind: " + to_string(dead) + " is up, so its tablets stay");
  if (!view_.is_up(owner) || !has_some(view_, dead, ranges)) return false;
  Bytes change = change_of(Change::kMoveTablets, dead);
  ByteWriter out(change);
  out.put(owner.number());
  out.put(since.segment);
  out.put(since.end);
  put_size(out, ranges.size());
  for (const HashRange& range : ranges) {
    out.put(range.table);
    out.put(range.first);
    out.put(range.last);
  }
  commit(change);
  return true;
}

bool CoordinatorState::apply_move_tablets(ByteReader& in) {
  const ServerId dead = get_server(in), owner = get_server(in);
  Position since;
  since.segment = in.get<std::uint64_t>();
  since.end = in.get<std::uint32_t>();
  std::vector<HashRange> ranges;
  get_list(in, [&] {
    HashRange& range = ranges.emplace_back();
    range.table = in.get<std::uint64_t>();
    range.first = in.get<std::uint64_t>();
    range.last = in.get<std::uint64_t>();
  });
  if (!in.done() || !has_word(since) || !is_dead(dead) || !view_.is_up(owner) ||
      !has_some(view_, dead, ranges))
    return false;
  for (const HashRange& range : ranges)
    view_.tablets = moved(view_.tablets, dead, range, owner, since);
  ++view_.epoch;
  return true;
}

bool CoordinatorState::forget(ServerId dead) {
  if (!is_listed(dead)) return false;
  if (!is_dead(dead) || has_tablets(dead))
    throw Error(ErrorCode::kInternal, "tailwind: " + to_string(dead) + " is " +
                                          (is_dead(dead) ? "dead and still has tablets" : "up") +
                                          ", so it cannot be forgotten");
  commit(change_of(Change::kForget, dead));
  return true;
}

bool CoordinatorState::apply_forget(ByteReader& in) {
  const ServerId dead = get_server(in);
  if (!in.done() || !is_dead(dead) || has_tablets(dead)) return false;
  std::erase(view_.servers, ListedServer{dead, ServerState::kDead});
  versions_.erase(dead);
  cuts_.erase(dead);
  ++view_.epoch;
  return true;
}

std::uint64_t CoordinatorState::new_client() {
  if (next_client_ == clients_end_) {
    Bytes change;
    begin_change(change, Change::kReserveClients).put(clients_end_ + kClientBlock);
    commit(change);
  }
  return next_client_++;
}

bool CoordinatorState::apply_reserve_clients(ByteReader& in) {
  const auto end = in.get<std::uint64_t>();
  if (!in.done() || end <= clients_end_) return false;
  clients_end_ = end;
  return true;
}

}  // namespace pyrdma::tailwind
