// The runtime of a node, for any protocol over RDMA. Callers with their connections, one
// completion queue for all of them, registered memory, and the peers, of which some may be down.
//
//   runtime.cc       set-up, completions, waiting
//   dead_peers.cc    a peer goes down
//   reconnect.cc     a peer comes back
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "env/env.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "runtime/caller.h"
#include "runtime/connection.h"
#include "runtime/exchange.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime {

/// The thread that polls the completion queue.
enum class Polling : std::uint8_t {
  kThread,   // a thread of the runtime's own (LOCO, A.1): callers never touch the queue
  kCallers,  // the caller that waits: no further thread, for machines that are short of cores
};

struct Options {
  std::string name = "runtime";  // of the system and the run: nodes of one name meet
  std::uint32_t callers = 1;     // threads that use the network, each with its connections; 1..64
  Polling polling = Polling::kCallers;
  std::uint32_t max_in_flight = 256;  // requests per caller
  std::uint64_t page_bytes = 16 * kMiB;
  std::uint32_t block_bytes = 256;        // of a temporary block
  std::uint32_t blocks = 256;             // per caller, at first
  std::uint32_t max_inline = 64;          // bytes of a write that are copied at the post
  std::uint32_t message_entries = 0;      // of a further connection to each peer; 0: there is none
  Time wait_timeout = 10 * kSecond;       // of any one wait; then it is an error that names a cause
  std::uint32_t timeout_us = 1000;        // of a connection, per attempt
  bool fences_trust_completions = false;  // a deliberate bug, for tests: fences read nothing back
};

/// The part of a system in the runtime of a node. The thread that makes progress calls it, one at a
/// time.
class Service {
 public:
  virtual ~Service() = default;
  /// A connection for messages has been made, at first or anew: post receives. The peer sends when
  /// this has returned.
  virtual void connected(Connection& /*messages*/) {}
  /// A completion of a connection for messages.
  virtual void completed(Connection& /*messages*/, const fabric::Completion& /*completion*/) {}
  /// Runs in turns while want_service(true) holds. May block. Several threads may come at once.
  virtual void serve() {}
  /// `peer` is down; once per time that it was up, by the thread that finds or declares it. Must
  /// not block.
  virtual void peer_down(NodeId /*peer*/, fabric::Status /*why*/) {}
};

/// One per node and run of a system. Outlives the objects that use its callers.
class Runtime {
 public:
  /// Opens the device and makes memory, callers and queue pairs. Throws Error(kInvalidArgument) for
  /// an option out of its bounds.
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

  /// Connects with all other nodes and meets them; blocks for that. Then the polling thread starts.
  /// On a node that was restarted within the run, no peer is waited for: all but the own node are
  /// down until reconnect(). `service` outlives the runtime or stop(). Throws Error(kTimeout)
  /// naming the nodes that did not come.
  void connect(Service* service = nullptr);
  /// True once this node has a life before this one under the runtime's name.
  bool is_restarted() const { return life_ != 0; }
  /// Ends the polling thread; call it before the service, or anything that it uses, is destroyed.
  void stop();
  /// Waits until the callers' requests have ended. Throws Error(kTimeout).
  void drain();
  /// Ends this node's part in good order: drains, then meets all other nodes, so that no node uses
  /// memory that is gone. Without it a peer's last requests fail. Throws Error(kTimeout) naming the
  /// nodes that did not come. A system that goes on without dead peers drains, and meets the others
  /// by means of its own.
  void leave();

  /// Blocks until ready(), polling where callers poll. Throws Error(kTimeout), with `what` was
  /// waited for and the peers that do not answer, after wait_timeout.
  void wait_until(Caller& caller, FunctionRef<bool()> ready, const char* what);
  /// One turn of progress: completions, then the service. Any caller's thread; returns at once when
  /// another is at it.
  void turn();
  /// Completions alone. True when there were any.
  bool progress();
  /// Whether turns call the service; any thread.
  void want_service(bool wanted) { service_wanted_.store(wanted, std::memory_order_release); }
  bool service_wanted() const { return service_wanted_.load(std::memory_order_acquire); }
  /// The connection for messages to `peer`, another node. Requires message_entries.
  Connection& messages(NodeId peer) { return *messages_.at(peer); }

  // Peers that are down. A peer goes down when a connection to it first ends with kRetryExceeded
  // (it does not answer) or kFlushed (it has closed its end), or when the system says so. Its
  // connections of all callers go to the error state, so that requests in flight and requests
  // posted later ends at once, with the status why it is down; AckKey::failed_peer() names it. All
  // other peers go on. Other errors end one connection and leave the peer up.

  /// True while requests to `peer` may succeed.
  bool is_up(NodeId peer) const { return why_down(peer) == fabric::Status::kSuccess; }
  /// Why `peer` is down; kSuccess while it is up.
  fabric::Status why_down(NodeId peer) const {
    return peers_[peer].down.load(std::memory_order_acquire);
  }
  /// " 3 4": the peers that are down, for reports.
  std::string down_peers() const;
  /// The system says that `peer`, another node, is down, though its connections may not know yet.
  /// Any thread; blocks for the NIC's time per connection.
  void declare_down(NodeId peer, fabric::Status why = fabric::Status::kRetryExceeded);

  /// One step towards a peer that is down: connects with its present life, or its next, once it
  /// takes the same steps. True once `peer` is up; false: turn() and try again. Nothing else
  /// remains of a life before: the system tells its peers anew where its memory is. One thread at a
  /// time; where there is one caller, its thread. Blocks for the control path only.
  bool try_reconnect(NodeId peer);
  /// Steps until `peer` is up. False after `deadline`, in Env::now() time.
  bool reconnect(NodeId peer, Time deadline);

 private:
  friend class Caller;
  struct Peer {
    std::atomic<fabric::Status> down{fabric::Status::kSuccess};
    std::atomic<bool> closing{false};  // its queue pairs are yet to go to the error state
    // Of the thread that reconnects.
    std::uint32_t life = 0;     // the newest that is known
    std::uint32_t attempt = 0;  // connections that the two present lives have made before
    bool met = false;           // the offered queue pairs are in use; the peer is not ready yet
    std::vector<std::unique_ptr<fabric::QueuePair>> offered;
  };

  void check_options();
  void make_queues();
  std::unique_ptr<fabric::QueuePair> make_queue_pair(bool for_messages);
  std::vector<Connection*> connections_to(NodeId peer);
  std::string exchange_name(NodeId peer) const;
  std::string life_key(NodeId node, std::uint32_t life) const;
  void begin_life();
  void rejoin();
  void start_polling();
  void complete(const fabric::Completion& completion);
  void end_post(Connection& connection);
  [[gnu::cold]] void fail(Connection& connection, const fabric::Completion& completion);
  fabric::Status note_failure(Connection& connection, fabric::Status status);
  void mark_down(NodeId peer, fabric::Status why);
  void close_connections();
  void look_for_next_life(NodeId peer);
  void offer(NodeId peer);
  bool has_ended(NodeId peer);
  bool take_into_use(NodeId peer, const std::vector<fabric::QpAddress>& addresses);
  void give_up_attempt(NodeId peer);

  Env& env_;
  Options options_;
  const bool alone_;  // one thread uses this runtime
  Service* service_ = nullptr;
  Service no_service_;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<MemoryPool> memory_;
  ConnectionTable table_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<std::unique_ptr<Connection>> messages_;  // by peer; none for this node
  std::atomic<bool> polling_{false}, stopping_{false}, service_wanted_{false};
  std::atomic<bool> closing_{false};           // some peer's
  std::atomic<bool> closing_busy_{false};      // a thread is at it
  std::array<fabric::Completion, 32> polled_;  // of the thread that polls
  std::vector<Peer> peers_;
  std::uint32_t life_ = 0;  // of this node, under the runtime's name
  std::unique_ptr<Thread> poller_;
};

}  // namespace pyrdma::runtime
