// From the doorbell to the link: the requester engine fetches work requests of the active queue
// pairs in turn, checks them, has their payload fetched and hands messages to the transmitter. It
// never runs far ahead of the link, so that later requests of other queue pairs find their turn.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;
struct SendEntry;

/// What the requester engine knows of a queue pair.
struct RequesterState {
  std::uint64_t next = 0;               // the next request to send
  std::uint32_t chunk_offset = 0;       // progress within it
  std::uint32_t outstanding_reads = 0;  // reads and atomics from `completed` up to `next`
  bool active = false;                  // in the engine's list
  bool blocked = false;                 // by a fence, or by too many reads: a response reactivates
  Status pending_failure = Status::kSuccess;  // of the request `next`
  std::uint64_t awaited = 0;  // completed must reach this before a local error may be reported
  Picos ready_at = 0;
  QueuePairCore* next_active = nullptr;
  const Nic* dc_target = nullptr;  // the peer of the connection that a DC initiator has at present

  /// A request that was sent is done.
  void answered(std::uint64_t sequence, bool needed_data) {
    if (sequence < next) outstanding_reads -= needed_data;
  }
  /// Nothing more is sent of what was posted so far.
  void stop(std::uint64_t posted) {
    go_to(posted);
    pending_failure = Status::kSuccess;
  }
  /// Sending goes on at `sequence`.
  void go_to(std::uint64_t sequence) {
    next = sequence;
    chunk_offset = 0;
  }
  /// Sending goes on at `sequence`, unless it is there already: what comes before was answered.
  void skip_to(std::uint64_t sequence) {
    if (next < sequence) go_to(sequence);
  }
  /// Sends again from `sequence` on, which is the first that waits for data.
  void repeat_from(std::uint64_t sequence);
  void reset();
};

class Requester final : public SimEvent {
 public:
  explicit Requester(Nic& nic) : nic_(nic) {}

  /// The CPU has posted requests that reach the NIC at `when`.
  void doorbell(QueuePairCore& qp, Picos when);
  /// A queue pair has requests that the NIC may process from `when` on.
  void activate(QueuePairCore& qp, Picos when);
  /// What blocked the queue pair may be over.
  void unblock(QueuePairCore& qp);
  /// The link may be used again at `when`.
  void resume(Picos when);
  /// The engine's turn.
  void fire(Picos now) override;
  void prefetch() const override;

 private:
  enum class Step { kSent, kWaits, kBlocked };
  // Inline: the steps of send_chunk(), in the file of their only caller.
  Step turn(QueuePairCore& qp, Picos now);
  Step send_chunk(QueuePairCore& qp, Picos now);
  inline Step fetch(QueuePairCore& qp, Picos now);
  static inline bool may_start(const QueuePairCore& qp, const SendEntry& entry);
  inline Status check(QueuePairCore& qp) const;
  inline Status check_keys(QueuePairCore& qp) const;
  inline Message& make_message(QueuePairCore& qp);
  inline bool load_payload(Message& message, QueuePairCore& qp);
  inline Picos dc_cost(QueuePairCore& qp, const Nic* target, Picos now);
  inline void sent(QueuePairCore& qp, const SendEntry& entry);
  Picos earliest_turn() const;
  void append(QueuePairCore& qp);
  void schedule(Picos when);

  Nic& nic_;
  Picos engine_free_ = 0;
  Picos due_ = kNever;  // of the engine's next turn
  QueuePairCore* first_active_ = nullptr;
  QueuePairCore* last_active_ = nullptr;
};

}  // namespace pyrdma::fabric::sim
