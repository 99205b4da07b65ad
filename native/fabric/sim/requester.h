// The requester engine works between the doorbell and the link. The engine fetches work requests of
// the active queue pairs in turn, checks each request, starts the DMA of the payload and hands
// messages to the transmitter. The engine never runs far ahead of the link, so later requests of
// other queue pairs get their turn.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;
struct SendEntry;

/// The requester engine's state of a queue pair.
struct RequesterState {
  std::uint64_t next = 0;               // the next request to send
  std::uint32_t chunk_offset = 0;       // bytes of `next` that are already sent
  std::uint32_t outstanding_reads = 0;  // reads and atomics from `completed` up to `next`
  bool active = false;                  // the engine's list has the queue pair
  bool blocked = false;                 // a fence or too many reads block; a response unblocks
  Status pending_failure = Status::kSuccess;  // failure of the request `next`
  std::uint64_t awaited = 0;  // a local error is reported once `completed` has reached this
  Picos ready_at = 0;
  QueuePairCore* next_active = nullptr;
  const Nic* dc_target = nullptr;  // the present target of a DC initiator

  /// Request `sequence` is complete.
  void answered(std::uint64_t sequence, bool needed_data) {
    if (sequence < next) outstanding_reads -= needed_data;
  }
  /// Stops the sending of all requests posted so far.
  void stop(std::uint64_t posted) {
    go_to(posted);
    pending_failure = Status::kSuccess;
  }
  /// Continues the sending at `sequence`.
  void go_to(std::uint64_t sequence) {
    next = sequence;
    chunk_offset = 0;
  }
  /// Continues the sending at `sequence`, unless it is already there or later. All earlier requests
  /// have been answered.
  void skip_to(std::uint64_t sequence) {
    if (next < sequence) go_to(sequence);
  }
  /// Sends again from `sequence` on. No earlier request still waits for data.
  void repeat_from(std::uint64_t sequence);
  void reset();
};

class Requester final : public SimEvent {
 public:
  explicit Requester(Nic& nic) : nic_(nic) {}

  /// The CPU has posted requests. The requests reach the NIC at `when`.
  void doorbell(QueuePairCore& qp, Picos when);
  /// A queue pair has requests that the NIC may process from `when` on.
  void activate(QueuePairCore& qp, Picos when);
  /// The requests that blocked the queue pair may have completed.
  void unblock(QueuePairCore& qp);
  /// The requester may use the link again at `when`.
  void resume(Picos when);
  /// Runs the engine's turn.
  void fire(Picos now) override;
  void prefetch() const override;

 private:
  enum class Step { kSent, kWaits, kBlocked };
  // The inline functions are steps of send_chunk(). Their only caller is in the same file.
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
  Picos due_ = kNever;  // time of the engine's next turn
  QueuePairCore* first_active_ = nullptr;
  QueuePairCore* last_active_ = nullptr;
};

}  // namespace pyrdma::fabric::sim
