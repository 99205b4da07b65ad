// The coordinator's file: its records, how it is loaded, and how it is written anew.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/quote.h"
#include "systems/tailwind/coordinator/changes.h"
#include "systems/tailwind/coordinator/state.h"

namespace pyrdma::tailwind {

namespace {

// A record is a header and a change. The header has a checksum of its own, so damage to a change
// leaves its length known. Numbers of records go on from file to file.
constexpr std::uint32_t kRecordMagic = 0x43575450;  // "PTWC"
constexpr std::size_t kRecordHeader = 24;           // bytes

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

}  // namespace

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
  if (view_.epoch + 1 >= ClusterView::kEpochs)
    throw Error(ErrorCode::kExhausted,
                "tailwind: the view has changed " + std::to_string(view_.epoch) +
                    " times, and its epoch has 24 bits; copy the objects to a new store");
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

}  // namespace pyrdma::tailwind
