// A server: a primary of some tablets and a backup of other primaries (Tailwind, section 4).
//
// It serves while it has a lease of the coordinator. The coordinator takes a server for dead only
// when others cannot reach it, and gives its tablets away only when its lease is over, so no two
// servers serve a tablet at once.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "systems/tailwind/backup/backup_service.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/replication/log_cleaner.h"
#include "systems/tailwind/replication/primary_log.h"
#include "systems/tailwind/rpc/dispatcher.h"
#include "systems/tailwind/rpc/messages.h"
#include "systems/tailwind/store/object_manager.h"

namespace pyrdma::tailwind {

class Server {
 public:
  /// `life` counts the servers that this incarnation of the node has had, ServerId::kServers at
  /// most. Takes the memory of log, hash table and buffers. Throws Error for bad options.
  Server(Env& env, const Options& options, std::uint32_t life = 0, Bugs bugs = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ServerId id() const { return id_; }
  /// The dispatch thread. Tells the coordinator that the server is there, and serves until
  /// is_over() or until the coordinator has taken it for dead. Throws the Error of any thread that
  /// serves, and Error(kUnavailable) when a completion queue has overrun. All waits of
  /// await_table() and fill() end then.
  void run(FunctionRef<bool()> is_over);
  /// The coordinator has taken this server for dead.
  bool is_excluded() const { return is_excluded_.load(std::memory_order_acquire); }
  /// Of the view that the server has.
  std::uint64_t epoch() const { return view()->epoch; }
  /// The server is listed and has a lease.
  bool is_serving() const { return lease_until_.load(std::memory_order_acquire) > 0; }

  /// Waits until the table is in the view. Returns false at the deadline, and when run() ends.
  bool await_table(std::uint64_t table, Time deadline);
  /// Stores objects of a table without a client, in batches that are committed together; for
  /// set-up. Keys are key_of(number) for first <= number < first + count that belong to a tablet of
  /// this server; a value begins with the number in 8 B, its least length. Any thread but the
  /// dispatch thread, while run() runs. Returns the number stored, fewer when run() ends meanwhile.
  /// Throws Error(kExhausted) when the log is full.
  std::uint64_t fill(std::uint64_t table, std::uint64_t first, std::uint64_t count,
                     std::uint32_t key_bytes, std::uint32_t value_bytes, bool is_replicated);

  ObjectManager& objects() { return objects_; }
  PrimaryLog& log() { return log_; }
  BackupService& backup() { return backup_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  Transport& transport() { return transport_; }

 private:
  using View = std::shared_ptr<const ClusterView>;
  bool may_ask(const Incoming& request) const;
  void serve(Worker& worker, const Incoming& request, Bytes& answer);
  struct Started;
  void serve_store(Worker& worker, const Incoming& request, Bytes& answer);
  void serve_together(Worker& worker, std::span<const std::unique_ptr<Incoming>> requests,
                      std::span<Bytes> answers);
  Started start(const Incoming& request);
  void finish(const Started& started, bool is_committed, Bytes& answer);
  void take_view(ByteView bytes);
  void start_reading(Worker& worker, ByteView payload, Bytes& answer);
  void forget(ByteView payload);
  void recover(Worker& worker, ByteView payload, Bytes& answer);
  void enlist();
  void renew();
  void probe();
  void every_tick();
  std::vector<std::uint64_t> unlisted_logs(const ClusterView& view);
  void free_unlisted();
  void free_inherited();
  void suspect(ServerId server);
  /// Tells the primary, if it lives, that a closed replica is damaged here.
  void report(ServerId primary, const ReplicaName& name);
  void exclude();
  View view() const;
  bool has_lease() {
    return env_.now() < lease_until_.load(std::memory_order_acquire) || !bugs_.checks_lease();
  }
  bool owns(const ClusterView& view, std::uint64_t table, std::uint64_t hash) const {
    const Tablet* tablet = view.find(table, hash);
    return tablet != nullptr && tablet->owner == id_;
  }

  Env& env_;
  const Options options_;
  const ServerId id_, coordinator_;
  const Bugs bugs_;
  Transport transport_;
  BackupService backup_;
  PrimaryLog log_;
  ObjectManager objects_;
  Rng rng_;  // of the dispatch thread
  mutable Mutex view_mutex_;
  View view_ = std::make_shared<ClusterView>();
  std::atomic<Time> lease_until_{0};
  std::atomic<bool> is_excluded_{false}, is_enlisted_{false};
  Time next_renewal_ = 0, next_probe_ = 0;  // of the dispatch thread
  bool is_renewing_ = false, is_probing_ = false;
  std::function<bool()> ends_;  // run() does
  Time next_freeing_ = 0, next_asking_ = 0;
  bool is_freeing_ = false;
  std::map<ServerId, Time> suspected_;  // when it was last reported
  LogCleaner cleaner_;
  Dispatcher dispatcher_;  // last: its threads end first
};

/// The key of a load: 8 bytes of the number, then bytes that follow from it. At least 8 B.
Bytes key_of(std::uint64_t number, std::uint32_t bytes);

}  // namespace pyrdma::tailwind
