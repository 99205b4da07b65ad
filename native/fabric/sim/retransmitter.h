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
struct RetransmitState final : SimEvent {
  explicit RetransmitState(QueuePairCore& owner) : qp(owner) {}
  void fire(Picos now) override;

  QueuePairCore& qp;
  std::uint32_t epoch = 0;
  std::uint32_t first_epoch = 0;  // first epoch since the last reset; older messages are void
  std::uint64_t epoch_from = 0;   // the epoch began with a repetition of this request
  std::uint32_t retries = 0, rnr_retries = 0;
  bool is_rnr = false, after_timeout = false;  // why the timer runs
  Picos due = kNever;                          // the requester sends nothing until then
  std::uint64_t from = 0;                      // the first request to send again
  bool pending() const { return due != kNever; }
  void cancel() { due = kNever; }
  void begin_epoch() { ++epoch; }
  void answered() { retries = 0; }
  /// The responder has executed a new request or chunk.
  void progress() { retries = rnr_retries = 0; }
  /// Voids all messages that are under way.
  void reset();
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
