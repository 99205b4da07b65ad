// From the NIC to the port of the last switch: a message reserves the node's link, crosses the
// network and is scheduled for when its receiver will have served it, if nothing delays it there.
#pragma once
#include <algorithm>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

/// Requests of a queue pair reach the target in order, and so do their responses, whatever each one
/// costs there.
struct TransmitState {
  Picos last_request_due = 0, last_response_due = 0;
};

class Transmitter {
 public:
  explicit Transmitter(Nic& nic) : nic_(nic) {}

  /// Sends a request to its `owner`; it can leave from `ready` on.
  void send_request(Message& message, Picos ready);
  /// Sends a message back to its initiator; it can leave from `ready` on.
  void send_response(Message& message, Picos ready, Picos now);
  /// The acknowledgement of an unsignaled request is not followed, but it uses the link.
  void send_acknowledgement(Picos ready);

  Picos free_at() const { return link_free_; }
  Picos paused_until() const { return paused_until_; }
  /// Flow control stops this NIC's sending.
  void pause(Picos until);
  /// Flow control stops this NIC's sending until then because of a fault; 0: it may go on.
  void storm(Picos until);
  /// A turn of the requester engine waits until `free`.
  void note_storm(Picos free) const;

 private:
  inline Picos cross(const Nic& receiver, const Message& message, Picos ready, std::uint64_t flow);
  Nic& nic_;
  Picos link_free_ = 0;
  Picos paused_until_ = 0;
};

}  // namespace pyrdma::fabric::sim
