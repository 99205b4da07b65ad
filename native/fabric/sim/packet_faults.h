// Faults act on a packet that reaches a NIC. A fault loses, duplicates, reorders, delays or
// corrupts the packet. NicFaults holds the fault windows of the link. Reachability holds the
// blocked paths between nodes.
#pragma once
#include "env/faults.h"
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class PacketFaults {
 public:
  explicit PacketFaults(Nic& nic) : nic_(nic) {}
  /// Returns true when a fault has lost or delayed the packet; the caller must then leave the
  /// packet alone.
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
