#include "fabric/sim/transmitter.h"

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

// Returns the time at which the message has left. A message that waits for its context or payload
// lets later messages of other queue pairs pass: it takes its share of the link when the pipeline
// has it.
template <class State>
Picos Transmitter::leave(State& state, const Nic& receiver, const Message& message, Picos now,
                         Picos begin, Picos ready) {
  const NicTimes& t = nic_.times();
  const Picos done = pipeline_.serve_packets(now, begin, message.packets, t.tx_packet);
  const Picos late = ready + (done - begin);
  if (&receiver == &nic_) return state.in_order(late, 0);  // does not leave the NIC
  const Picos wire = nic_.fabric().network.wire_time(message.wire_bytes);
  link_free_ = std::max(link_free_, std::min(late, done + t.tx_latency)) + wire;
  return state.in_order(std::max(link_free_, late + wire), wire);
}

// Returns the time when the message's last byte has passed the receiver's port, if the port is idle
// and in the same rack.
Picos Transmitter::arrival(const Nic& receiver, Picos left) const {
  const Network& network = nic_.fabric().network;
  return &receiver == &nic_ ? left : left + network.propagation() + network.hop();
}

// Sends the message towards a spine, if it goes to another rack.
inline bool Transmitter::begin_crossing(const Nic& receiver, Message& message, Picos left) {
  const Network& network = nic_.fabric().network;
  if (!network.crosses_spine(nic_.port(), receiver.port())) [[likely]]
    return false;
  message.stage = Message::Stage::kAtRack;
  nic_.fabric().scheduler.schedule(message, left + network.propagation());
  return true;
}

void Transmitter::record(const Nic& receiver, const Message& message, Picos left) {
  if (&receiver == &nic_) return;  // does not leave the NIC
  const Picos wire = nic_.fabric().network.wire_time(message.wire_bytes);
  nic_.record(TimelineRow::kLink, message, left - wire, left);
}

Picos Transmitter::send_request(Message& message, Picos now, Picos begin, Picos ready) {
  Nic& target = *message.owner;
  ++nic_.counters().packets;
  nic_.counters().wire_bytes += static_cast<std::uint64_t>(message.wire_bytes);
  message.stage = Message::Stage::kRequestArrives;
  message.sender = &nic_;
  const Picos left = leave(message.initiator->requester, target, message, now, begin, ready);
  if (nic_.timeline() != nullptr) [[unlikely]]
    record(target, message, left);
  if (!begin_crossing(target, message, left))
    target.responder.expect(message, arrival(target, left));
  return left;
}

void Transmitter::send_response(Message& message, Picos now, Picos ready) {
  Nic& initiator = message.initiator->nic;
  nic_.counters().wire_bytes += static_cast<std::uint64_t>(message.wire_bytes);
  message.stage = Message::Stage::kResponseArrives;
  message.sender = &nic_;
  message.owner = &initiator;
  message.meddled = message.waited = message.ecn_marked = false;
  const Picos left = leave(message.initiator->responses, initiator, message, now, ready, ready);
  if (nic_.timeline() != nullptr) [[unlikely]]
    record(initiator, message, left);
  if (!begin_crossing(initiator, message, left))
    initiator.completer.expect(message, arrival(initiator, left), now);
}

// A message between racks goes to its initiator, or comes from it.
void Transmitter::arrive(Message& message, Picos arrival, Picos now) {
  Nic& receiver = *message.owner;
  const bool response = &message.initiator->nic == &receiver;
  message.stage = response ? Message::Stage::kResponseArrives : Message::Stage::kRequestArrives;
  if (response)
    receiver.completer.expect(message, arrival, now);
  else
    receiver.responder.expect(message, arrival);
}

Network::Path Transmitter::path(const Message& message) const {
  const std::uint32_t to = message.owner->port();
  const bool response = message.owner == &message.initiator->nic;
  const std::uint64_t flow =
      (std::uint64_t{message.header.source_number} << 32) ^ to ^ (std::uint64_t{response} << 31);
  return nic_.fabric().network.path(nic_.port(), to, flow);
}

void Transmitter::cross_racks(Message& message, Picos now) {
  Network& network = nic_.fabric().network;
  const Network::Path path = this->path(message);
  const bool at_rack = message.stage == Message::Stage::kAtRack;
  const bool at_spine = message.stage == Message::Stage::kAtSpine;
  if (!at_rack) {  // a pause has delayed the message since it entered the queue of the last port
    const Picos late = network.pauses(at_spine ? path.up : path.down) - message.lead;
    message.lead += late;
    if (late > 0) return nic_.fabric().scheduler.schedule(message, now + late);
  }
  if (!at_rack && !at_spine) return arrive(message, now + network.hop(), now);

  const std::uint32_t link = at_rack ? path.up : path.down;
  const Network::PortResult port = network.enter_link(link, now, message.wire_bytes);
  const Picos next = now + port.delay + network.hop();
  if (Timeline* timeline = nic_.timeline()) [[unlikely]]
    timeline->slice({TimelineRow::kRackLink, link}, now, next, Nic::describe(message));
  if (port.dropped) {  // the receiver or a timer notices the gap when the message would arrive
    message.dropped = true;
    return arrive(message, next + (at_rack ? 2 : 1) * network.hop(), now);
  }
  message.ecn_marked |= port.ecn_marked;
  if (port.long_queue) control_flow(message, at_rack ? Network::kNoLink : path.up, link, now, port);
  if (at_spine && !network.lossless()) return arrive(message, next + network.hop(), now);
  message.lead = network.pauses(link);
  message.stage = at_rack ? Message::Stage::kAtSpine : Message::Stage::kAtLastRack;
  nic_.fabric().scheduler.schedule(message, next);
}

void Transmitter::control_flow(const Message& message, Picos arrival,
                               const Network::PortResult& port) {
  const bool in_rack = !nic_.fabric().network.crosses_spine(nic_.port(), message.owner->port());
  control_flow(message, in_rack ? Network::kNoLink : path(message).down, Network::kNoLink, arrival,
               port);
}

// Lets the switch count a message of this NIC that came by link `in` and leaves by link `out`.
// Pauses the port that sent the message, if that has too much in the switch.
void Transmitter::control_flow(const Message& message, std::uint32_t in, std::uint32_t out,
                               Picos arrival, const Network::PortResult& port) {
  Network& network = nic_.fabric().network;
  const Picos until = network.count_ingress(nic_.port(), in, out, arrival, arrival + port.delay,
                                            message.wire_bytes, port.most);
  if (until == 0) return;
  if (in == Network::kNoLink)
    pause(until);
  else
    network.pause(in, arrival, until);
}

void Transmitter::send_control(Nic& receiver, std::uint32_t packets, Picos now, Picos ready) {
  const NicTimes& t = nic_.times();
  const Network& network = nic_.fabric().network;
  const Picos done = pipeline_.serve(now, ready, packets * t.tx_packet);
  receiver.ingress.receive_control(packets);
  if (&receiver == &nic_) return;
  link_free_ = std::max(link_free_, done) + network.wire_time(packets * network.control().bytes);
}

void Transmitter::pause(Picos until) {
  if (until <= paused_until_) return;
  ++nic_.counters().paused;
  paused_until_ = until;
  link_free_ = std::max(link_free_, until);
}

void Transmitter::storm(Picos until) {
  paused_until_ = until == 0 ? 0 : std::max(paused_until_, until);
  if (nic_.faults() != nullptr) nic_.faults()->stormed_until = paused_until_;
  if (until == 0) nic_.requester.resume(nic_.fabric().scheduler.clock());
}

void Transmitter::note_storm(Picos free) const {
  NicFaults* faults = nic_.faults();
  if (faults != nullptr && faults->stormed_until == free) faults->stream.reach(Fault::pause_storm);
}

}  // namespace pyrdma::fabric::sim
