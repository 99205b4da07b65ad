// The way of a message from the port of the last switch through the receiving NIC's pipeline. The
// message waits behind the port's backlog. The switch may drop or mark the message or pause its
// sender. The message then occupies the NIC's receiving engine.
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
    Picos due;  // time at which the message has its effect in the host's memory
  };
  /// Passes a message whose due time without further delay is `now`. The message is done at
  /// `not_before` at the earliest.
  Passage pass(const Message& message, Picos now, Picos engine_cost, Picos not_before);

 private:
  Passage drop();
  Nic& nic_;
  Picos engine_free_ = 0;
};

}  // namespace pyrdma::fabric::sim
