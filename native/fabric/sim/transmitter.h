// The transmitter sends a message from the NIC to the port of the last switch. The message reserves
// the node's link and crosses the network. The step that receives the message schedules its
// arrival. A message to another rack has an event at each switch on its way.
#pragma once
#include <algorithm>

#include "fabric/sim/network.h"
#include "fabric/sim/server.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;

class Transmitter {
 public:
  explicit Transmitter(Nic& nic) : nic_(nic) {}

  /// Sends a request to its `owner`. The requester engine has it at `begin`; its context and
  /// payload have come by `ready`. Returns the time at which the request has left.
  Picos send_request(Message& message, Picos now, Picos begin, Picos ready);
  /// Sends a response to its initiator. The response can leave from `ready` on.
  void send_response(Message& message, Picos now, Picos ready);
  /// Sends `packets` short packets that the simulation does not follow to `receiver`: they take
  /// their time of the pipelines and of the link.
  void send_control(Nic& receiver, std::uint32_t packets, Picos now, Picos ready);
  /// A message of this NIC has reached a switch on its way to another rack.
  void cross_racks(Message& message, Picos now);

  /// Returns the time at which the link and the sending pipeline have sent all messages.
  Picos free_at() const { return link_free_; }
  Picos pipeline_free_at() const { return pipeline_.free_at(); }
  Picos paused_until() const { return paused_until_; }
  /// A message of this NIC waits in a long queue of the last switch. The switch may pause the port
  /// from which it got the message: the NIC's port, or that of a spine switch.
  void control_flow(const Message& message, Picos arrival, const Network::PortResult& port);
  /// A pause storm, which is a fault, pauses this NIC's transmitter until `until`. The value 0 ends
  /// the storm.
  void storm(Picos until);
  /// A turn of the requester engine waits until `free`. Counts the pause storm that caused the
  /// wait.
  void note_storm(Picos free) const;

 private:
  template <class State>
  Picos leave(State& state, const Nic& receiver, const Message& message, Picos now, Picos begin,
              Picos ready);
  [[gnu::cold, gnu::noinline]] void record(const Nic& receiver, const Message& message, Picos left);
  Picos arrival(const Nic& receiver, Picos left) const;
  bool begin_crossing(const Nic& receiver, Message& message, Picos left);
  void arrive(Message& message, Picos arrival, Picos now);
  Network::Path path(const Message& message) const;
  void control_flow(const Message& message, std::uint32_t in, std::uint32_t out, Picos arrival,
                    const Network::PortResult& port);
  /// Flow control pauses this NIC's link until `until`.
  void pause(Picos until);
  Nic& nic_;
  Server pipeline_;
  Picos link_free_ = 0;
  Picos paused_until_ = 0;
};

}  // namespace pyrdma::fabric::sim
