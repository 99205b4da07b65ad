// From the port of the last switch through the receiving pipeline: what reaches a NIC waits for the
// port's backlog, may be dropped, marked or pause its sender there, and occupies the engine.
#pragma once
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class Ingress {
 public:
  explicit Ingress(Nic& nic) : nic_(nic) {}

  struct Passage {
    bool dropped;
    Picos due;  // when the message has taken effect in the host's memory
  };
  /// Passes a message that is due now when nothing delays it. It is not done before `not_before`.
  Passage pass(const Message& message, Picos now, Picos engine_cost, Picos not_before);

 private:
  Nic& nic_;
  Picos engine_free_ = 0;
};

}  // namespace pyrdma::fabric::sim
