// The backup of a server: replicas of other servers' segments, in buffers that their primaries
// write to, and on disk (Tailwind, sections 3.2, 3.3.1 and 3.4.1).
//
// - A primary opens a replica and gets a buffer; it writes there by RDMA, which nothing here takes
//   part in, or by kBackupWrite; it closes the replica. A thread of the service then writes the
//   buffer to disk and makes it anew.
// - An open is refused when no buffer is free, or when more bytes would wait for the disk than it
//   can take on battery power.
// - When a primary is dead, its requests are refused, its open replicas are scanned, and others
//   read the entries that they recover.
//
// After a crash of the process only what was on disk is there. After a power failure with a battery
// the replicas in buffers are there too. All files "memory-<number>" and "saved-<number>-<number>"
// of the node's storage belong to the service. A start takes replicas from them and leaves them:
// they are the only copy until the replica is on disk or nobody needs it, and the start may fail,
// or the process may die once more. The files of one power failure go when the last replica that is
// there has been flushed or freed. Until then a replica that was freed may come back with the
// others, as one whose freeing a dead backup has missed. What a start with more buffers, or with
// others, could take stays, too.
//
// A node has one service at a time. Any thread may call the functions. Requests may come again, and
// late: those of an earlier attempt have no effect. A primary numbers its attempts so that a later
// open of a segment has a higher one. None of them but read_replica() and start_reading() waits for
// the disk.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/tailwind/backup/buffer_pool.h"
#include "systems/tailwind/backup/frames.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/log/scan.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/rpc/messages.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

struct BackupCounters {
  std::uint64_t opens = 0;      // replicas that were opened
  std::uint64_t closes = 0;     // replicas that were closed
  std::uint64_t flushes = 0;    // replicas that were written to disk
  std::uint64_t refused = 0;    // opens that found no buffer or too much that waits for the disk
  std::uint64_t bytes = 0;      // of the flushed replicas
  std::uint64_t zeroed = 0;     // buffers that were made anew
  std::uint64_t damaged = 0;    // closed replicas that were not whole, and are not on disk
  std::uint64_t unflushed = 0;  // replicas that are in buffers now
};

class BackupService {
 public:
  /// Bytes of entries in an answer of read_replica(), unless a single one is longer.
  static constexpr std::size_t kMostAnswer = std::size_t{1} << 20;

  /// keep_saved_memory() comes before a node registers memory. Reads the replicas on disk and those
  /// that a battery has saved, makes the buffers and starts a thread. `env`, `domain` and `options`
  /// outlive it. Throws Error when the device lacks the memory or the disk fails. Costs the disk's
  /// time for all that it has.
  BackupService(Env& env, fabric::ProtectionDomain& domain, const Options& options, Bugs bugs = {});
  /// Closed replicas that are not on disk yet are lost.
  ~BackupService();
  BackupService(const BackupService&) = delete;
  BackupService& operator=(const BackupService&) = delete;

  // ---- requests of primaries; those of dead ones end as kRefused ----

  /// Opens a replica with its first bytes. It takes the place of one of a lower attempt. An open
  /// with the attempt of an open replica has the same answer again. kUnknown: the attempt was
  /// closed or freed, or a higher one is known. kOutOfBounds: more data than a buffer has. What is
  /// refused changes nothing.
  OpenAnswer open(ServerId primary, const OpenRequest& request);
  /// Copies data to a replica that was opened for it. Requests may overtake each other.
  /// kOutOfBounds: beyond the buffer.
  BackupStatus write(ServerId primary, const BackupWriteRequest& request);
  /// The replica has a version, unless it has a higher one; a copy is valid from now on.
  BackupStatus set_version(ServerId primary, const SetVersionRequest& request);
  /// The replica is complete and will be written to disk. The entries are counted without checksum
  /// entries, as scan() does: a replica whose metadata do not fit its data is damaged, and is not
  /// written to disk. kOutOfBounds: an end beyond the buffer or beyond what the CPU has
  /// written, or the replica was closed with another end.
  BackupStatus close(ServerId primary, const CloseRequest& request);
  /// Forgets a replica of this attempt or a lower one.
  BackupStatus free(ServerId primary, const ReplicaName& name);

  // ---- recovery ----

  /// From now on every request of that primary is refused. What it writes by RDMA still arrives
  /// until its connections have ended.
  void stop_writes(ServerId dead);
  /// Stops writes, and returns what is here of the dead primary's log, the newest first. Requires
  /// that its connections have ended. Scans its replicas in buffers, once, and reads the newest
  /// closed one. Leaves out what is damaged.
  Inventory start_reading(ServerId dead);
  /// Returns entries that the tablets of the request need; Tablet::since cuts off older ones. They
  /// are put in `storage`, which the answer points to. kUnknown: no such replica, or a damaged one.
  /// kOutOfBounds: more bytes than are valid.
  ReadReplicaAnswer read_replica(const ReadReplicaRequest& request, Bytes& storage);
  /// Frees all replicas of that log.
  void forget(ServerId dead);

  struct Damaged {
    ServerId primary;
    ReplicaName name;
  };
  /// The closed replicas that were found damaged since the last call, before they were on disk.
  /// Their buffers keep them until their primaries free them.
  std::vector<Damaged> take_damaged();

  /// Frees the replicas of that log that were here when the service began. Their primary lives, and
  /// has others in their places.
  void forget_inherited(ServerId primary);

  /// The logs of which it has replicas, by ServerId::number().
  std::vector<std::uint64_t> logs();
  /// Those of which it has replicas that were here when the service began.
  std::vector<std::uint64_t> inherited_logs();
  /// How many replicas of that log it has.
  std::uint64_t replicas(ServerId primary);
  BackupCounters counters();
  /// Damaged files, and what the disk cannot take now.
  std::vector<std::string> problems();

 private:
  static constexpr std::size_t kLoadedReplicas = 8;      // that stay in memory
  static constexpr std::size_t kMostRemovals = 256;      // that wait for flushes
  using Name = std::pair<std::uint64_t, std::uint64_t>;  // log, segment

  struct Replica {
    BufferContents contents;
    std::optional<std::uint32_t> buffer;  // none: it is on disk
    bool may_have_file = false;           // of this attempt or a lower one
    bool is_inherited = false;            // of an earlier life of the node
    bool is_gone = false;                 // freed, or another attempt has its place
    std::vector<std::size_t> saved_in;    // power failures whose files have it or a lower attempt
    std::map<std::uint32_t, std::uint32_t>
        ahead;                    // pieces that the CPU wrote behind a gap, by begin
    std::optional<Scan> scanned;  // since its primary is dead
    Name name() const { return {contents.log, contents.segment}; }
  };
  enum class Work : std::uint8_t { kFlush, kRenew, kRemove, kRemoveSaved };
  /// For the service's own thread.
  struct Job {
    Work work = Work::kFlush;
    std::shared_ptr<Replica> replica;  // to flush
    std::uint32_t buffer = 0;          // to renew
    Name name;                         // whose file is to be removed
  };
  /// A replica as readers see it, without the lock.
  struct View {
    BufferContents contents;
    std::uint32_t valid = 0, entries = 0;
    std::shared_ptr<fabric::MemoryRegion> region;
    std::shared_ptr<const Frames::Loaded> loaded;
    bool is_usable = false;  // not damaged, as far as was looked at
    ByteView bytes;          // the valid ones
  };
  struct Found {
    BackupStatus status = BackupStatus::kUnknown;
    std::shared_ptr<Replica> replica;  // null unless kOk
  };

  // These require the lock.
  Found find(ServerId primary, const ReplicaName& name);
  std::optional<OpenAnswer> known_answer(ServerId primary, const OpenRequest& request);
  bool admits_another(const Name& name) const;
  void install(std::shared_ptr<Replica> replica);
  void retire(Replica& replica);
  void retire_with_file(Replica& replica);
  /// What batteries have saved of the replica is of no use any more.
  void leave_saved(Replica& replica);
  void remove_saved_later();
  template <class Which>
  std::vector<std::uint64_t> logs_of(Which&& which);
  void renew_later(std::uint32_t buffer);
  void add_job(Job job);
  void count_waiting();
  void add_problem(const std::string& problem);

  /// Takes what batteries have saved.
  void take_over_all();
  /// Returns false if a later start could take it, and this one cannot.
  bool take_over(const SavedBuffer& saved, std::size_t failure);
  std::vector<std::shared_ptr<Replica>> replicas_of(std::uint64_t log);
  View view(Replica& replica, bool needs_bytes);
  std::shared_ptr<const Frames::Loaded> load(const Name& name, std::uint64_t attempt);
  void run_jobs();
  std::optional<Job> next_job();
  void run(const Job& job);
  void flush(Replica& replica);
  void leave_damaged(const Replica& replica, const Scan& found);
  void renew(std::uint32_t buffer);
  void remove_files(const Name& first);
  void remove_saved();

  Env& env_;
  const Options& options_;
  const Bugs bugs_;
  Frames frames_;
  BufferPool pool_;

  Mutex disk_mutex_;  // one thread at a time loads replicas; taken before mutex_
  Mutex mutex_;       // of all below
  std::map<Name, std::shared_ptr<Replica>> replicas_;
  std::map<Name, std::uint64_t> freed_;  // the attempts up to which they were
  std::set<ServerId> dead_;
  std::uint64_t unflushed_ = 0;       // buffers with replicas
  std::vector<std::uint64_t> saved_;  // by power failure: replicas that need its files
  std::deque<std::pair<Name, std::shared_ptr<const Frames::Loaded>>> loaded_;
  std::deque<Job> renewals_, flushes_, removals_, failed_;
  bool may_have_more_ = false;                  // that a later start could take, or read
  std::vector<std::string> problems_;           // that stay
  std::map<std::string, std::string> failing_;  // of failed jobs
  std::vector<Damaged> damaged_;
  BackupCounters counters_;

  std::atomic<std::uint32_t> waiting_{0};  // jobs that have not failed
  std::atomic<bool> is_stopping_{false};
  Watch watch_;               // of the two
  Time retry_at_ = kForever;  // of the service's thread
  std::unique_ptr<Thread> thread_;
};

}  // namespace pyrdma::tailwind
