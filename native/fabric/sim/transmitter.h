// The transmitter sends a message from the NIC to the port of the last switch. The message reserves
// the node's link and crosses the network. The step that receives the message schedules its
// arrival.
#pragma once
#include <algorithm>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class Transmitter {
 public:
  explicit Transmitter(Nic& nic) : nic_(nic) {}

  /// Sends a request to its `owner`. The request can leave from `ready` on.
  void send_request(Message& message, Picos ready);
  /// Sends a response to its initiator. The response can leave from `ready` on.
  void send_response(Message& message, Picos ready, Picos now);
  /// Reserves the link for the acknowledgement of an unsignaled request. The simulation does not
  /// follow the acknowledgement to the initiator.
  void send_acknowledgement(Picos ready);

  Picos free_at() const { return link_free_; }
  Picos paused_until() const { return paused_until_; }
  /// Flow control pauses this NIC's transmitter until `until`.
  void pause(Picos until);
  /// A pause storm, which is a fault, pauses this NIC's transmitter until `until`. The value 0 ends
  /// the storm.
  void storm(Picos until);
  /// A turn of the requester engine waits until `free`. Counts the pause storm that caused the
  /// wait.
  void note_storm(Picos free) const;

 private:
  inline Picos cross(const Nic& receiver, const Message& message, Picos ready, std::uint64_t flow);
  Nic& nic_;
  Picos link_free_ = 0;
  Picos paused_until_ = 0;
};

}  // namespace pyrdma::fabric::sim
