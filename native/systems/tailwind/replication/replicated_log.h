// Which request about which replica is due: the order of opens, writes and closes, and what follows
// the loss of a backup. It has no clock, no memory and no network; the host carries the requests
// and reports their ends. The order is RAMCloud's (Ousterhout et al., "The RAMCloud Storage
// System", ACM TOCS 2015, section 4), which Tailwind keeps:
//
// - A new head is open at all its backups before the last one closes, so some digest is always
// open.
//   It opens when the last one is open at all its backups and those before are closed: who recovers
//   the log then needs no segment that nobody has. So at most two segments have open replicas.
// - The last head is closed at all its backups before data goes to the new one, so only the head
//   may end early.
// - An entry is committed when all backups have it.
// - When a backup with an open replica is lost, the segment's version rises: commits stop until
//   another backup has a copy, all replicas have the new version, and the coordinator knows it
//   (Tailwind, section 3.4.3). Whoever comes back with the old version is not asked.
// - A copy is valid when it is complete: the new version, or the close, says so. A crash amid a
// copy
//   leaves nothing that could be taken for a replica.
//
// A cleaner moves what is of use to segments beside the chain of heads (Rumble, Kejriwal and
// Ousterhout, "Log-structured Memory for DRAM-based Storage", FAST 2014, section 6):
//
// - Their replicas are copies, which the close makes valid. They are opened only when a head with a
//   higher number is open at all its backups: a closed segment behind all open ones would say that
//   the head is missing. And what they hold of the backups' buffers waits for no other segment.
// - A segment that later digests lack is freed when no recovery can use an earlier one: a head with
//   such a digest is open at all its backups, and the one before it is closed at all of its own.
// - A closed segment may be compacted in memory. Its replicas stay as they are; those that are made
//   later have the new bytes, and a higher version. So replicas of one version are equal.
// - What a cleaner leaves out was replaced. The host compacts, and makes a digest without the
//   cleaned segments, when all that has replaced it is committed.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "env/env.h"
#include "systems/tailwind/bugs.h"

namespace pyrdma::tailwind {

/// A replica of a segment: its place among the segment's replicas, whichever backup has it.
struct ReplicaId {
  std::uint64_t segment = 0;
  std::uint32_t index = 0;
  auto operator<=>(const ReplicaId&) const = default;
};

inline constexpr NodeId kNoBackup = ~NodeId{0};

/// Carries requests. Each ends with a call of ReplicatedLog, later, unless its backup is lost
/// first.
class ReplicaRequests {
 public:
  virtual ~ReplicaRequests() = default;
  /// Opens a replica with the first `bytes` bytes of the segment, and returns the backup that is
  /// asked: one that has no other replica of it, or kNoBackup if there is none now. `is_copy`: the
  /// replica is not valid before set_version() or close(). Ends with opened(), or with refused()
  /// when the backup has no buffer.
  virtual NodeId open(ReplicaId replica, std::uint64_t version, std::uint32_t bytes,
                      bool is_copy) = 0;
  /// Ends with written(). Writes of one replica end in order.
  virtual void write(ReplicaId replica, std::uint32_t from, std::uint32_t to) = 0;
  /// Ends with versioned().
  virtual void set_version(ReplicaId replica, std::uint64_t version) = 0;
  /// Ends with closed().
  virtual void close(ReplicaId replica) = 0;
  /// From now on open replicas of the segment with a lower version do not count. Ends with
  /// consented().
  virtual void ask_coordinator(std::uint64_t segment, std::uint64_t version) = 0;
  /// No recovery needs the segment any more: its memory and its replicas may be freed. Nothing ends
  /// with a call.
  virtual void free(std::uint64_t segment) = 0;
};

class ReplicatedLog {
 public:
  ReplicatedLog(ReplicaRequests& requests, std::uint32_t replicas, Bugs bugs = {})
      : requests_(requests), replicas_(replicas), bugs_(bugs) {}

  /// A segment that will be the head; its first `bytes` bytes name it and all others. Requires a
  /// higher number than that of all before it.
  void begin(std::uint64_t segment, std::uint32_t bytes);
  /// The head has `end` bytes.
  void append(std::uint64_t segment, std::uint32_t end) { segments_.at(segment).end = end; }
  /// Nothing more is appended: the next segment is the head.
  void complete(std::uint64_t segment) { segments_.at(segment).is_complete = true; }
  /// The complete segment counts as closed at backups, though none has it: a crash loses it.
  void skip(std::uint64_t segment);
  /// A complete segment beside the chain, with `end` bytes; requires a new number. Digests may have
  /// it when is_closed().
  void begin_side(std::uint64_t segment, std::uint32_t bytes, std::uint32_t end);
  /// A segment that was closed has `end` bytes from now on; its first ones are as before. Requires
  /// is_at_rest().
  void compact(std::uint64_t segment, std::uint32_t end);
  /// The digests of `head` and of later heads lack the segment. It is forgotten, with free(), when
  /// no recovery can use an earlier head.
  void forget(std::uint64_t segment, std::uint64_t head);

  void opened(ReplicaId replica);
  void refused(ReplicaId replica);
  void written(ReplicaId replica, std::uint32_t to);
  void versioned(ReplicaId replica, std::uint64_t version);
  void closed(ReplicaId replica);
  void consented(std::uint64_t segment, std::uint64_t version);
  /// All requests to the backup are void, and what it has does not count.
  void lost(NodeId backup);
  /// The same of one replica: its backup lives, and does not have it, or not whole.
  void lost(ReplicaId replica);

  /// Sends what is due. Costs a look at each replica of the segments from the first one on that is
  /// not closed everywhere.
  void step();

  /// Bytes of a segment that all its backups have: an entry that ends there or before is durable.
  std::uint32_t committed(std::uint64_t segment) const { return segments_.at(segment).committed; }
  /// All replicas are closed.
  bool is_closed(std::uint64_t segment) const;
  /// Each replica is closed or was not opened yet.
  bool is_at_rest(std::uint64_t segment) const;
  std::uint32_t first_bytes(std::uint64_t segment) const {
    return segments_.at(segment).first_bytes;
  }
  /// A backup was lost, and the log is not whole again.
  bool is_mending() const;
  /// The backup of a replica, or kNoBackup.
  NodeId backup(ReplicaId replica) const {
    return segments_.at(replica.segment).replicas.at(replica.index).backup;
  }

 private:
  friend class ReplicatedLogProbe;  // of tests
  static constexpr std::uint64_t kNoVersion = ~std::uint64_t{0};
  enum class State : std::uint8_t { kNone, kOpening, kOpen, kClosing, kClosed };
  struct Replica {
    State state = State::kNone;
    bool is_copy = false;  // not valid yet
    NodeId backup = kNoBackup;
    std::uint32_t sent = 0, done = 0;  // bytes
    std::uint64_t version = kNoVersion, asked_for = kNoVersion;
    bool is_open() const { return state == State::kOpen; }
    bool is_there() const { return state >= State::kOpen; }
  };
  struct Segment {
    std::uint32_t first_bytes = 0, end = 0, committed = 0;
    std::uint64_t version = 0;
    bool is_side = false;  // not of the chain
    bool is_complete = false;
    bool was_open = false, was_closed = false;  // at all backups, once
    bool is_frozen = false;                     // until the coordinator knows the version
    bool has_asked = false;
    std::vector<Replica> replicas;
  };
  /// Null for an end that comes after its segment was forgotten or its backup was lost.
  Replica* expected(ReplicaId id, State state);
  void lose(Segment& segment, Replica& replica);
  void pass();
  void free_forgotten();
  bool is_found_first(std::uint64_t head) const;
  void step(std::uint64_t number, Segment& segment, bool takes_data, bool may_close);
  void mend(std::uint64_t number, Segment& segment);
  static std::uint32_t most_sent(const Segment& segment);
  void commit(Segment& segment);

  ReplicaRequests& requests_;
  const std::uint32_t replicas_;
  const Bugs bugs_;
  std::map<std::uint64_t, Segment> segments_;
  std::uint64_t settled_ = 0;                         // the segments before are closed everywhere
  std::uint64_t newest_open_ = 0;                     // of the chain, at all backups
  std::map<std::uint64_t, std::uint64_t> forgotten_;  // segments, and the heads they wait for
  bool has_moved_ = false;
};

}  // namespace pyrdma::tailwind
