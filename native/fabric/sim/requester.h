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
class RequesterState {
 public:
  /// Request `sequence` is complete.
  void answered(std::uint64_t sequence, bool needed_data) {
    if (sequence < next_) outstanding_reads_ -= needed_data;
  }
  /// Stops the sending of all requests posted so far.
  void stop(std::uint64_t posted) {
    go_to(posted);
    pending_failure_ = Status::kSuccess;
  }
  /// Continues the sending at `sequence`, unless it is already there or later. All earlier requests
  /// have been answered.
  void skip_to(std::uint64_t sequence) {
    if (next_ < sequence) go_to(sequence);
  }
  /// Sends again from `sequence` on. No earlier request still waits for data. Returns the number of
  /// requests that the requester had sent.
  std::uint64_t repeat_from(std::uint64_t sequence);
  void reset();

  /// The next request to send.
  std::uint64_t next() const { return next_; }
  /// Returns whether a chunk of request `sequence` or a later request has been sent.
  bool has_sent(std::uint64_t sequence) const { return next_ > sequence || chunk_offset_ != 0; }
  /// Returns whether a request behind `sequence` has been sent.
  bool has_sent_behind(std::uint64_t sequence) const { return next_ > sequence + 1; }
  /// A fence or too many reads stop the sending. A response lets the sending continue.
  bool blocked() const { return blocked_; }
  /// The reason why the next request cannot be sent.
  Status pending_failure() const { return pending_failure_; }
  /// Returns whether the pending failure may be reported. All requests before `completed` have
  /// completed.
  bool may_report_failure(std::uint64_t completed) const { return completed >= awaited_; }

 private:
  friend class Requester;
  void go_to(std::uint64_t sequence) {
    next_ = sequence;
    chunk_offset_ = 0;
  }

  std::uint64_t next_ = 0;               // the next request to send
  std::uint32_t chunk_offset_ = 0;       // bytes of `next_` that are already sent
  std::uint32_t outstanding_reads_ = 0;  // reads and atomics before `next_` without an answer
  bool active_ = false;                  // the engine's list has the queue pair
  bool blocked_ = false;
  Status pending_failure_ = Status::kSuccess;
  std::uint64_t awaited_ = 0;  // all requests before this one complete before a failure is reported
  Picos ready_at_ = 0;
  QueuePairCore* next_active_ = nullptr;
  const Nic* dc_target_ = nullptr;  // the present target of a DC initiator
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
