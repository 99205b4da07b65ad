#include "fabric/sim/packet_faults.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr std::uint64_t kLongestEcho = 20'000'000;  // ps between a packet and its duplicate
}

bool PacketFaults::meddle(Message& message, Picos now) {
  const Fabric& fabric = nic_.fabric();
  if (nic_.faults() == nullptr && fabric.reachability.empty() && !fabric.nic_has_failed) [[likely]]
    return false;
  if (message.sender == &nic_) return false;  // a loopback packet does not leave the NIC
  return meddle_with(message, now);
}

// Returns the fault whose window stops packets between `sender` and this NIC, or kCount.
Fault PacketFaults::cut_off(const Nic& sender, Picos now) const {
  const Fault way = nic_.fabric().reachability.blocked(sender.node(), nic_.node(), now);
  if (way != Fault::kCount) return way;
  if (nic_.has_failed(now) || sender.has_failed(now)) return Fault::nic_failure;
  if (nic_.faults() == nullptr) return Fault::kCount;
  if (nic_.faults()->lost_until > now) return Fault::loss_burst;
  for (const NicFaults* end : {nic_.faults(), sender.faults()}) {
    if (end->flapping_until > now && (now / kFlap) % 2 == 1) return Fault::partition_flapping;
  }
  return Fault::kCount;
}

// The steps have the order of the random draws.
bool PacketFaults::meddle_with(Message& message, Picos now) {
  const Fault why = cut_off(*message.sender, now);
  if (why != Fault::kCount) {
    nic_.count_reached(why);
    nic_.retransmitter.lost(message, now);
    return true;
  }
  if (nic_.faults() == nullptr || message.meddled) return false;
  if (is_held(message, now)) return true;
  message.meddled = true;
  if (loses(message, now)) return true;
  spoil(message);
  repeat(message, now);
  return delays(message, now);
}

bool PacketFaults::is_held(Message& message, Picos now) {
  NicFaults& faults = *nic_.faults();
  const Picos held = std::max(faults.clogged_until, faults.held_from[message.sender->port()]);
  if (held <= now) return false;
  message.waited = true;
  faults.stream.reach(held == faults.clogged_until ? Fault::clog : Fault::delay);
  nic_.fabric().scheduler.schedule(message, held);
  return true;
}

bool PacketFaults::loses(Message& message, Picos now) {
  FaultStream& draws = nic_.faults()->stream;
  const Fault loss = message.is_response() ? Fault::ack_loss : Fault::loss;
  if (!draws.fire(loss)) return false;
  draws.reach(loss);
  nic_.retransmitter.lost(message, now);
  return true;
}

void PacketFaults::spoil(Message& message) {
  FaultStream& draws = nic_.faults()->stream;
  const Chunk& chunk = message.chunk;
  const bool datagram = message.initiator->options.transport == Transport::kUd;
  if (!datagram || !chunk.has_payload || chunk.length == 0 || !draws.fire(Fault::corruption))
    return;
  draws.reach(Fault::corruption);
  const std::uint64_t bit = draws.stream(Fault::corruption).below(chunk.length * 8ULL);
  message.payload()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
}

void PacketFaults::repeat(const Message& message, Picos now) {
  FaultStream& draws = nic_.faults()->stream;
  if (message.is_response() || message.initiator->options.transport == Transport::kUc ||
      !draws.fire(Fault::duplicate))
    return;
  draws.reach(Fault::duplicate);
  const auto gap = static_cast<Picos>(draws.stream(Fault::duplicate).below(kLongestEcho));
  Message& copy = nic_.fabric().pool.take(nic_, *message.initiator);
  copy.copy_from(message);
  copy.meddled = true;
  nic_.fabric().scheduler.schedule(copy, now + gap);
}

// A reordered packet is overtaken by later packets. A delayed packet holds back later packets.
bool PacketFaults::delays(Message& message, Picos now) {
  NicFaults& faults = *nic_.faults();
  FaultStream& draws = faults.stream;
  SimScheduler& scheduler = nic_.fabric().scheduler;
  if (!message.is_response() && draws.fire(Fault::reorder)) {
    draws.reach(Fault::reorder);
    scheduler.schedule(message, now + to_picos(draws.duration(Fault::reorder)));
    return true;
  }
  // Messages that have waited for one would otherwise be late together again and again: a link
  // under load would be late without bound.
  if (message.waited || !draws.fire(Fault::delay)) return false;
  draws.reach(Fault::delay);
  Picos& held = faults.held_from[message.sender->port()];
  held = now + to_picos(draws.duration(Fault::delay));
  scheduler.schedule(message, held);
  return true;
}

}  // namespace pyrdma::fabric::sim
