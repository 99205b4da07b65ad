#include "fabric/sim/ingress.h"

#include <algorithm>

#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

Ingress::Passage Ingress::pass(const Message& message, Picos now, Picos engine_cost,
                               Picos not_before) {
  Picos arrival = now - message.lead;
  if (message.sender != &nic_) {
    if (message.dropped) return drop();
    NicFaults* faults = nic_.faults();
    const bool no_buffer = faults != nullptr && faults->no_buffer_until > now;
    const Network::PortResult port =
        nic_.fabric().network.enter_port(nic_.port(), arrival, message.wire_bytes, no_buffer);
    if (port.dropped) {
      if (no_buffer) faults->stream.reach(Fault::buffer_overflow);
      return drop();
    }
    if (port.long_queue) message.sender->transmitter.control_flow(message, arrival, port);
    arrival += port.delay;
    nic_.counters().ecn_marked += port.ecn_marked || message.ecn_marked;
  }
  engine_free_ =
      std::max(engine_free_, arrival + nic_.times().rx_latency) + (engine_cost << nic_.slow());
  return {false, std::max({now, engine_free_ + message.placement, not_before})};
}

Ingress::Passage Ingress::drop() {
  ++nic_.counters().dropped;
  return {true, 0};
}

}  // namespace pyrdma::fabric::sim
