// The coordinator: it lists the servers, knows which of them has which tablet, and has the log of a
// dead one recovered by the others (RAMCloud; Tailwind, section 3.4.1). What it must not forget is
// on its disk before anybody learns of it. When it restarts, servers and clients find it again, and
// recoveries go on.
//
// A server is dead when it does not answer the coordinator, or when a new life of its node comes.
// Its tablets get a new owner when its last lease is over.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/coordinator/state.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/recovery/find_log.h"
#include "systems/tailwind/rpc/dispatcher.h"

namespace pyrdma::tailwind {

/// The phases of a recovery, by the coordinator's clock; 0: not reached.
struct RecoveryReport {
  ServerId dead;
  Time suspected = 0;  // by a server or a new life; 0: found at the coordinator's start
  Time declared = 0;
  Time read = 0;       // the backups have told what they have
  Time outwaited = 0;  // the last lease is over
  Time assigned = 0;   // the new owners have begun
  Time ended = 0;
  std::uint32_t attempts = 0, partitions = 0;
  std::uint64_t objects = 0, bytes = 0;  // that the new owners have stored
  std::uint64_t replicas = 0;            // that were found
  std::string problem;                   // why the last attempt failed
  bool lacks_data = false;               // because the log is not whole, and servers are down
  /// What could not be found though every server has told what it has; empty if nothing. Objects
  /// then may be missing, older than was acknowledged, or back though they were removed.
  std::string lost;
};

class Coordinator {
 public:
  /// Loads the state. Throws Error for bad options or a damaged file.
  Coordinator(Env& env, const Options& options, Bugs bugs = {});
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// The dispatch thread: serves until is_over(). Throws Error when the disk fails: the coordinator
  /// must then be restarted.
  void run(FunctionRef<bool()> is_over);

  // ---- any thread ----
  ClusterView view();
  std::vector<RecoveryReport> recoveries();
  Dispatcher& dispatcher() { return dispatcher_; }

 private:
  static constexpr std::uint32_t kReceives = 1024;
  /// Answers to one request to many servers.
  struct Gathered {
    explicit Gathered(Env& env) : mutex(env) {}
    Mutex mutex;
    Watch watch;
    std::atomic<std::uint32_t> under_way{0};
    std::map<ServerId, Bytes> answers;  // of those that answered
  };

  void serve(const Incoming& request, Bytes& answer);
  bool renew(ServerId server);
  void enlist(ServerId server, Bytes& answer);
  /// The view that publish() has shown last.
  std::shared_ptr<const ClusterView> shown();
  /// Shows the view of the state to those who do not wait for the disk. The caller holds both
  /// locks.
  void publish();
  void check_life(ServerId server, std::uint32_t left);
  void push();
  void push_to(ServerId server, std::shared_ptr<const Bytes> view, std::uint64_t epoch);
  /// Runs a thread. What it throws ends run().
  void run_thread(void (Coordinator::*body)());
  void declare_dead(ServerId server);
  void members();  // the thread that declares servers dead
  void recoveries_loop();
  bool recover(ServerId dead);
  std::shared_ptr<Gathered> ask(Opcode opcode, const std::map<ServerId, Bytes>& requests,
                                Time deadline);
  void await(Gathered& gathered, const std::map<ServerId, Bytes>& requests);
  std::vector<ServerId> up();
  RecoveryReport& report_of(ServerId dead);
  bool fail(ServerId dead, const std::string& why);
  void note_dead(ServerId dead);
  /// What the servers have told.
  struct Told {
    std::vector<ServerId> backups;  // that were asked; FoundReplica::backup is an index of it
    std::vector<FoundReplica> found;
    std::map<ServerId, std::uint64_t> rooms;  // Inventory::room of those that have answered
    std::uint64_t records = 0;
    bool is_all = false;  // no other replica will come
  };
  Told ask_backups(ServerId dead);
  bool assign(ServerId dead, const LogCut& cut, const FoundLog& log, const Told& told);
  bool is_resting(ServerId dead);
  void rest(ServerId dead);

  Env& env_;
  const Options options_;
  const Bugs bugs_;
  const Time started_;
  Transport transport_;
  // Of the state. It is held while the disk writes, so the dispatch thread and who renews a lease
  // never take it. Before the other one.
  Mutex state_mutex_;
  CoordinatorState state_;
  Mutex mutex_;                              // of all below
  std::shared_ptr<const ClusterView> view_;  // what is on the disk
  std::set<ServerId> ending_;         // they get no lease any more: their death is being written
  std::map<ServerId, Time> granted_;  // begin of the last lease
  std::set<ServerId> checking_;       // whether they live
  std::deque<ServerId> to_declare_;
  std::map<ServerId, std::uint64_t> pushed_;  // epochs that servers have
  std::set<ServerId> pushing_;
  std::vector<RecoveryReport> reports_;
  Rng rng_;
  /// Dead servers whose objects no log had room for.
  struct Rest {
    std::uint32_t times = 0;
    Time until = 0;
    std::size_t servers = 0;  // that were up: another one has room
  };
  std::map<ServerId, Rest> rests_;  // of the recoveries' thread
  Watch changed_;
  std::atomic<bool> is_stopping_{false}, has_failed_{false};
  std::optional<Error> failure_;  // of a thread
  std::atomic<std::uint64_t> changes_{0};
  Dispatcher dispatcher_;
  std::unique_ptr<Thread> members_thread_, recovery_thread_;
};

}  // namespace pyrdma::tailwind
