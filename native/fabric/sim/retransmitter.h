// The retransmitter repeats lost requests of a reliable connection. A negative acknowledgement or a
// timeout starts go-back-N. The connection also waits for a receiver that is not ready (RNR), and
// gives up after too many retries.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;

/// The retry timer of a queue pair, and the progress of its retransmissions.
class RetransmitState final : public SimEvent {
 public:
  explicit RetransmitState(QueuePairCore& qp) : qp_(qp) {}
  void fire(Picos now) override;

  /// The requester sends nothing while the timer runs.
  bool pending() const { return due_ != kNever; }
  void cancel() { due_ = kNever; }
  /// New messages carry this number. The requester has sent requests of older epochs again.
  std::uint32_t epoch() const { return epoch_; }
  bool is_current(std::uint32_t epoch) const { return epoch == epoch_; }
  /// Messages from before the last reset are void.
  bool is_void(std::uint32_t epoch) const { return epoch < first_epoch_; }
  void begin_epoch() { ++epoch_; }
  void answered() { retries_ = 0; }
  /// The responder has executed a new request or chunk.
  void progress() { retries_ = rnr_retries_ = 0; }
  /// Voids all messages that are under way.
  void reset();

 private:
  friend class Retransmitter;
  QueuePairCore& qp_;
  std::uint32_t epoch_ = 0;
  std::uint32_t first_epoch_ = 0;  // first epoch since the last reset
  std::uint64_t epoch_from_ = 0;   // the epoch began with a repetition of this request
  std::uint32_t retries_ = 0, rnr_retries_ = 0;
  bool is_rnr_ = false, after_timeout_ = false;  // why the timer runs
  Picos due_ = kNever;
  std::uint64_t from_ = 0;  // the first request to send again
};

class Retransmitter {
 public:
  explicit Retransmitter(Nic& nic) : nic_(nic) {}

  /// A fault or the switch has lost a message to this NIC: a request of any initiator, or a
  /// response to this initiator. `later_packets_tell`: the responder will notice the gap.
  void lost(Message& message, Picos now, bool later_packets_tell);
  /// The responder has noticed a gap.
  void ask_again(QueuePairCore& qp, Picos now);
  /// A response of `epoch` came before that to an earlier request.
  void response_missing(QueuePairCore& qp, std::uint32_t epoch, Picos now);
  /// Schedules the retransmission from `from` on at `when`. `rnr`: the receiver is not ready.
  void schedule(QueuePairCore& qp, std::uint64_t from, Picos when, bool rnr);
  /// The timer has expired.
  void retry(QueuePairCore& qp, Picos now);

 private:
  static std::uint64_t first_to_repeat(QueuePairCore& qp);
  bool gives_up(QueuePairCore& qp, std::uint64_t& from);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
