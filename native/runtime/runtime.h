// The runtime of a node, for any protocol over RDMA: callers with their connections, one completion
// queue for all of them, registered memory, and peers, some of which may be down.
//
//   runtime.cc       set-up, completions, waiting
//   dead_peers.cc    a peer goes down
//   reconnect.cc     a peer comes back
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/env.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "runtime/caller.h"
#include "runtime/connection.h"
#include "runtime/exchange.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime {

class Handshake;

/// The thread that polls the completion queue.
enum class Polling : std::uint8_t {
  kThread,   // a thread of the runtime (LOCO, A.1): callers never touch the queue
  kCallers,  // the waiting caller: needs no further thread, for machines with few cores
};

struct Options {
  std::string name = "runtime";  // names the system and the run: nodes with the same name connect
  std::uint32_t callers = 1;  // threads that use the network, each with its own connections; 1..64
  Polling polling = Polling::kCallers;
  std::uint32_t max_in_flight = 256;  // requests per caller
  std::uint64_t page_bytes = 4 * kMiB;
  std::uint32_t block_bytes = 256;  // bytes of a temporary block
  std::uint32_t blocks = 256;       // temporary blocks per caller at first
  std::uint32_t max_inline = 64;    // longest write in bytes that is copied at the post
  std::uint32_t message_entries =
      0;  // receive entries of a further connection to each peer; 0: no such connection
  Time wait_timeout = 10 * kSecond;  // limit of any one wait; then an error names the cause
  std::uint32_t timeout_us = 1000;   // timeout of a connection per attempt
};

/// The part of a system in the runtime of a node. The thread that makes progress calls it, one
/// thread at a time.
class Service {
 public:
  virtual ~Service() = default;
  /// A connection for messages has been made, for the first time or again: post receives. The peer
  /// sends after this call has returned.
  virtual void connected(Connection& /*messages*/) {}
  /// Handles a completion of a connection for messages.
  virtual void completed(Connection& /*messages*/, const fabric::Completion& /*completion*/) {}
  /// Called repeatedly while want_service(true) holds. May block. Several threads may call at once.
  virtual void serve() {}
  /// `peer` is down. The thread that finds or declares it calls this once per time that the peer
  /// was up. Must not block.
  virtual void peer_down(NodeId /*peer*/, fabric::Status /*why*/) {}
};

/// One runtime per node and run of a system. Outlives the objects that use its callers.
class Runtime {
 public:
  /// Opens the device and makes memory, callers and queue pairs. Throws Error(kInvalidArgument) for
  /// an option outside its bounds.
  Runtime(Env& env, const Options& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Env& env() { return env_; }
  NodeId self() const { return env_.node(); }
  NodeId nodes() const { return env_.nodes(); }
  const Options& options() const { return options_; }
  Caller& caller(std::uint32_t index) { return *callers_.at(index); }
  MemoryPool& memory() { return *memory_; }
  fabric::ProtectionDomain& domain() { return *pd_; }

  /// Connects with all other nodes and blocks until they have connected too. Then the polling
  /// thread starts. A node that was restarted within the run waits for no peer: all nodes but
  /// itself are down until reconnect(). `service` outlives the runtime or stop(). Throws
  /// Error(kTimeout), naming the nodes that did not come, and Error(kInvalidArgument) if this node
  /// has connected a runtime of that name before: a name is used once in a run.
  void connect(Service* service = nullptr);
  /// Returns true if this node had an earlier incarnation under the runtime's name.
  bool is_restarted() const { return incarnation_ != 0; }
  /// Ends the polling thread. Call it before the destruction of the service or of anything that the
  /// service uses.
  void stop();
  /// Waits until the callers' requests have ended. Before that, work that was dropped goes on for
  /// up to wait_timeout. Throws Error(kTimeout), or an error of dropped work that nobody has been
  /// told yet.
  void drain();
  /// Ends this node's part in good order: drains, then meets all other nodes, so that no node uses
  /// memory that is gone. Without it the last requests of a peer fail. Throws Error(kTimeout),
  /// naming the nodes that did not come, or after the meeting an error of dropped work. A system
  /// that goes on without dead peers drains, and meets the others by its own means.
  void leave();

  /// Blocks until ready(); polls where callers poll. Throws Error(kTimeout) after wait_timeout,
  /// naming the peers that do not answer. `what` is what the caller waits for, such as "completion
  /// of its operations": the error reads "node 1: no completion of its operations within ...".
  /// Throws as spawn() says.
  void wait_until(Caller& caller, FunctionRef<bool()> ready, const char* what);
  /// Starts a background thread of the system, or of the runtime, on this node. If the body throws
  /// an Error, the thread ends, and every later turn or wait of any caller throws this error: a
  /// system without one of its threads cannot go on. The first error of all threads is kept. The
  /// runtime outlives the thread.
  std::unique_ptr<Thread> spawn(const std::string& name, std::function<void()> body);
  /// Makes one turn of progress: completions, then the service. Any caller's thread may call;
  /// returns at once while another thread makes a turn. A runtime with one caller then goes on with
  /// that caller's dropped work, because no other thread uses the caller. Throws as spawn() says.
  void turn();
  /// The same from the thread of `caller`, and goes on with the caller's dropped work. Returns true
  /// as Caller::go_on() does.
  bool turn(Caller& caller);
  /// Handles completions only. Returns true if there were any. Throws Error(kUnavailable) when the
  /// completion queue has overrun, as every turn and wait does then: no request ends any more.
  bool progress();
  /// Sets whether turns call the service. Any thread may call.
  void want_service(bool wanted) { service_wanted_.store(wanted, std::memory_order_release); }
  bool service_wanted() const { return service_wanted_.load(std::memory_order_acquire); }
  /// Returns the connection for messages to `peer`, another node. Requires message_entries.
  Connection& messages(NodeId peer) { return *messages_.at(peer); }

  // Peers that are down. A peer goes down when a connection to it first ends with kRetryExceeded
  // (the peer does not answer) or kFlushed (the peer has closed its end), or when the system
  // declares it down. The connections of all callers to it enter the error state, so requests in
  // flight and later requests end at once, with the status that says why the peer is down;
  // AckKey::failed_peer() names it. All other peers go on. Other errors end one connection and
  // leave the peer up.

  /// Returns true while requests to `peer` may succeed.
  bool is_up(NodeId peer) const { return why_down(peer) == fabric::Status::kSuccess; }
  /// Returns why `peer` is down; kSuccess while it is up.
  fabric::Status why_down(NodeId peer) const {
    return peers_[peer].down.load(std::memory_order_acquire);
  }
  /// Returns the peers that are down, such as " 3 4", for reports.
  std::string down_peers() const;
  /// The system declares that `peer`, another node, is down, though its connections may not have
  /// noticed. Any thread may call; blocks for the NIC's time per connection.
  void declare_down(NodeId peer, fabric::Status why = fabric::Status::kRetryExceeded);

  /// Makes one step towards a peer that is down: connects with its present incarnation or the next,
  /// once the peer takes the same steps. Returns true once `peer` is up; false: call turn() and try
  /// again. Nothing else remains of an earlier incarnation: the system must send its new
  /// addresses to its peers. One thread at a time may call; with one caller, only that caller's
  /// thread. Blocks for the control path only.
  bool try_reconnect(NodeId peer);
  /// Makes steps until `peer` is up. Returns false after `deadline`, in Env::now() time.
  bool reconnect(NodeId peer, Time deadline);

  /// Ends the dropped work of all callers on `object`, which is about to be destroyed; see
  /// Caller::finish_later. Any thread may call.
  void forget(const void* object) {
    for (const auto& caller : callers_) caller->forget(object);
  }

 private:
  friend class Caller;
  struct Peer {
    std::atomic<fabric::Status> down{fabric::Status::kSuccess};
    std::atomic<bool> closing{false};  // its queue pairs must still enter the error state
    // Used by the thread that reconnects.
    std::uint32_t incarnation = 0;  // the newest known one
    std::uint32_t attempt = 0;      // connections already made between the present incarnations
    bool met = false;               // the offered queue pairs are in use; the peer is not ready yet
    std::vector<std::unique_ptr<fabric::QueuePair>> offered;
  };

  void check_options();
  void make_queues();
  std::unique_ptr<fabric::QueuePair> make_queue_pair(bool for_messages);
  std::vector<Connection*> connections_to(NodeId peer);
  std::string exchange_name(NodeId peer) const;
  std::string incarnation_key(NodeId node, std::uint32_t incarnation) const;
  void begin_incarnation();
  void rejoin();
  void start_polling();
  void check_threads();  // throws as spawn() says
  void make_turn();
  void end_requests();
  void finish_dropped(Caller& caller);
  void report_dropped();
  [[noreturn]] void throw_overdue(Caller& caller, const char* what);
  [[noreturn, gnu::cold]] void throw_overrun();
  void poll_if_callers_poll() {
    if (callers_poll_.load(std::memory_order_relaxed)) progress();
  }
  [[gnu::cold]] void keep_failure(const std::string& thread, const Error& error);
  [[noreturn, gnu::cold]] void throw_failure();
  void complete(const fabric::Completion& completion);
  void end_post(Connection& connection);
  [[gnu::cold]] void fail(Connection& connection, const fabric::Completion& completion);
  fabric::Status note_failure(Connection& connection, fabric::Status status);
  void mark_down(NodeId peer, fabric::Status why);
  void close_connections();
  void look_for_next_incarnation(NodeId peer);
  Handshake offer(NodeId peer);
  bool has_ended(NodeId peer);
  bool take_into_use(NodeId peer, const Handshake& handshake);
  void give_up_attempt(NodeId peer);

  Env& env_;
  Options options_;
  const bool alone_;  // a single thread uses this runtime
  Service* service_ = nullptr;
  Service no_service_;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<MemoryPool> memory_;
  ConnectionTable table_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<std::unique_ptr<Connection>> messages_;  // by peer; none for the own node
  std::atomic<bool> polling_{false}, stopping_{false}, service_wanted_{false};
  std::atomic<bool> callers_poll_{true};       // no thread of the runtime polls
  std::atomic<bool> closing_{false};           // true for some peer
  std::atomic<bool> closing_busy_{false};      // a thread closes connections now
  std::array<fabric::Completion, 32> polled_;  // used by the thread that polls
  std::vector<Peer> peers_;
  std::uint32_t incarnation_ = 0;    // of this node, under the runtime's name
  std::atomic<bool> failed_{false};  // a background thread has failed
  Mutex failure_mutex_;
  std::optional<Error> failure_;  // of the first one
  std::unique_ptr<Thread> poller_;
};

}  // namespace pyrdma::runtime
