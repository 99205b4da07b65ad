// A queue pair. post() executes each request at once: the requester's CPU checks it as both NICs
// would, and copies. Only a request that must wait for the peer (no receive posted, no answer) is
// kept, together with all later ones. Later posts and polls of the node and the monitor retry it.
//   queue_pair.cc  control path: states, receives, retries
//   post.cc        data path
//   deliver.cc     data path of messages that take a receive
//   datagrams.cc   data path of datagrams
//   targets.cc     the queue pairs that datagrams and dynamically connected requests name
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/shm/device.h"
#include "fabric/shm/path.h"
#include "fabric/shm/send_completions.h"

namespace pyrdma::fabric::shm {

class ShmCompletionQueue;
class ShmSharedReceiveQueue;

/// Outcome is the result of executing one request.
enum class Outcome : std::uint8_t {
  kDone,
  kNoReceive,  // retry: the peer posted no receive
  kSilent,     // retry: the peer does not answer
  kBusy,       // retry: a node that lives, and may be stopped, holds the receiver's rings
  kLocalLength,
  kLocalProtection,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kUnreachable,  // the peer is gone
};

class Batch;

inline bool must_wait(Outcome outcome) {
  return outcome == Outcome::kNoReceive || outcome == Outcome::kSilent || outcome == Outcome::kBusy;
}

class ShmQueuePair final : public QueuePair, public Waiter {
 public:
  ShmQueuePair(ShmDevice& device, std::uint32_t pd, ShmCompletionQueue& send_queue,
               ShmCompletionQueue& receive_queue, const QpOptions& options,
               ShmSharedReceiveQueue* shared);
  ~ShmQueuePair() override;

  Transport transport() const override { return options_.transport; }
  std::uint32_t qp_num() const override { return qp_num_; }
  QpState state() const override {
    return static_cast<QpState>(entry_.state.load(std::memory_order_acquire));
  }
  QpAddress address() const override;
  PostResult post(std::span<const WorkRequest> requests) override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  void modify(QpState next, const QpAddress* peer) override;
  bool is_quiet() const override;
  bool retry(Time now) override;

 private:
  friend class Batch;
  struct Piece {
    std::byte* data;
    std::uint32_t length;
  };
  /// Pieces are the local buffers of a request.
  struct Pieces {
    std::array<Piece, kMaxSges + 1> at;  // one more for a datagram's header
    std::uint32_t count;
    std::uint64_t bytes;
  };
  /// Waiting is a request that waits, with copies of the data that it pointed to.
  struct Waiting {
    WorkRequest request;
    std::vector<Sge> sges;
    std::vector<std::byte> inline_data;
    std::uint32_t position;
  };

  /// Requests are executed while it exists. A closing peer waits for its end.
  class AtWork {
   public:
    explicit AtWork(QpEntry& entry) : entry_(entry) {
      set_relaxed(entry_.at_work, 1U);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // see thread_order.h
    }
    ~AtWork() { entry_.at_work.store(0, std::memory_order_release); }
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

   private:
    QpEntry& entry_;
  };

  // Data path (post.cc).
  PostResult post_now(std::span<const WorkRequest> requests, std::uint32_t begin,
                      bool is_first_late = false);
  [[gnu::cold, gnu::noinline]] PostResult post_broken(std::span<const WorkRequest> requests,
                                                      std::uint32_t at, Outcome outcome,
                                                      Batch& batch);
  template <bool kIsDynamic>
  PostResult post_simple(std::span<const WorkRequest> requests);
  enum class Simple : std::uint8_t {
    kDone,
    kNot,   // execute() handles the request
    kLate,  // executed, and then an epoch had changed: settle() says what came of it
  };
  template <bool kLooksBefore>
  [[gnu::always_inline]] Simple execute_simple(const WorkRequest& request, Path& path);
  /// What is cached of the peer and of the own regions holds.
  bool is_known(const Path& path) const {
    return path.is_current() && epoch_.load(std::memory_order_acquire) == local_epoch_;
  }
  /// No region has been deregistered since the request began: see remove_region(). The fence orders
  /// the loads of a copy before those of the epochs. A store of the copy may become visible after
  /// them, and be lost with the region. The request is then done just before the deregistration:
  /// whoever learns of its completion before sees its bytes.
  bool is_settled(const Path& path) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return path.is_unchanged() && epoch_.load(std::memory_order_acquire) == local_epoch_;
  }
  [[gnu::cold, gnu::noinline]] Outcome settle(const WorkRequest& request, Path& path, Batch& batch);
  bool has_local_regions(const WorkRequest& request) const;
  void complete_last(const WorkRequest& request);
  void drain_stores();
  /// Returns true when the send queue has room for another request.
  bool has_room() { return room_ != 0 || finds_room(); }
  [[gnu::noinline]] bool finds_room();
  bool may_post(const WorkRequest& request) const;
  void use_room() {
    --room_;
    ++posted_;
  }
  PostResult append(std::span<const WorkRequest> requests, std::uint32_t accepted);
  Outcome execute(const WorkRequest& request, Batch& batch);
  Outcome gather(const WorkRequest& request, std::uint32_t rights, Pieces& pieces);
  [[gnu::noinline]] const Translation* find_local(std::uint32_t key);
  [[gnu::cold, gnu::noinline]] Outcome remote_fault(Outcome fault, Path& path, Batch& batch);
  void fail_responder(Path& path, Batch& batch);
  /// Costs one load when nothing has changed.
  Reach reach(Path& path) { return path.reach(options_.transport, node_.self(), entry_); }
  [[gnu::cold, gnu::noinline]] Outcome not_open(Opened opened, const Batch& batch, Path& path);
  template <bool kClaims>
  Outcome deliver_as(const WorkRequest& request, const Pieces& pieces, Path& path, Batch& batch);
  Outcome deliver(const WorkRequest& request, const Pieces& pieces, Path& path, Batch& batch);
  void prefetch_receive(const Path& path, Batch& batch);
  Status scatter(const Pieces& pieces, Path& path);
  bool has_receive_regions(const Path& path, std::uint64_t bytes) const;

  // Data path of datagrams (datagrams.cc).
  std::uint32_t send_datagrams(std::span<const WorkRequest> requests, Batch& batch);
  Path* known_path(const WorkRequest& request, const Batch& batch) const;
  const std::byte* known_piece(const Sge& sge, bool is_inline) const;
  Outcome execute_datagram(const WorkRequest& request, Pieces& pieces, Batch& batch);

  // The destinations of requests that name them (targets.cc).
  struct Target {
    Path& path;
    Reach reach;
  };
  /// Returns the way to the queue pair that a request names; silent if the key is wrong.
  Target find_target(const WorkRequest& request, Batch& batch);
  Path& target_path(NodeId node, std::uint32_t qpn, Batch& batch);
  Path* known_target(const WorkRequest& request);
  static std::size_t slot_of(NodeId node, std::uint32_t qpn) {
    return mix64((std::uint64_t{node} << 32) | qpn) % kTargetPaths;
  }
  /// Tells the target of a DC request that it is executed. Must precede the look at the path.
  void note_target(NodeId node, std::uint32_t qpn) {
    entry_.at_work.store(target_word(node, qpn), std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // see thread_order.h
  }
  bool has_initiator_at_work(NodeId of) const;

  // Control path (queue_pair.cc).
  PostResult post_slow(std::span<const WorkRequest> requests);
  void keep(const WorkRequest& request, std::uint32_t position);
  void begin_waiting();
  bool wait_over(Outcome reason, Time now);
  void retry_locked(Time now);
  void flush_waiting();
  void complete(const SendCompletion& completion);
  void complete(const Waiting& waited, Status status);
  [[gnu::cold, gnu::noinline]] void lose_completion(bool has_locked);
  void fail(std::uint64_t wr_id, Outcome outcome, std::uint32_t position);
  void enter_own_error(Time patience);
  /// Nothing but the lock says when the last datagram has landed: see is_quiet().
  Time control_patience() const {
    return options_.transport == Transport::kUd ? kLockTimeout : kControlPatience;
  }
  bool flush_own_receives(Time patience);
  /// The node of the only peer that delivers to this queue pair, or kNoNode.
  NodeId only_peer() const { return is_addressed(options_.transport) ? kNoNode : path_.node(); }
  /// A datagram waits no longer than this for rings that a peer holds, and is lost then.
  Time busy_limit() const {
    return options_.transport == Transport::kUd ? kControlPatience : kLockTimeout;
  }
  void list();
  void replace_receives();
  void draw_psn();
  void await_deliveries();
  void lock_waiting();
  void unlock_waiting() { busy_.store(false, std::memory_order_release); }
  class WaitingLock {
   public:
    explicit WaitingLock(ShmQueuePair& qp) : qp_(qp) { qp.lock_waiting(); }
    ~WaitingLock() { qp_.unlock_waiting(); }
    WaitingLock(const WaitingLock&) = delete;
    WaitingLock& operator=(const WaitingLock&) = delete;

   private:
    ShmQueuePair& qp_;
  };

  ShmDevice& device_;
  Node& node_;
  QpOptions options_;
  std::uint32_t pd_;
  std::uint32_t allowed_;             // opcodes, one bit each
  const Word<std::uint64_t>& epoch_;  // epoch of this node
  std::uint32_t qp_num_;
  QpEntry& entry_;
  ShmCompletionQueue& send_queue_;
  ShmCompletionQueue& receive_queue_;
  ShmSharedReceiveQueue* shared_;
  std::uint64_t ring_offset_ = 0;
  ReceivePoster receives_;
  std::uint32_t psn_ = 0;

  std::uint32_t posted_ = 0;     // position of the latest request
  std::uint32_t reset_at_ = 0;   // the latest request before the last reset, which ended all
  std::uint32_t room_ = 0;       // requests known to fit
  bool stores_drained_ = false;  // within the running post
  Path path_;                    // RC, UC
  TakenReceive receive_;         // scratch of deliver()
  bool has_taken_ = false;       // receive_ is for the request that waits
  KeyCache local_regions_;
  std::uint64_t local_epoch_ = 0;
  static constexpr std::size_t kTargetPaths = 64;
  std::vector<std::unique_ptr<Path>> target_paths_;  // UD, DC
  Path* last_target_ = nullptr;                      // DC: one of them

  std::atomic<bool> is_waiting_{false};
  // Guards the members below, and all of the data path while is_waiting_.
  std::atomic<bool> busy_{false};
  std::deque<Waiting> waiting_;
  bool flush_pending_ = false;  // of the own receives: a peer holds their ring
  bool listed_ = false;
  Outcome wait_reason_ = Outcome::kDone;
  std::uint32_t attempts_ = 0;
  Time rnr_timer_ = 0;  // of the responder that had no receive
  Time next_attempt_ = 0, silent_until_ = 0;
  Time busy_since_ = 0;  // the receiver's rings are held
  Time flush_since_ = 0;
};

}  // namespace pyrdma::fabric::shm
