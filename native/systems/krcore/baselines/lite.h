// LITE (Tsai and Zhang, SOSP 2017): the kernel of a node shares reliable queue pairs among all its
// applications (KRCore, section 2.3.2). Each call is one system call for one remote operation.
//
// What the paper does not say follows LITE's public code (core/lite_core.c, lite.h): four queue
// pairs to a node that take turns, a send queue of 258 entries, a completion queue of 257. A
// request has the address of its state as wr_id, so whoever polls a shared queue ends the requests
// of others, too. A synchronous call posts and polls. An asynchronous one posts alone, and nobody
// counts what is under way: too much of it overruns the completion queue, and with it the queue
// pair fails for all applications (section 5.2). The only locks are the driver's, one for posts and
// one for polls.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "env/sync.h"
#include "fabric/fabric.h"
#include "systems/krcore/control/control_port.h"
#include "systems/krcore/control/failure.h"

namespace pyrdma::krcore {

/// Who makes connections. KRCore's authors made LITE's control path decentralised (section 5).
enum class LiteControl : std::uint8_t {
  kDecentral,  // the two nodes, by datagrams
  kCentral,    // a manager, one connection after another, as in the original
};

struct LiteOptions {
  static constexpr std::uint32_t kDepth = 256;  // RECV_DEPTH of LITE's code

  std::string name = "lite";                // the pools of one name meet
  std::uint32_t connections_per_peer = 4;   // NUM_PARALLEL_CONNECTION
  std::uint32_t send_entries = kDepth + 2;  // max_send_wr
  std::uint32_t completions = kDepth + 1;   // of the queue pair's own completion queue
  LiteControl control = LiteControl::kDecentral;
  NodeId manager = 0;
  /// What the manager's exchanges by TCP with both ends take. The paper gives only the rate that
  /// follows, tens of queue pairs per second (section 2.3.2): ours.
  Time manager_turn = 20 * kMillisecond;
  /// Threads that make the passive ends, enough to keep the NIC busy. Ours.
  std::uint32_t builders = 4;

  /// Throws Error(kInvalidArgument) that names the option, its value and the bound.
  void check(NodeId nodes) const;
};

/// The memory of connections, by the paper's count (section 2.3.2, footnote 3).
struct LiteMemory {
  static constexpr std::uint64_t kSendEntries = 292, kSendBytes = 448;
  static constexpr std::uint64_t kCompletions = 257, kCompletionBytes = 64;
  /// Of both queues, without the driver's rounding.
  static constexpr std::uint64_t kQueues =
      kSendEntries * kSendBytes + kCompletions * kCompletionBytes;
  /// With it: the paper's 159 KB, in units of 1,024 bytes (ambiguity qp_memory_arithmetic).
  static constexpr std::uint64_t kConnection = 159 * 1024;
  /// A connection's receives: LITE's code has 256 of 32 pieces, and a piece has 16 bytes.
  static constexpr std::uint64_t kMessageQueue = std::uint64_t{LiteOptions::kDepth} * 32 * 16;

  static constexpr std::uint64_t of(std::uint64_t connections, bool with_message_queues) {
    return connections * (kConnection + (with_message_queues ? kMessageQueue : 0));
  }
};
static_assert(LiteMemory::kQueues <= LiteMemory::kConnection);

/// One shared queue pair.
struct LiteConnection {
  explicit LiteConnection(Env& env) : post_mutex(env), poll_mutex(env) {}
  NodeId peer = 0;
  std::unique_ptr<fabric::CompletionQueue> completions;
  std::unique_ptr<fabric::QueuePair> qp;
  Mutex post_mutex, poll_mutex;
  std::atomic<bool> has_failed{false};
};

/// An operation that is under way. It and its buffer must live until the operation has ended, or
/// its connection has failed; its address is the wr_id.
class LiteRequest {
 public:
  LiteRequest() = default;
  LiteRequest(const LiteRequest&) = delete;
  LiteRequest& operator=(const LiteRequest&) = delete;
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  /// Of one that has ended.
  fabric::Status status() const { return status_; }

 private:
  friend class Lite;
  void end(fabric::Status status) {
    status_ = status;
    is_done_.store(true, std::memory_order_release);
  }
  LiteConnection* connection_ = nullptr;
  fabric::Status status_ = fabric::Status::kGeneral;
  std::atomic<bool> is_done_{false};
};

/// The LITE of one node. Any thread of the node may call it.
class Lite {
 public:
  /// Returns when all nodes have one. Control path.
  Lite(Env& env, const LiteOptions& options);
  /// Ends the threads. Requests may not be under way.
  ~Lite();
  Lite(const Lite&) = delete;
  Lite& operator=(const Lite&) = delete;

  Env& env() { return env_; }
  const LiteOptions& options() const { return options_; }
  /// Memory for operations, for all rights of peers: LITE registers the memory of the node once.
  std::unique_ptr<fabric::MemoryRegion> allocate(std::size_t bytes);

  /// Makes sure that there are connections to the node. With cached ones it is the system call
  /// alone; else both ends make connections_per_peer of them. Returns false when the node does not
  /// answer.
  bool connect(NodeId node);
  /// Makes one connection as if none were cached.
  bool connect_anew(NodeId node);

  /// Synchronous operations. A node without a connection fails as kRetryExceeded.
  fabric::Status read(const fabric::Sge& into, const fabric::RemoteRegion& from,
                      std::uint64_t offset) {
    return run(fabric::Opcode::kRead, into, from, offset);
  }
  fabric::Status write(const fabric::Sge& from, const fabric::RemoteRegion& to,
                       std::uint64_t offset) {
    return run(fabric::Opcode::kWrite, from, to, offset);
  }
  /// Posts a read or write. What goes wrong is the request's status.
  void post(fabric::Opcode opcode, const fabric::Sge& local, const fabric::RemoteRegion& remote,
            std::uint64_t offset, LiteRequest& request);
  /// Posts `work` to the node. Its wr_id and flags do not count.
  void post(const fabric::WorkRequest& work, NodeId node, LiteRequest& request);
  /// Polls for a request, within a call. Returns whether it has ended.
  bool has_ended(LiteRequest& request);
  /// Waits for these requests in one call. Returns the first status that is no success.
  fabric::Status wait(std::span<LiteRequest> requests);

  std::uint64_t failed_queue_pairs() const { return failed_.load(std::memory_order_relaxed); }
  /// When the first one failed, in the time of Env::now(); 0 if none has.
  Time first_failure() const { return first_failure_.load(std::memory_order_relaxed); }
  std::uint64_t connections();
  std::uint64_t connections_to(NodeId node) const { return peers_[node]->used.load(); }
  std::uint64_t memory(bool with_message_queues) {
    return LiteMemory::of(connections(), with_message_queues);
  }

 private:
  struct Peer {
    Peer(Env& env, std::uint32_t places) : make_mutex(env), slots(places) {}
    Mutex make_mutex;  // one thread makes connections to a node at a time
    std::vector<std::atomic<LiteConnection*>> slots;
    std::atomic<std::uint32_t> used{0};
    std::atomic<std::uint32_t> next{0};
    std::shared_ptr<fabric::AddressHandle> handle;  // guarded by control_mutex_
    fabric::QpAddress port;                         // of its control path, from the boot on
  };
  /// An exchange that this node has begun.
  struct Making {
    NodeId with = 0;
    std::uint64_t ticket = 0;
    bool has_address = false, is_ready = false;
    fabric::QpAddress theirs;
  };
  struct Made {
    Made(Lite& owner, NodeId with);
    ~Made();
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;
    Lite& lite;
    Making making;
  };
  /// One that a peer has begun. It stays, so that a repeated request has the same answer.
  struct Offer {
    ControlMessage request;
    bool has_queue_pair = false, has_address = false, is_ready = false;
    fabric::QpAddress ours;
  };

  // lite.cc
  fabric::Status run(fabric::Opcode opcode, const fabric::Sge& local,
                     const fabric::RemoteRegion& remote, std::uint64_t offset);
  void start(fabric::Opcode opcode, const fabric::Sge& local, const fabric::RemoteRegion& remote,
             std::uint64_t offset, LiteRequest& request);
  void start(fabric::WorkRequest work, NodeId node, LiteRequest& request);
  void finish(LiteRequest& request);
  bool poll_for(LiteConnection& connection, const LiteRequest& request);
  void fail(LiteConnection& connection);

  // lite_control.cc
  std::unique_ptr<LiteConnection> create(NodeId peer);
  void put(std::unique_ptr<LiteConnection> connection);
  bool make(NodeId node);
  bool exchange(NodeId with, const fabric::QpAddress& port, const ControlMessage& request,
                const Making& making, bool wants_ready);
  bool resolve(NodeId node, fabric::QpAddress& port);
  std::shared_ptr<fabric::AddressHandle> handle_of(NodeId node, const fabric::QpAddress& port);
  void send(NodeId node, const fabric::QpAddress& port, ControlMessage message);
  void answer(const Offer& offer, ControlKind kind);
  void run_control();
  void run_builder();
  void run_manager();
  void take(const ControlMessage& message);
  bool may_offer(const ControlMessage& message) const;
  Offer* next_offer(std::deque<Offer*>& queue);
  void accept(Offer& offer);
  void manage(Offer& offer);
  bool has_ended() const { return stops_.load(std::memory_order_acquire) || failure_.has_failed(); }
  std::string key_of(NodeId node) const { return options_.name + "/lite/" + std::to_string(node); }

  Env& env_;
  const LiteOptions options_;
  std::atomic<bool> stops_{false};
  std::atomic<std::uint64_t> next_ticket_{1}, failed_{0};
  std::atomic<Time> first_failure_{0};
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> receives_;  // of all queue pairs; LITE's messages unused
  std::vector<std::unique_ptr<Peer>> peers_;

  Mutex connections_mutex_;
  std::deque<std::unique_ptr<LiteConnection>> connections_;

  std::unique_ptr<ControlPort> port_;
  Mutex control_mutex_;  // guards the port, and all below
  Watch control_watch_;  // an answer, or a part of an offer, has come
  std::vector<Making*> makings_;
  std::map<std::pair<NodeId, std::uint64_t>, std::unique_ptr<Offer>> offers_;
  std::deque<Offer*> to_build_, to_manage_;
  Failure failure_;  // of a thread
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace pyrdma::krcore
