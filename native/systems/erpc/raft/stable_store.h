// StableStore keeps what a member must not forget: its term and vote, its log, its snapshot.
//
// On disk there are two files. `raft.<node>.state` holds two slots, in sectors of their own, which
// take turns; a slot holds the term, the vote, the number of the log file and how much of that is
// durable, with a checksum, so that a crash leaves one of them. `raft.<node>.log.<number>` is a
// SectorLog of records: at most one snapshot (the first), entries, and truncations. A snapshot
// begins a new file, which replaces the old one when it is durable.
//
// What load() returns is durable, and is all that was acknowledged. A file that does not show that
// is refused (sector_log.h).
//
// In memory (Durability::kMemory) nothing is written; only the positions and the snapshot are kept.
// The paper's replicas are of this kind (section 7.1).
//
// Errors: every function passes on the Error of the storage. What was written is then unknown, and
// the store must not be used any more.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/storage.h"
#include "systems/erpc/raft/bugs.h"
#include "systems/erpc/raft/member_options.h"
#include "systems/erpc/raft/observer.h"
#include "systems/erpc/raft/sector_log.h"
#include "systems/erpc/raft/wire.h"

namespace pyrdma::erpc::raft {

struct StoredSnapshot {
  std::uint64_t index = 0, term = 0, servers_index = 0;
  Servers servers;
  Bytes data;
};

struct StoredEntry {
  std::uint64_t term = 0;
  EntryType type = EntryType::kCommand;
  Bytes payload;
};

class StableStore {
 public:
  StableStore(Env& env, Durability durability, Bugs bugs);

  /// Deletes the files, before load(). The node begins as a new member then.
  void remove_files();
  /// Loads what the last run left. Throws Error(kUnavailable) if the files are damaged in a way
  /// that a crash cannot cause.
  void load();
  /// Returns whether nothing has been stored but, perhaps, the term of a new group.
  bool fresh() const { return term_ <= 1 && vote_ == 0 && log_.empty() && snapshot_ == nullptr; }
  std::uint64_t term() const { return term_; }
  std::uint64_t vote() const { return vote_; }
  const std::shared_ptr<const StoredSnapshot>& snapshot() const { return snapshot_; }
  std::uint64_t first_index() const { return first_; }
  std::uint64_t last_index() const { return first_ + log_.size() - 1; }
  /// Returns the term of an entry, 0 if it is not in the log.
  std::uint64_t term_at(std::uint64_t index) const;
  /// Reads an entry of the log from the disk. Requires Durability::kDisk.
  StoredEntry read(std::uint64_t index) const;
  /// Returns the marks of the log for an observer.
  std::vector<EntryMark> marks() const;
  static std::uint64_t digest_of(EntryType type, ByteView payload);

  /// Durable on return.
  void write_state(std::uint64_t term, std::uint64_t vote);
  // Durable after sync().
  void append(const EntryView& entry);
  void truncate(std::uint64_t from);
  void sync();
  /// The snapshot replaces the entries up to `snapshot.index - trailing`, or the whole log if
  /// `trailing` is 0. Durable on return.
  void put_snapshot(StoredSnapshot snapshot, std::uint64_t trailing);

 private:
  struct Position {
    std::uint64_t term = 0, offset = 0;  // the offset is that of the payload, in the stream
    std::uint32_t size = 0;
    EntryType type = EntryType::kCommand;
  };
  bool on_disk() const { return durability_ == Durability::kDisk; }
  std::string state_name() const;
  std::string log_name(std::uint64_t number) const;
  static void record(Bytes& out, std::uint8_t type, std::uint64_t index, std::uint64_t term,
                     ByteView payload);
  void write_slot(std::uint64_t term, std::uint64_t vote);
  void put_slot();
  std::uint64_t load_state();
  [[noreturn]] void refuse_state(const std::string& what) const;
  void load_log(std::uint64_t durable);
  bool take_record(std::uint8_t type, std::uint64_t index, std::uint64_t term, ByteView payload,
                   std::uint64_t offset);
  void cut(std::uint64_t from);

  Env& env_;
  Durability durability_;
  Bugs bugs_;
  std::uint64_t term_ = 0, vote_ = 0;
  std::uint64_t written_term_ = 0, written_vote_ = 0;
  std::uint64_t slots_written_ = 0;  // the count in the newest slot
  std::uint64_t log_number_ = 0;
  std::unique_ptr<File> state_file_;
  std::unique_ptr<SectorLog> log_file_;
  std::uint64_t first_ = 1;
  std::deque<Position> log_;  // [i] is entry first_ + i
  std::shared_ptr<const StoredSnapshot> snapshot_;
  Bytes buffer_;  // records that are not yet written
};

}  // namespace pyrdma::erpc::raft
