#include "systems/tailwind/coordinator/state.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/quote.h"

namespace pyrdma::tailwind {

namespace {

// A record is a header and a change. The header has a checksum of its own, so damage to a change
// leaves its length known. Numbers of records go on from file to file.
constexpr std::uint32_t kRecordMagic = 0x43575450;  // "PTWC"
constexpr std::size_t kRecordHeader = 24;           // bytes

enum class Change : std::uint8_t {
  kSnapshot = 1,
  kEnlist,
  kDeclareDead,
  kRaiseVersion,
  kCreateTable,
  kRecordCut,
  kMoveTablets,
  kForget,
  kReserveClients,
};

struct Record {
  std::uint64_t number = 0;
  ByteView change;
  bool is_whole = false;  // else only the header is, and `change` is empty
  std::size_t size = 0;   // bytes, the header included
};

Bytes record_of(std::uint64_t number, const Bytes& change) {
  Bytes bytes;
  ByteWriter out(bytes);
  out.put(kRecordMagic);
  out.put(static_cast<std::uint32_t>(change.size()));
  out.put(number);
  out.put(crc32c(change));
  out.put(crc32c(bytes));
  out.put(ByteView(change));
  return bytes;
}

/// Returns the record at the begin of `bytes`, or nothing if no sound header is there.
std::optional<Record> read_record(ByteView bytes) {
  ByteReader in(bytes);
  const auto magic = in.get<std::uint32_t>();
  const auto change_bytes = in.get<std::uint32_t>();
  Record record;
  record.number = in.get<std::uint64_t>();
  const auto change_checksum = in.get<std::uint32_t>();
  const auto header_checksum = in.get<std::uint32_t>();
  if (!in.ok() || magic != kRecordMagic ||
      header_checksum != crc32c(bytes.first(kRecordHeader - sizeof header_checksum)))
    return std::nullopt;
  record.size = kRecordHeader + change_bytes;
  const ByteView change = in.bytes(change_bytes);
  record.is_whole = in.ok() && crc32c(change) == change_checksum;
  if (record.is_whole) record.change = change;
  return record;
}

/// Whether a crash amid the write of record `number` can have left `tail`, the end of a file. The
/// record is the last one: the one behind it would be written only when this one is durable.
bool may_be_torn(ByteView tail, std::uint64_t number) {
  const auto first = read_record(tail);
  if (first && (first->is_whole || first->number != number || first->size < tail.size()))
    return false;
  for (std::size_t at = 1; at + kRecordHeader <= tail.size(); ++at) {
    std::uint32_t magic = 0;
    std::memcpy(&magic, tail.data() + at, sizeof magic);
    if (magic != kRecordMagic) continue;
    const auto record = read_record(tail.subspan(at));
    if (record && record->is_whole && record->number > number) return false;
  }
  return true;
}

// The fields of changes.

ByteWriter begin_change(Bytes& bytes, Change change) {
  ByteWriter out(bytes);
  out.put(static_cast<std::uint8_t>(change));
  return out;
}

Bytes change_of(Change change, ServerId server) {
  Bytes bytes;
  begin_change(bytes, change).put(server.number());
  return bytes;
}

ServerId get_server(ByteReader& in) { return ServerId::of(in.get<std::uint64_t>()); }

void put_size(ByteWriter& out, std::size_t size) { out.put(static_cast<std::uint32_t>(size)); }

/// Calls take() for each element of a list, until no byte is left.
template <class Take>
void get_list(ByteReader& in, Take&& take) {
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) take();
}

void put_name(ByteWriter& out, std::string_view name) {
  put_size(out, name.size());
  out.put(std::as_bytes(std::span(name)));
}

std::string get_name(ByteReader& in) {
  const ByteView bytes = in.bytes(in.get<std::uint32_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void put_cut(ByteWriter& out, const LogCut& cut) {
  put_size(out, cut.size());
  for (const SegmentCut& segment : cut) {
    out.put(segment.segment);
    out.put(segment.valid);
  }
}

LogCut get_cut(ByteReader& in) {
  LogCut cut;
  get_list(in, [&] {
    const auto segment = in.get<std::uint64_t>();
    cut.push_back({segment, in.get<std::uint32_t>()});
  });
  return cut;
}

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
  return position.segment < std::uint64_t{1} << 40 && position.end < 1U << 24;
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

CoordinatorState::CoordinatorState(Storage& storage, std::string name)
    : storage_(storage), name_(std::move(name)) {
  if (storage_.exists(name_)) load();
  rewrite();
}

// ---- the file ----

void CoordinatorState::load() {
  const auto file = storage_.open(name_);
  Bytes bytes(file->size());
  bytes.resize(file->read(0, bytes));
  const auto damaged = [&](std::size_t at) {
    return Error(ErrorCode::kUnavailable,
                 "tailwind: the coordinator's file " + in_quotes(name_) + " is damaged at offset " +
                     std::to_string(at) + " of " + std::to_string(bytes.size()) +
                     "; restore it from a copy, or begin a cluster under another name");
  };
  for (std::size_t at = 0; at < bytes.size() || at == 0;) {
    const ByteView rest = ByteView(bytes).subspan(at);
    const auto record = read_record(rest);
    const bool is_next = record && record->is_whole && !record->change.empty() &&
                         (at == 0 || record->number == records_);
    if (!is_next) {
      // The file had its snapshot before it got its name.
      if (at == 0 || !may_be_torn(rest, records_)) throw damaged(at);
      break;
    }
    const bool is_snapshot = static_cast<Change>(record->change[0]) == Change::kSnapshot;
    if (is_snapshot != (at == 0) || !apply(record->change)) throw damaged(at);
    records_ = record->number + 1;
    at += record->size;
  }
  next_client_ = clients_end_;  // numbers below may be in use
}

void CoordinatorState::rewrite() {
  const std::string name = name_ + ".new";
  if (storage_.exists(name)) storage_.remove(name);  // a crash has left it
  auto file = storage_.open(name);
  const Bytes record = record_of(records_, snapshot());
  file->write(0, record);
  file->sync();
  storage_.rename(name, name_);
  storage_.sync();
  file_ = std::move(file);
  ++records_;
  end_ = snapshot_bytes_ = record.size();
}

void CoordinatorState::commit(const Bytes& change) {
  if (is_broken_)
    throw Error(ErrorCode::kUnavailable, "tailwind: the disk has failed under the file " +
                                             in_quotes(name_) + "; restart the coordinator");
  is_broken_ = true;
  if (end_ > std::max(kLeastRewrite, 4 * snapshot_bytes_)) rewrite();
  const Bytes record = record_of(records_, change);
  file_->write(end_, record);
  file_->sync();
  end_ += record.size();
  ++records_;
  is_broken_ = false;
  const bool is_applied = apply(change);
  PYRDMA_ASSERT(is_applied);
}

bool CoordinatorState::apply(ByteView change) {
  ByteReader in(change);
  switch (static_cast<Change>(in.get<std::uint8_t>())) {
    case Change::kSnapshot:
      return apply_snapshot(in);
    case Change::kEnlist:
      return apply_enlist(in);
    case Change::kDeclareDead:
      return apply_declare_dead(in);
    case Change::kRaiseVersion:
      return apply_raise_version(in);
    case Change::kCreateTable:
      return apply_create_table(in);
    case Change::kRecordCut:
      return apply_record_cut(in);
    case Change::kMoveTablets:
      return apply_move_tablets(in);
    case Change::kForget:
      return apply_forget(in);
    case Change::kReserveClients:
      return apply_reserve_clients(in);
  }
  return false;
}

Bytes CoordinatorState::snapshot() const {
  Bytes bytes;
  ByteWriter out = begin_change(bytes, Change::kSnapshot);
  out.put(clients_end_);
  put_size(out, newest_lives_.size());
  for (const auto& [node, life] : newest_lives_) out.put(ServerId{node, life}.number());
  put_size(out, versions_.size());
  for (const auto& [server, versions] : versions_) {
    out.put(server.number());
    put_size(out, versions.size());
    for (const auto& [segment, version] : versions) {
      out.put(segment);
      out.put(version);
    }
  }
  put_size(out, cuts_.size());
  for (const auto& [server, cut] : cuts_) {
    out.put(server.number());
    put_cut(out, cut);
  }
  put_size(out, tables_.size());
  for (const auto& [name, table] : tables_) {
    put_name(out, name);
    out.put(table);
  }
  view_.put(out);
  return bytes;
}

bool CoordinatorState::apply_snapshot(ByteReader& in) {
  clients_end_ = in.get<std::uint64_t>();
  get_list(in, [&] {
    const ServerId server = get_server(in);
    newest_lives_[server.node] = server.life;
  });
  get_list(in, [&] {
    KnownVersions& versions = versions_[get_server(in)];
    get_list(in, [&] {
      const auto segment = in.get<std::uint64_t>();
      versions[segment] = in.get<std::uint64_t>();
    });
  });
  get_list(in, [&] {
    const ServerId server = get_server(in);
    cuts_[server] = get_cut(in);
  });
  get_list(in, [&] {
    const std::string name = get_name(in);
    tables_[name] = in.get<std::uint64_t>();
  });
  auto view = ClusterView::get(in);
  if (!view) return false;
  view_ = std::move(*view);
  return is_sound();
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
      may_count_tablets(owners.size()) &&
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
