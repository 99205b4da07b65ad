// What faults do to a packet that reaches a NIC: lose it, repeat it, let others overtake it, hold
// it back, spoil it. The link's windows stand in NicFaults, the ways between nodes in Reachability.
#pragma once
#include "env/faults.h"
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class PacketFaults {
 public:
  explicit PacketFaults(Nic& nic) : nic_(nic) {}
  /// True when a fault has taken the packet off its way.
  bool meddle(Message& message, Picos now);

 private:
  bool meddle_with(Message& message, Picos now);
  bool is_held(Message& message, Picos now);
  bool loses(Message& message, Picos now);
  void spoil(Message& message);
  void repeat(const Message& message, Picos now);
  bool delays(Message& message, Picos now);
  Fault cut_off(const Nic& sender, Picos now) const;
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
