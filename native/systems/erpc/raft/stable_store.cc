#include "systems/erpc/raft/stable_store.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "base/rng.h"
#include "systems/erpc/raft/member.h"

namespace pyrdma::erpc::raft {

namespace {

constexpr std::uint64_t kSlotDistance = 4096;  // a torn write of one slot leaves the other
constexpr std::size_t kSlotBytes = 48;
constexpr std::uint32_t kRecordMagic = 0x43525250;  // "PRRC"
constexpr std::uint64_t kStateMagic = 0x54535250;   // "PRST"
constexpr std::size_t kRecordHeader = 32;
constexpr std::uint8_t kTruncation = 4, kSnapshotRecord = 5;

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

Bytes snapshot_payload(const StoredSnapshot& snapshot) {
  Bytes payload;
  ByteWriter out(payload);
  out.put(snapshot.servers_index);
  out.put(static_cast<std::uint64_t>(snapshot.servers.size()));
  for (const Server& server : snapshot.servers) {
    out.put(server.id);
    out.put(static_cast<std::uint8_t>(server.role));
  }
  out.put(ByteView(snapshot.data));
  return payload;
}

std::optional<StoredSnapshot> snapshot_of(std::uint64_t index, std::uint64_t term,
                                          ByteView payload) {
  ByteReader in(payload);
  StoredSnapshot snapshot;
  snapshot.index = index;
  snapshot.term = term;
  snapshot.servers_index = in.get<std::uint64_t>();
  const auto count = in.get<std::uint64_t>();
  if (count < 1 || count > kMaxServers) return std::nullopt;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto id = in.get<std::uint64_t>();
    const auto role = in.get<std::uint8_t>();
    if (id == 0 || role > static_cast<std::uint8_t>(Role::kSpare)) return std::nullopt;
    snapshot.servers.push_back({id, static_cast<Role>(role)});
  }
  const ByteView data = in.bytes(in.left());
  if (!in.ok() || data.empty()) return std::nullopt;
  snapshot.data.assign(data.begin(), data.end());
  return snapshot;
}

}  // namespace

void remove_store(Env& env) { StableStore(env, Durability::kDisk, {}).remove_files(); }

StableStore::StableStore(Env& env, Durability durability, Bugs bugs)
    : env_(env), durability_(durability), bugs_(bugs) {}

// A new member begins with log 0. Each further log replaces a file of its name.
void StableStore::remove_files() {
  Storage& storage = env_.storage();
  storage.remove(log_name(0));
  storage.remove(state_name());
  storage.sync();
}

std::string StableStore::state_name() const {
  return "raft." + std::to_string(env_.node()) + ".state";
}

std::string StableStore::log_name(std::uint64_t number) const {
  return "raft." + std::to_string(env_.node()) + ".log." + std::to_string(number);
}

std::uint64_t StableStore::digest_of(EntryType type, ByteView payload) {
  return checksum(payload, static_cast<std::uint64_t>(type));
}

std::uint64_t StableStore::term_at(std::uint64_t index) const {
  if (index < first_ || index > last_index()) return 0;
  return log_[index - first_].term;
}

StoredEntry StableStore::read(std::uint64_t index) const {
  const Position& at = log_.at(index - first_);
  return {at.term, at.type, log_file_->read(at.offset, at.size)};
}

std::vector<EntryMark> StableStore::marks() const {
  std::vector<EntryMark> marks;
  for (std::uint64_t i = first_; i <= last_index(); ++i) {
    const StoredEntry entry = read(i);
    marks.push_back({i, entry.term, digest_of(entry.type, entry.payload)});
  }
  return marks;
}

void StableStore::load() {
  if (!on_disk()) return;
  const std::uint64_t durable = load_state();
  load_log(durable);
  // The term is durable before the first entry is appended.
  if (slots_written_ == 0 && log_file_->sectors() != 0)
    refuse_state("no slot is there, and the log has entries");
  // After a failed sync the newest slot may be in the memory of the system alone.
  if (slots_written_ != 0 && bugs_.writes_again()) put_slot();
  // A crash may have left the old log. It goes only now: until here an older slot may name it.
  if (log_number_ == 0 || !env_.storage().exists(log_name(log_number_ - 1))) return;
  env_.storage().remove(log_name(log_number_ - 1));
  env_.storage().sync();
}

void StableStore::refuse_state(const std::string& what) const {
  throw Error(ErrorCode::kUnavailable, "raft: " + state_name() + ": " + what + kStoreRemedy);
}

// A slot lies in one sector. So a crash leaves its old content or its new one, and zeros before the
// first. Slots take turns, so their counts are neighbours. A slot that is anything else is damaged,
// and it may have been the newer one. Returns the durable sectors of the log.
std::uint64_t StableStore::load_state() {
  state_file_ = env_.storage().open(state_name());
  std::uint64_t counts[2] = {}, durable = 0;
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    const std::uint64_t at = slot * kSlotDistance;
    Bytes fields(kSlotBytes);
    try {
      state_file_->read(at, fields);
    } catch (const Error& error) {
      refuse_state(error.what());
    }
    ByteReader in(fields);
    const auto count = in.get<std::uint64_t>();
    const auto term = in.get<std::uint64_t>();
    const auto vote = in.get<std::uint64_t>();
    const auto log_number = in.get<std::uint64_t>();
    const auto sectors = in.get<std::uint64_t>();
    const auto sum = in.get<std::uint64_t>();
    if (is_zeros(fields)) continue;
    if (sum != checksum(ByteView(fields).first(kSlotBytes - sizeof sum), kStateMagic) ||
        count % 2 != slot) {
      if (bugs_.takes_older_slot()) continue;
      refuse_state("the slot at byte " + std::to_string(at) + " is damaged");
    }
    counts[slot] = count;
    if (count <= slots_written_) continue;
    slots_written_ = count;
    term_ = written_term_ = term;
    vote_ = written_vote_ = vote;
    log_number_ = log_number;
    durable = sectors;
  }
  const std::uint64_t older = std::min(counts[0], counts[1]);
  if (older + 1 < slots_written_ && !bugs_.takes_older_slot())
    refuse_state("slot " + std::to_string(slots_written_) + " is there, and slot " +
                 std::to_string(slots_written_ - 1) + " is not");
  return durable;
}

void StableStore::write_slot(std::uint64_t term, std::uint64_t vote) {
  ++slots_written_;
  written_term_ = term;
  written_vote_ = vote;
  put_slot();
}

void StableStore::put_slot() {
  Bytes slot;
  ByteWriter out(slot);
  out.put(slots_written_);
  out.put(written_term_);
  out.put(written_vote_);
  out.put(log_number_);
  out.put(log_file_->sectors());
  out.put(checksum(slot, kStateMagic));
  state_file_->write(slots_written_ % 2 * kSlotDistance, slot);
  state_file_->sync();
}

void StableStore::write_state(std::uint64_t term, std::uint64_t vote) {
  term_ = term;
  vote_ = vote;
  if (!on_disk()) return;
  if (bugs_.writes_vote_first()) write_slot(written_term_, vote);
  write_slot(bugs_.term_to_write(term, written_term_), bugs_.vote_to_write(vote));
}

void StableStore::record(Bytes& out, std::uint8_t type, std::uint64_t index, std::uint64_t term,
                         ByteView payload) {
  ByteWriter fields(out);
  fields.put(kRecordMagic);
  fields.put(static_cast<std::uint32_t>(type));
  fields.put(index);
  fields.put(term);
  fields.put(static_cast<std::uint64_t>(payload.size()));
  fields.put(payload);
  fields.align();
}

void StableStore::append(const EntryView& entry) {
  const std::uint64_t offset = (on_disk() ? log_file_->end() : 0) + buffer_.size() + kRecordHeader;
  log_.push_back(
      {entry.term, offset, static_cast<std::uint32_t>(entry.payload.size()), entry.type});
  if (on_disk())
    record(buffer_, static_cast<std::uint8_t>(entry.type), last_index(), entry.term, entry.payload);
}

void StableStore::cut(std::uint64_t from) {
  if (from <= last_index()) log_.resize(from > first_ ? from - first_ : 0);
}

void StableStore::truncate(std::uint64_t from) {
  cut(from);
  if (on_disk() && bugs_.writes_truncation()) record(buffer_, kTruncation, from, 0, {});
}

void StableStore::sync() {
  if (!on_disk() || buffer_.empty()) return;
  log_file_->append(buffer_);
  buffer_.clear();
}

void StableStore::put_snapshot(StoredSnapshot snapshot, std::uint64_t trailing) {
  sync();
  const std::uint64_t last = last_index();
  std::uint64_t first = snapshot.index + 1;
  if (trailing != 0) {
    first = snapshot.index > trailing ? snapshot.index - trailing + 1 : 1;
    first = std::min(std::max(first, first_), last + 1);
  }
  std::deque<Position> log;
  if (on_disk()) {
    const std::uint64_t before = log_number_++;
    Bytes records;
    record(records, kSnapshotRecord, snapshot.index, snapshot.term, snapshot_payload(snapshot));
    for (std::uint64_t i = first; trailing != 0 && i <= last; ++i) {
      const StoredEntry entry = read(i);
      log.push_back({entry.term, records.size() + kRecordHeader,
                     static_cast<std::uint32_t>(entry.payload.size()), entry.type});
      record(records, static_cast<std::uint8_t>(entry.type), i, entry.term, entry.payload);
    }
    Storage& storage = env_.storage();
    storage.remove(log_name(log_number_));  // a crash may have left it
    auto file = std::make_unique<SectorLog>(storage, log_name(log_number_), log_number_, bugs_);
    file->append(records, bugs_.syncs_snapshot_first());
    storage.sync();
    log_file_ = std::move(file);
    write_slot(written_term_, written_vote_);
    storage.remove(log_name(before));
    storage.sync();
  } else if (trailing != 0) {
    log.assign(log_.begin() + static_cast<std::ptrdiff_t>(first - first_), log_.end());
  }
  log_ = std::move(log);
  first_ = first;
  snapshot_ = std::make_shared<const StoredSnapshot>(std::move(snapshot));
}

bool StableStore::take_record(std::uint8_t type, std::uint64_t index, std::uint64_t term,
                              ByteView payload, std::uint64_t offset) {
  if (type == kSnapshotRecord) {
    auto snapshot = snapshot_of(index, term, payload);
    if (!snapshot || offset != kRecordHeader) return false;
    first_ = index + 1;
    snapshot_ = std::make_shared<const StoredSnapshot>(std::move(*snapshot));
    return true;
  }
  if (type == kTruncation) {
    cut(index);
    return true;
  }
  if (type < 1 || type > 3 || payload.size() > kMaxPayload) return false;
  // The entries behind a snapshot may begin before its end.
  if (log_.empty() && snapshot_ != nullptr && index <= snapshot_->index) first_ = index;
  if (index != last_index() + 1) return false;
  log_.push_back(
      {term, offset, static_cast<std::uint32_t>(payload.size()), static_cast<EntryType>(type)});
  return true;
}

void StableStore::load_log(std::uint64_t durable) {
  Storage& storage = env_.storage();
  log_file_ = std::make_unique<SectorLog>(storage, log_name(log_number_), log_number_, bugs_);
  storage.sync();  // of both files' names
  const Bytes bytes = log_file_->load(durable);
  if (log_file_->was_torn()) env_.reached("erpc/raft/torn_log");
  std::size_t at = 0;
  while (at < bytes.size()) {
    ByteReader in(ByteView(bytes).subspan(at));
    const auto magic = in.get<std::uint32_t>();
    if (magic == 0) {  // behind the end of a batch
      at = (at / SectorLog::kRoom + 1) * SectorLog::kRoom;
      continue;
    }
    const auto type = in.get<std::uint32_t>();
    const auto index = in.get<std::uint64_t>();
    const auto term = in.get<std::uint64_t>();
    const auto size = in.get<std::uint64_t>();
    const ByteView payload = in.bytes(std::min<std::uint64_t>(size, in.left()));
    if (magic != kRecordMagic || payload.size() != size || !in.ok() || index == 0 ||
        index > kMaxNumber || type > kSnapshotRecord ||
        !take_record(static_cast<std::uint8_t>(type), index, term, payload, at + kRecordHeader))
      throw Error(ErrorCode::kUnavailable, "raft: in " + log_name(log_number_) +
                                               ", the record of entry " + std::to_string(index) +
                                               " cannot follow entry " +
                                               std::to_string(last_index()) + kStoreRemedy);
    at += kRecordHeader + padded(size);
  }
  if (log_number_ > 0 && snapshot_ == nullptr)
    throw Error(ErrorCode::kUnavailable, "raft: " + log_name(log_number_) +
                                             " does not begin with its snapshot" + kStoreRemedy);
}

}  // namespace pyrdma::erpc::raft
