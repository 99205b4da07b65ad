// What a reliable connection does when something does not get through: go-back-N from what the
// responder expects, after a negative acknowledgement or a timeout; waiting for a receiver that is
// not ready; giving up.
#pragma once
#include <cstdint>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;

/// The retry timer of a queue pair, and what it has sent again.
struct RetransmitState final : SimEvent {
  explicit RetransmitState(QueuePairCore& owner) : qp(owner) {}
  void fire(Picos now) override;

  QueuePairCore& qp;
  std::uint32_t epoch = 0;
  std::uint32_t first_epoch = 0;  // since the last reset: what is older answers nothing
  std::uint64_t epoch_from = 0;   // the first request that it sent again
  std::uint32_t retries = 0, rnr_retries = 0;
  bool is_rnr = false, after_timeout = false;  // why the timer runs
  Picos due = kNever;                          // nothing is sent until then
  std::uint64_t from = 0;                      // what it will send again
  bool pending() const { return due != kNever; }
  void cancel() { due = kNever; }
  void begin_epoch() { ++epoch; }
  void answered() { retries = 0; }
  /// The responder has executed something new.
  void progress() { retries = rnr_retries = 0; }
  /// What is under way counts no more.
  void reset();
};

class Retransmitter {
 public:
  explicit Retransmitter(Nic& nic) : nic_(nic) {}

  /// A request of any initiator that should have arrived here, or a response to this one, did not
  /// get through. `later_packets_tell`: the responder will notice the gap.
  void lost(Message& message, Picos now, bool later_packets_tell);
  /// The responder has noticed a gap.
  void ask_again(QueuePairCore& qp, Picos now);
  /// A response of `epoch` came before that to an earlier request.
  void response_missing(QueuePairCore& qp, std::uint32_t epoch, Picos now);
  /// Sends again from `from` on at `when`. `rnr`: since the receiver is not ready.
  void schedule(QueuePairCore& qp, std::uint64_t from, Picos when, bool rnr);
  /// The timer has run off.
  void retry(QueuePairCore& qp, Picos now);

 private:
  static std::uint64_t first_to_repeat(QueuePairCore& qp);
  bool gives_up(QueuePairCore& qp, std::uint64_t& from);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
