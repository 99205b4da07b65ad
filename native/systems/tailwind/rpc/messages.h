// The contents of requests and answers. put() appends a message to bytes; get() reads it, and
// checks counts and lengths against what is there. Whoever takes a message checks its values.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "fabric/types.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

/// The end of an entry in the log of a primary: the segment's number, and the bytes up to there.
/// Grows with each append to the head.
struct Position {
  std::uint64_t segment = 0;
  std::uint32_t end = 0;
  auto operator<=>(const Position&) const = default;
  /// The numbers of a log's segments are lower.
  static constexpr std::uint64_t kSegments = std::uint64_t{1} << 40;
  /// One word with the same order, for atomics. Segments have at most 16 MiB.
  std::uint64_t word() const { return segment << 24 | end; }
};

/// Keys of a table whose hashes are in a range, both ends included.
struct HashRange {
  std::uint64_t table = 0, first = 0, last = ~std::uint64_t{0};
  bool has(std::uint64_t of_table, std::uint64_t hash) const {
    return of_table == table && hash >= first && hash <= last;
  }
  bool operator==(const HashRange&) const = default;
};
struct Tablet {
  HashRange range;
  ServerId owner;
  /// What the owner's log has before is of another time, and not of this tablet.
  Position since;
  bool operator==(const Tablet&) const = default;
};
enum class ServerState : std::uint8_t { kUp, kDead };
struct ListedServer {
  ServerId id;
  ServerState state = ServerState::kUp;
  bool operator==(const ListedServer&) const = default;
};
/// What the coordinator tells all servers and clients.
struct ClusterView {
  /// Epochs are lower: a version has 24 bits for the epoch of its server, and 40 beside them.
  static constexpr std::uint64_t kEpochs = std::uint64_t{1} << 24;
  static constexpr int kVersionBits = 40;
  std::uint64_t epoch = 0;  // grows with each change
  std::vector<ListedServer> servers;
  std::vector<Tablet> tablets;
  const Tablet* find(std::uint64_t table, std::uint64_t hash) const;
  bool is_up(ServerId id) const;

  void put(ByteWriter& out) const;
  static std::optional<ClusterView> get(ByteReader& in);
};

/// The servers that `before` lists and `now`, a later view, does not: they have died, and their
/// logs have been recovered.
std::vector<ServerId> gone(const ClusterView& before, const ClusterView& now);

/// Identifies an update, so that one that is sent again happens once. client 0: it may happen
/// again.
struct UpdateId {
  std::uint64_t client = 0, sequence = 0;
  std::uint64_t acked = 0;  // the client knows the results of all updates before this one
};

// ---- to backups ----

enum class BackupStatus : std::uint8_t {
  kOk,
  kNoBuffer,     // no buffer is free, or the disk could not take another one on battery power
  kUnknown,      // there is no such replica, or it is another attempt's
  kOutOfBounds,  // an offset or length beyond the replica
  kRefused,      // the primary is dead
};
/// Names a replica at a backup. A primary counts its attempts to open replicas; what belongs to an
/// earlier one has no effect.
struct ReplicaName {
  std::uint64_t segment = 0;
  std::uint64_t attempt = 0;
  void put(ByteWriter& out) const;
  static std::optional<ReplicaName> get(ByteReader& in);
};
struct OpenRequest {
  ReplicaName name;
  std::uint64_t version = 0;
  bool is_copy = false;            // it does not count before a new version or its close
  bool is_written_by_cpu = false;  // by kBackupWrite, not by the NIC
  ByteView data;                   // the first bytes
  void put(ByteWriter& out) const;
  static std::optional<OpenRequest> get(ByteReader& in);
};
struct OpenAnswer {
  BackupStatus status = BackupStatus::kRefused;
  fabric::RemoteRegion buffer;  // for the primary's writes
  void put(ByteWriter& out) const;
  static std::optional<OpenAnswer> get(ByteReader& in);
};
struct BackupWriteRequest {
  ReplicaName name;
  std::uint32_t offset = 0;
  ByteView data;
  void put(ByteWriter& out) const;
  static std::optional<BackupWriteRequest> get(ByteReader& in);
};
struct SetVersionRequest {
  ReplicaName name;
  std::uint64_t version = 0;
  void put(ByteWriter& out) const;
  static std::optional<SetVersionRequest> get(ByteReader& in);
};
/// The metadata of section 3.3.2: the log is the sender's.
struct CloseRequest {
  ReplicaName name;
  std::uint32_t end = 0;       // bytes of the replica
  std::uint32_t checksum = 0;  // the last one
  std::uint32_t entries = 0;
  void put(ByteWriter& out) const;
  static std::optional<CloseRequest> get(ByteReader& in);
};

// ---- recovery ----

/// A backup's answer to kStartReading. The digest is that of an open replica or of the newest
/// closed one: those of older segments are of no use.
struct HeldReplica {
  std::uint64_t segment = 0, version = 0;
  bool is_closed = false, is_copy = false;
  std::uint32_t valid = 0, entries = 0;
  std::optional<std::vector<std::uint64_t>> digest;
};
struct Inventory {
  std::vector<HeldReplica> replicas;
  bool may_have_more = false;  // the disk could not be read now, or a start with more buffers could
  std::uint64_t room = 0;      // bytes of objects that the server's own log still takes
  void put(ByteWriter& out) const;
  static std::optional<Inventory> get(ByteReader& in);
};
/// A part of the work of a recovery, for one server.
struct RecoverRequest {
  struct Part {
    std::uint64_t segment = 0;
    std::uint32_t valid = 0;        // bytes that count
    std::vector<ServerId> backups;  // that have them
  };
  ServerId dead;
  std::vector<Tablet> tablets;  // ranges to recover; owner and since are the dead server's
  std::vector<Part> parts;
  void put(ByteWriter& out) const;
  static std::optional<RecoverRequest> get(ByteReader& in);
};
struct RecoverAnswer {
  bool is_done = false;
  Position since;  // in the new owner's log
  std::uint64_t objects = 0, bytes = 0;
  std::uint64_t lost_segment = 0;  // not 0: no backup has it
  void put(ByteWriter& out) const;
  static std::optional<RecoverAnswer> get(ByteReader& in);
};
/// Asks for the entries of some ranges in the first `valid` bytes of a replica, from `from` on.
struct ReadReplicaRequest {
  ServerId dead;
  std::uint64_t segment = 0;
  std::uint32_t valid = 0, from = 0;
  std::vector<Tablet> tablets;  // see RecoverRequest
  void put(ByteWriter& out) const;
  static std::optional<ReadReplicaRequest> get(ByteReader& in);
};
struct ReadReplicaAnswer {
  BackupStatus status = BackupStatus::kUnknown;
  std::uint32_t next = 0;  // where to go on; `valid` when all is read
  ByteView entries;        // one behind the other, as in the replica, without checksum entries
  void put(ByteWriter& out) const;
  static std::optional<ReadReplicaAnswer> get(ByteReader& in);
};

// ---- to servers, by clients ----

enum class StoreStatus : std::uint8_t {
  kOk,
  kNoObject,
  kNotHere,  // the server does not have the tablet; ask the coordinator
  kRetry,    // the server cannot say now; ask again
  kLogFull,  // and nothing can be cleaned
  kTooOld,   // the client has acknowledged the result already
  kBadRequest,
};
struct StoreRequest {
  std::uint64_t table = 0;
  UpdateId id;
  ByteView key, value;
  void put(ByteWriter& out) const;
  static std::optional<StoreRequest> get(ByteReader& in);
};
struct StoreAnswer {
  StoreStatus status = StoreStatus::kRetry;
  std::uint64_t version = 0;
  ByteView value;
  void put(ByteWriter& out) const;
  static std::optional<StoreAnswer> get(ByteReader& in);
};

/// The bytes of a message.
template <class Message>
Bytes encoded_bytes(const Message& message) {
  Bytes bytes;
  ByteWriter out(bytes);
  message.put(out);
  return bytes;
}

/// The hash of a key, by which tablets and hash tables are cut.
std::uint64_t key_hash(std::uint64_t table, ByteView key);

/// A message that takes all the bytes, or nothing.
template <class Message>
std::optional<Message> whole(ByteView payload) {
  ByteReader in(payload);
  auto message = Message::get(in);
  return in.done() ? message : std::nullopt;
}

}  // namespace pyrdma::tailwind
