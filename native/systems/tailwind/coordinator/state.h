// What the coordinator must not forget: the servers and tablets of the cluster, and what a recovery
// of a dead server needs (Tailwind, sections 3.4.1 and 3.4.3). It lies in one file. It has no clock
// and no network. One thread at a time may use it.
//
// The file begins with a snapshot of the state; one record follows for each change. A command
// checks the state, makes its record durable, and then changes the state. A change either happened
// or did not when the process or the host dies amid a command. A torn record at the end of the file
// is cut off; nobody has seen its change. The file is written anew when the state is loaded, and
// when it is large.
//
// A flipped bit in the last record looks like a torn write, so that record is cut off, too. Damage
// elsewhere is refused.
//
// Errors: a command passes on the Error of the storage. Whether its change will be there after a
// restart is then unknown, and all further commands throw Error(kUnavailable). When no epochs are
// left, commands throw Error(kExhausted).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "env/storage.h"
#include "systems/tailwind/recovery/find_log.h"
#include "systems/tailwind/rpc/messages.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

/// The bytes of a segment that count in a recovery.
struct SegmentCut {
  std::uint64_t segment = 0;
  std::uint32_t valid = 0;
  bool operator==(const SegmentCut&) const = default;
};
/// Where a recovery found the ends of a dead server's segments. Each attempt must use the same
/// ones: an entry beyond them has been lost for readers.
using LogCut = std::vector<SegmentCut>;

class CoordinatorState {
 public:
  static constexpr std::size_t kMostTableName = 255;  // bytes
  static constexpr std::size_t kMostTablets = 4096;   // of a new table
  /// With those of a new table. Recoveries split tablets, so a view may have more; it goes as one
  /// message, in which there is room for three times as many.
  static constexpr std::size_t kMostOfAllTables = 1U << 17;

  /// Loads the state from the file `name`; if there is none, begins without servers. Throws
  /// Error(kUnavailable), which names file and offset, if the file is damaged in a way that a crash
  /// cannot cause. Blocks for the disk. `storage` outlives the state.
  /// `first_epoch`: of the view without servers.
  CoordinatorState(Storage& storage, std::string name, std::uint64_t first_epoch = 0);

  const ClusterView& view() const { return view_; }
  /// The versions of the server's segments that are not 0.
  KnownVersions versions(ServerId server) const;
  /// The cut of a dead server's recovery, or null if there is none yet.
  const LogCut* cut(ServerId dead) const;
  /// The numbers of tables by their names.
  const std::map<std::string, std::uint64_t>& tables() const { return tables_; }

  // The commands. Each blocks for a write and a sync of the disk, unless it changes nothing.

  /// A server is there. An earlier life of its node that is up becomes dead. Returns whether this
  /// one is up: a life that is not newer than all others of its node is refused.
  bool enlist(ServerId server);
  /// Returns false if the server is not up: nothing has changed.
  bool declare_dead(ServerId server);
  /// Open replicas of the segment with a lower version do not count any more. Returns false if the
  /// server is not up: its log is being recovered, and nothing has changed. A version that is not
  /// higher than the known one changes nothing.
  bool raise_version(ServerId server, std::uint64_t segment, std::uint64_t version);
  /// Returns the number of the table, from 1 on. A new one gets a tablet for each of `owners`, in
  /// this order, of equal parts of the hashes. Throws Error(kInvalidArgument) for a new name of 0
  /// or more than kMostTableName bytes, no owners, more than kMostTablets, more than
  /// kMostOfAllTables with those of the other tables, or an owner that is not up: nothing has
  /// changed.
  std::uint64_t create_table(std::string_view name, const std::vector<ServerId>& owners);
  /// Keeps the cut of a recovery, if it is the first one of this server. Returns the one that
  /// counts; it is valid until forget(). Throws Error(kInternal) if the server is not dead.
  const LogCut& record_cut(ServerId dead, const LogCut& cut);
  /// What the dead server has of `ranges` is now of `owner`, whose log has it from `since` on.
  /// Returns false, and changes nothing, if `owner` is not up or the dead server has nothing of
  /// them. Costs the product of the numbers of ranges and tablets. Throws Error(kInternal) if
  /// `dead` is up.
  bool move_tablets(ServerId dead, const std::vector<HashRange>& ranges, ServerId owner,
                    Position since);
  /// A dead server without tablets leaves the list. Its lives stay refused. Returns false if it is
  /// not in the list. Throws Error(kInternal) if it is up or has tablets.
  bool forget(ServerId dead);
  /// Returns the number of a client, from 1 on, that no other has had. One call in kClientBlock
  /// blocks for the disk; a restart leaves out what its block had left.
  std::uint64_t new_client();

 private:
  static constexpr std::uint64_t kClientBlock = 1000;
  static constexpr std::uint64_t kLeastRewrite = 1U << 20;  // bytes of the file

  void load();
  void rewrite();
  void commit(const Bytes& change);
  /// Each returns false for a change that no command makes in this state.
  bool apply(ByteView change);
  bool apply_snapshot(ByteReader& in);
  bool apply_enlist(ByteReader& in);
  bool apply_declare_dead(ByteReader& in);
  bool apply_raise_version(ByteReader& in);
  bool apply_create_table(ByteReader& in);
  bool apply_record_cut(ByteReader& in);
  bool apply_move_tablets(ByteReader& in);
  bool apply_forget(ByteReader& in);
  bool apply_reserve_clients(ByteReader& in);
  Bytes snapshot() const;
  bool is_sound() const;

  std::uint64_t known_version(ServerId server, std::uint64_t segment) const;
  ListedServer* listed(ServerId server);
  bool is_listed(ServerId server) const;
  bool is_dead(ServerId server) const;
  bool is_newest(ServerId server) const;
  bool has_tablets(ServerId server) const;
  bool has_room_for(std::size_t tablets) const;

  Storage& storage_;
  const std::string name_;
  std::unique_ptr<File> file_;
  std::uint64_t end_ = 0;             // of the file
  std::uint64_t snapshot_bytes_ = 0;  // at its begin
  std::uint64_t records_ = 0;         // so far, over all files
  bool is_broken_ = false;            // the storage has failed

  ClusterView view_;  // servers ascend
  std::map<NodeId, std::uint32_t> newest_lives_;
  std::map<ServerId, KnownVersions> versions_;  // of listed servers
  std::map<ServerId, LogCut> cuts_;             // of dead ones
  std::map<std::string, std::uint64_t> tables_;
  std::uint64_t next_client_ = 1;
  std::uint64_t clients_end_ = 1;  // numbers below are reserved
};

}  // namespace pyrdma::tailwind
