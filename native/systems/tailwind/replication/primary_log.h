// The log of a primary and its replicas at backups: it carries out what ReplicatedLog decides.
//
// Tailwind's replication: one RDMA write to each backup per post, on a reliable connection of its
// own to the backup, behind each other in the order of the log. A post covers all that was appended
// since the last. Open, close, versions and freeing are RPCs (section 3.3).
//
// RAMCloud's: an RPC with the data to each backup, one at a time per replica, at most 1 MiB each.
// What is appended meanwhile goes with the next one.
//
// One lock guards log, order and connections: an append and its posts are one step, so posts are in
// the order of the log.
//
// It is also the cleaner's host. A part of the memory is kept for the cleaner, and a little more
// for removals. An object that replaces another one brings a tombstone of the latter along, as in
// RAMCloud. Without it the older object would come back: the tombstone of a removal names the
// segment of the newest version, and goes when that is cleaned, while older versions may be in the
// log.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "env/sync.h"
#include "systems/tailwind/log/log.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/replication/replicated_log.h"
#include "systems/tailwind/rpc/dispatcher.h"
#include "systems/tailwind/rpc/messages.h"
#include "systems/tailwind/store/cleaner.h"
#include "systems/tailwind/store/object_log.h"

namespace pyrdma::tailwind {

struct ReplicationCounters {
  std::uint64_t appends = 0, rolls = 0;
  std::uint64_t writes = 0;        // RDMA writes
  std::uint64_t write_rpcs = 0;    // kBackupWrite
  std::uint64_t control_rpcs = 0;  // open, close, version, free
  std::uint64_t bytes = 0;         // of writes
};

/// What the cleaner has done, and what the memory of the log has.
struct CleanerCounters {
  std::uint64_t compactions = 0, compacted_bytes = 0;  // memory that they have freed
  std::uint64_t cleanings = 0, segments_cleaned = 0, bytes_cleaned = 0;  // memory of the segments
  std::uint64_t survivors = 0, survivor_bytes = 0;
  std::uint64_t tombstones = 0;  // of objects that others have replaced
  std::uint64_t log_bytes = 0, used_bytes = 0, live_bytes = 0, segments = 0;  // now
};

class PrimaryLog final : public ObjectLog, public CleanerHost, private ReplicaRequests {
 public:
  /// Takes log_bytes of registered memory. `transport` outlives it. Polling thread's callbacks come
  /// until the transport's end, so the log outlives the transport's last poll.
  PrimaryLog(Transport& transport, const Options& options, Bugs bugs = {});
  ~PrimaryLog() override;

  // ---- any thread ----

  Position append(std::span<const NewEntry> entries, Place* places,
                  std::span<const Place> dropped) override;
  LogMemory& memory() override { return memory_; }
  /// Between the two, what is appended stays here: a load of many objects then leads to few writes.
  void hold();
  /// `is_local`: no backup gets the segments that are complete by now, but those that it has
  /// opened. A crash loses them.
  void release(bool is_local = false);
  bool is_committed(Position to) const {
    const std::uint64_t committed = committed_.load(std::memory_order_acquire);
    return committed >= to.word() ||
           (!bugs_.looks_at_old_segments() && to.segment < head_.load(std::memory_order_acquire));
  }
  /// Waits until the log is committed up to `to`. Returns false if it will not be: the server is
  /// taken for dead, or the deadline has passed.
  bool commit(Worker& worker, Position to, Time deadline);
  /// All backups that segments had are there, or others have taken their places.
  bool is_whole();
  /// The same, and it knows that the backup is up: replicas of that node's earlier lives do not
  /// count.
  bool is_whole_for(ServerId backup);
  /// The end of the log.
  Position end();
  /// Returns the end of a head without an object, and makes one if need be: all that is appended
  /// from now on ends behind it, and all that is here before it, also when the cleaner has moved
  /// it. Returns Position{} when no memory is left.
  Position begin_head();
  /// An append of `bytes` of key and value that has failed may succeed later: the cleaner works, or
  /// something has become useless since it last found nothing to do.
  bool may_make_room(std::size_t bytes);
  ReplicationCounters counters();
  /// Bytes of memory in use.
  std::uint64_t used_bytes();
  /// Replicas that it has asked backups for, and has not freed.
  std::size_t replicas();
  /// Costs a look at each segment.
  CleanerCounters cleaner_counters();
  /// Bytes of a recovery's objects that the log still takes. The rest is for the updates of those
  /// tablets that the server has. Costs a look at each segment.
  std::uint64_t room();
  /// Less than that rest is free.
  bool is_full_for_recovery();

  // ---- the cleaner's thread ----

  std::vector<SegmentUse> candidates() override;
  const Segment& segment(std::uint64_t number) override;
  bool is_in_log(std::uint64_t number) override;
  std::unique_ptr<Segment> make_survivor() override;
  std::unique_ptr<Segment> make_compacted(std::uint64_t number) override;
  Place append(Segment& survivor, const NewEntry& entry) override;
  void compacted(std::unique_ptr<Segment> segment) override;
  /// Blocks until the segments are freed, end_cleaning() or depose().
  void finish(std::span<const std::uint64_t> cleaned,
              std::vector<std::unique_ptr<Segment>> survivors) override;
  MemoryUse memory_use();
  /// The head becomes a candidate if it has a seglet or more to reclaim. Returns false if not.
  bool give_up_head();
  /// Nothing can be cleaned until `drops` in memory_use() is another.
  void note_nothing_to_clean(std::uint64_t drops);
  bool has_nothing_to_clean();
  /// The node is dead, its threads have ended, and nobody reads its memory any more.
  void release_memory() { region_.reset(); }
  /// Any thread: the cleaner must end.
  void end_cleaning() { ends_cleaning_.store(true, std::memory_order_release); }

  // ---- the polling thread ----

  /// The coordinator's view has changed: servers that are not up are lost as backups.
  void update(const ClusterView& view);
  /// A backup has found that a closed replica, as it lies there, is not what this primary wrote.
  void damaged(ServerId backup, const ReplicaName& name);
  /// Sends what could not be sent before; once a tick. Throws Error(kUnavailable) when the
  /// completion queue has overrun.
  void tick();
  /// The coordinator has taken the server for dead: nothing is committed any more.
  void depose();
  bool is_deposed() const { return is_deposed_.load(std::memory_order_acquire); }
  /// Called with a backup whose connection has broken though the view has it up.
  std::function<void(ServerId)> on_broken;
  /// For tests: called when a new head lacks segments that were cleaned, before any backup knows
  /// it.
  std::function<void()> on_head_without_cleaned;

 private:
  static constexpr std::uint32_t kMostWrite = 1U << 20;  // bytes of a write RPC
  static constexpr std::uint32_t kSendEntries = 128;
  /// Memories of the log that its segments may take at backups (RAMCloud's master.diskExpansion).
  static constexpr std::uint64_t kDiskExpansion = 2;
  struct InFlight {
    ReplicaId replica;
    std::uint64_t attempt = 0;
    std::uint32_t to = 0;
    std::uint32_t entries = 0;  // of the send queue
  };
  /// A connection for writes to a backup.
  struct Link {
    std::uint64_t number = 0;
    ServerId backup;
    bool is_ready = false;
    std::unique_ptr<fabric::QueuePair> qp;
    std::deque<InFlight> in_flight;
    std::uint32_t entries = 0;  // of the send queue in use
  };
  /// A replica as this primary knows it.
  struct Held {
    ServerId backup;
    std::uint64_t attempt = 0;
    std::uint64_t version = 0;
    std::uint32_t first_bytes = 0;
    bool is_copy = false, is_open = false, is_writing = false;
    fabric::RemoteRegion buffer;
    std::uint32_t posted = 0, done = 0, wanted = 0;  // bytes
  };
  struct Compacted {
    std::unique_ptr<Segment> segment;
    Position end_of_work;  // of the log when it was made
  };
  /// A job of the cleaner that has moved everything. See CleanerHost::finish().
  struct Cleaning {
    std::vector<std::uint64_t> cleaned, survivors;
    bool has_begun = false;  // a head behind the survivors is there
    bool is_listed = false;  // the next head's digest has the survivors
    bool has_head = false;   // that head is there
    Position end_of_work;    // of the log when all had moved
  };

  NodeId open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) override;
  void write(ReplicaId id, std::uint32_t from, std::uint32_t to) override;
  void set_version(ReplicaId id, std::uint64_t version) override;
  void close(ReplicaId id) override;
  void ask_coordinator(std::uint64_t segment, std::uint64_t version) override;
  /// Tells the coordinator, and calls act() under the lock when it knows.
  void raise_version(std::uint64_t segment, std::uint64_t version, std::function<void()> act);
  void free(std::uint64_t segment) override;

  using OnAnswer = std::function<void(ByteView)>;
  /// Sends a request about a replica until it is answered, or the replica is another attempt's.
  void ask(ReplicaId id, std::uint64_t attempt, Opcode opcode, std::shared_ptr<const Bytes> payload,
           OnAnswer on_answer);
  void opened(ReplicaId id, std::uint64_t attempt, ByteView bytes);
  /// The replica's backup lives, and does not have it, or not whole: another one takes its place.
  void lose(ReplicaId id);
  Held* current(ReplicaId id, std::uint64_t attempt);
  bool roll(std::uint32_t keeps_free);
  bool append_or_roll(std::span<const NewEntry> entries, Place* places,
                      std::span<const Place> dropped);
  bool append_to_head(std::span<const NewEntry> entries, Place* places,
                      std::span<const Place> dropped);
  void count_tombstones(Segment& segment, std::span<const NewEntry> entries);
  void uncount_tombstones(const Segment& segment);
  const Segment& held_segment(std::uint64_t number) const;
  void free_replica(ServerId backup, ReplicaName name);
  Position end_of_log() const { return {log_.head()->id(), log_.head()->end()}; }
  bool may_replace(Position end_of_work) const;
  void go_on_cleaning();
  void replace_compacted();
  void free_unsent();
  void pump(ReplicaId id, Held& held);
  void pump_all(ServerId backup);
  void write_by_nic(ReplicaId id, Held& held, Link& link);
  void write_by_rpc(ReplicaId id, Held& held);
  Link& link_to(ServerId backup);
  void connect(Link& link);
  void break_link(Link& link);
  void fail_link(Link& link, fabric::Status status);
  bool poll_completions();
  void step();
  void advance_committed();
  Bytes bytes_of(const Segment& segment, std::uint32_t from, std::uint32_t to) const;
  Time deadline() const;

  Env& env_;
  Transport& transport_;
  const Options& options_;
  const Bugs bugs_;
  const ServerId self_, coordinator_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  LogMemory memory_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::uint32_t max_sges_;
  std::atomic<std::uint64_t> committed_{0};
  bool has_asked_to_begin_ = false, has_begun_ = false;  // guarded by mutex_
  std::atomic<std::uint64_t> head_{0};                   // the number of its segment
  std::atomic<bool> is_deposed_{false};
  std::atomic<bool> ends_cleaning_{false};
  // Seglets that are kept from all appends, and some more that are kept from those that remove
  // nothing.
  std::uint32_t kept_for_cleaner_ = 0, kept_for_removals_ = 0;

  Mutex mutex_;  // of all below
  Rng rng_;
  const Time awaits_group_until_;  // with placement by groups
  Log log_;
  ReplicatedLog order_;
  std::deque<std::uint64_t> chain_;  // segments from the first one that is not committed whole
  std::map<ReplicaId, Held> held_;
  std::map<ServerId, Link> links_;
  std::map<ServerId, std::uint32_t> replicas_at_;
  std::set<std::pair<std::uint64_t, ServerId>> refused_;  // since the last tick
  std::vector<ServerId> up_;
  std::set<NodeId> met_;     // nodes whose servers have been in a view
  std::uint64_t epoch_ = 0;  // of the view
  bool is_held_ = false;
  std::uint64_t next_attempt_ = 1, next_link_ = 1;
  ReplicationCounters counters_;

  // The cleaner's.
  std::set<std::uint64_t> made_;  // survivors that the cleaner has
  // Segments that are not in the log: survivors until they are, cleaned ones until they are free.
  std::map<std::uint64_t, std::unique_ptr<Segment>> beside_;
  std::optional<Cleaning> cleaning_;
  // Compacted segments until nobody reads the bytes that they replace, and may_replace().
  std::map<std::uint64_t, Compacted> compacted_;
  std::map<std::uint64_t, std::unique_ptr<Segment>> unsent_;  // free but for writes under way
  std::map<std::uint64_t, std::uint64_t> naming_bytes_;  // of tombstones, by the segment they name
  std::uint64_t drops_ = 0, nothing_to_clean_at_ = ~std::uint64_t{0};
  bool wants_room_ = false;
  std::uint64_t failed_at_ = 0;  // drops_ at the last append that failed
  CleanerCounters cleaner_counters_;
  // For the tombstones of an append; here so that they need no allocation. all_entries_ is empty if
  // there are none.
  std::vector<WholeEntry> olds_;
  std::vector<NewEntry> all_entries_;
  std::vector<Place> all_places_;
  std::vector<std::uint64_t> named_;
};

}  // namespace pyrdma::tailwind
