// The retransmitter repeats lost requests of a reliable connection. A negative acknowledgement, a
// missing response or the retry timer starts go-back-N. The connection also waits for a receiver
// that is not ready (RNR), and gives up after too many retries without progress.
//
// A connection never hangs. Each end of the timer counts as a retry, and only progress sets the
// count back: an acknowledgement or response beyond the furthest byte so far. A responder asks for
// a gap once, and a requester for a missing response once, so after that only the timer repeats. A
// request has a finite number of bytes, so it completes, or its retries run out.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/rng.h"
#include "env/sim/event_queue.h"
#include "fabric/sim/message.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;

/// The retry timer of a queue pair, and the progress of its retransmissions.
class RetransmitState final : public SimEvent {
 public:
  explicit RetransmitState(QueuePairCore& qp) : qp_(qp) {}
  void fire(Picos now) override;

  /// The requester sends nothing while the connection waits for a receiver.
  bool waits_for_receiver() const { return waits_for_receiver_; }
  /// A request has been sent: the timer runs (IBA 9.7.6.1.3). Its event looks when the oldest
  /// unanswered request was sent, and comes again at the end of that wait. So a timer costs an
  /// event per timeout, and not per request.
  void run() {
    if (due_ == kNever) [[unlikely]]
      schedule_timeout();
  }
  /// An answer has come, or comes at `at` for sure: the timer begins anew.
  void hear(Picos at) { heard_ = std::max(heard_, at); }
  /// The peer has acknowledged, or returned, bytes for the first time.
  void progress(Picos at) {
    hear(at);
    retries_ = rnr_retries_ = 0;
    lost_answer_ = false;
  }
  /// A response is lost. The next acknowledgement makes up for it.
  bool lost_answer() const { return lost_answer_; }
  void stop() {
    due_ = kNever;
    waits_for_receiver_ = false;
  }
  /// New messages carry this number.
  std::uint32_t epoch() const { return epoch_; }
  /// Messages from before the last reset are void.
  bool is_void(std::uint32_t epoch) const { return epoch != epoch_; }
  /// Voids all messages that are under way.
  void void_all() { ++epoch_; }
  void reset();

 private:
  friend class Retransmitter;
  void schedule(Picos when);
  void schedule_timeout();
  Picos timeout() const;
  QueuePairCore& qp_;
  std::uint32_t epoch_ = 0;
  std::uint32_t retries_ = 0, rnr_retries_ = 0;  // since the last progress
  bool waits_for_receiver_ = false;
  bool lost_answer_ = false;
  Picos heard_ = 0;          // time of the last answer, or of the last end of the timer
  Picos slack_ = 0;          // the timer takes so much longer than the option says
  Picos due_ = kNever;       // the event that counts comes then
  Position from_;            // the first bytes to send again after the wait for a receiver
  Position hole_{~0ULL, 0};  // the missing response that the requester has asked for again
};

class Retransmitter {
 public:
  Retransmitter(Nic& nic, Rng draws) : nic_(nic), draws_(draws) {}

  /// A fault or the switch has lost a message to this NIC. Later messages, or the initiator's
  /// timer, tell.
  void lost(Message& message, Picos now);
  /// The responder of this NIC's queue pair has found a gap: it expects `from`.
  void sequence_error(QueuePairCore& qp, Position from, Picos now);
  /// The receiver was not ready for `from`, and imposes a wait.
  void receiver_not_ready(QueuePairCore& qp, Position from, Picos now, Picos wait);
  /// A response came before that to an earlier request (IBA 9.9.2.4).
  void response_missing(QueuePairCore& qp, Picos now);
  /// Sends again from `from` on, or from the first request that has not completed.
  void go_back(QueuePairCore& qp, Position from, Picos now);
  /// The timer's event has come.
  void expire(QueuePairCore& qp, Picos now);

 private:
  static Position oldest_unanswered(const QueuePairCore& qp);
  static bool gives_up(QueuePairCore& qp, std::uint64_t sequence);
  static bool may_not_repeat(QueuePairCore& qp, std::uint64_t sequence);
  Nic& nic_;
  Rng draws_;
};

}  // namespace pyrdma::fabric::sim
