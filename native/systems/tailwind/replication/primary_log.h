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
#include "systems/tailwind/store/object_log.h"

namespace pyrdma::tailwind {

struct ReplicationCounters {
  std::uint64_t appends = 0, rolls = 0;
  std::uint64_t writes = 0;        // RDMA writes
  std::uint64_t write_rpcs = 0;    // kBackupWrite
  std::uint64_t control_rpcs = 0;  // open, close, version, free
  std::uint64_t bytes = 0;         // of writes
};

class PrimaryLog final : public ObjectLog, private ReplicaRequests {
 public:
  /// Takes log_bytes of registered memory. `transport` outlives it. Polling thread's callbacks come
  /// until the transport's end, so the log outlives the transport's last poll.
  PrimaryLog(Transport& transport, const Options& options, Bugs bugs = {});
  ~PrimaryLog() override;

  // ---- any thread ----

  Position append(std::span<const NewEntry> entries, Place* places,
                  std::span<const Place> dropped) override;
  LogMemory& memory() override { return memory_; }
  bool is_committed(Position to) const {
    return committed_.load(std::memory_order_acquire) >= to.word();
  }
  /// Waits until the log is committed up to `to`. Returns false if it will not be: the server is
  /// taken for dead, or the deadline has passed.
  bool commit(Worker& worker, Position to, Time deadline);
  /// The end of the log.
  Position end();
  ReplicationCounters counters();
  /// Segments, and bytes of memory in use.
  std::uint64_t used_bytes();

  // ---- the polling thread ----

  /// The coordinator's view has changed: servers that are not up are lost as backups.
  void update(const ClusterView& view);
  /// Sends what could not be sent before; once a tick.
  void tick();
  /// The coordinator has taken the server for dead: nothing is committed any more.
  void depose();
  bool is_deposed() const { return is_deposed_.load(std::memory_order_acquire); }
  /// Called with a backup whose connection has broken though the view has it up.
  std::function<void(ServerId)> on_broken;

 private:
  static constexpr std::uint32_t kMostWrite = 1U << 20;  // bytes of a write RPC
  static constexpr std::uint32_t kSendEntries = 128;
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

  NodeId open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) override;
  void write(ReplicaId id, std::uint32_t from, std::uint32_t to) override;
  void set_version(ReplicaId id, std::uint64_t version) override;
  void close(ReplicaId id) override;
  void ask_coordinator(std::uint64_t segment, std::uint64_t version) override;

  using OnAnswer = std::function<void(ByteView)>;
  /// Sends a request about a replica until it is answered, or the replica is another attempt's.
  void ask(ReplicaId id, std::uint64_t attempt, Opcode opcode, std::shared_ptr<const Bytes> payload,
           OnAnswer on_answer);
  void opened(ReplicaId id, std::uint64_t attempt, ByteView bytes);
  Held* current(ReplicaId id, std::uint64_t attempt);
  bool roll();
  void pump(ReplicaId id, Held& held);
  void pump_all(ServerId backup);
  void write_by_nic(ReplicaId id, Held& held, Link& link);
  void write_by_rpc(ReplicaId id, Held& held);
  Link& link_to(ServerId backup);
  void connect(Link& link);
  void break_link(Link& link);
  bool poll_completions();
  void step();
  void advance_committed();
  Bytes bytes_of(const Segment& segment, std::uint32_t from, std::uint32_t to) const;
  Time deadline() const;

  Env& env_;
  Transport& transport_;
  const Options& options_;
  const ServerId self_, coordinator_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  LogMemory memory_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::uint32_t max_sges_;
  std::atomic<std::uint64_t> committed_{0};
  std::atomic<bool> is_deposed_{false};

  Mutex mutex_;  // of all below
  Rng rng_;
  Log log_;
  ReplicatedLog order_;
  std::deque<std::uint64_t> chain_;  // segments from the first one that is not committed whole
  std::map<ReplicaId, Held> held_;
  std::map<ServerId, Link> links_;
  std::map<ServerId, std::uint32_t> replicas_at_;
  std::set<std::pair<std::uint64_t, ServerId>> refused_;  // since the last tick
  std::vector<ServerId> up_;
  std::uint64_t next_attempt_ = 1, next_link_ = 1;
  ReplicationCounters counters_;
};

}  // namespace pyrdma::tailwind
