// The way of a message from the port of the last switch through the receiving NIC's pipeline. The
// message waits behind the port's backlog. The switch may drop or mark the message or pause its
// sender. The message then passes the receiving pipeline, which requests and responses share.
#pragma once
#include <cstdint>

#include "fabric/sim/server.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class Ingress {
 public:
  explicit Ingress(Nic& nic) : nic_(nic) {}

  /// Takes a message whose due time without further delay is `now`. Returns the time at which the
  /// engines have the message, or kNever when the switch dropped it. Notes the mark of the last
  /// port.
  Picos receive(Message& message, Picos now);
  /// Takes `packets` short packets that the simulation does not follow.
  void receive_control(std::uint32_t packets);
  void drop_backlog(Picos now) { pipeline_.drop_backlog(now); }

 private:
  Picos drop();
  [[gnu::cold, gnu::noinline]] void record(const Message& message, Picos first, Picos passed,
                                           Picos received);
  Nic& nic_;
  Server pipeline_;
};

}  // namespace pyrdma::fabric::sim
