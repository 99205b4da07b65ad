#include "fabric/sim/ingress.h"

#include <algorithm>

#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

Picos Ingress::receive(Message& message, Picos now) {
  Picos arrival = now - message.lead;
  const Picos first = arrival;
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
    message.ecn_marked |= port.ecn_marked;
    nic_.counters().ecn_marked += message.ecn_marked;
  }
  const NicTimes& t = nic_.times();
  const Picos received = pipeline_.serve_packets(now, arrival + t.rx_latency, message.packets,
                                                 t.rx_packet << nic_.slow());
  if (nic_.timeline() != nullptr) [[unlikely]]
    record(message, first, arrival, received);
  return received;
}

// The message's last byte was due at the port at `first`, and has passed it at `passed`.
void Ingress::record(const Message& message, Picos first, Picos passed, Picos received) {
  if (message.sender != &nic_)
    nic_.record(TimelineRow::kPort, message, first - nic_.fabric().network.hop(), passed);
  const Picos packet = nic_.times().rx_packet << nic_.slow();
  nic_.record(TimelineRow::kReceiver, message, received - message.packets * packet, received);
}

void Ingress::receive_control(std::uint32_t packets) {
  pipeline_.serve(0, 0, packets * nic_.times().rx_packet);
}

Picos Ingress::drop() {
  ++nic_.counters().dropped;
  return kNever;
}

}  // namespace pyrdma::fabric::sim
