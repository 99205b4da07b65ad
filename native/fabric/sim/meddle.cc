// What faults do to a packet that reaches a NIC: lose it, repeat it, let others overtake it, hold
// it back, spoil it. The link's windows stand in NicFaults, the ways between nodes in Reachability.
#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void Message::copy_from(const Message& other) {
  owner = other.owner;
  target = other.target;
  initiator = other.initiator;
  ++initiator->references;
  sequence = other.sequence;
  epoch = other.epoch;
  stage = other.stage;
  opcode = other.opcode;
  status = other.status;
  first = other.first;
  last = other.last;
  has_payload = other.has_payload;
  signaled = other.signaled;
  ecn_marked = late_source = false;
  sampled = 0;
  lead = other.lead;
  engine = other.engine;
  placement = other.placement;
  wire_bytes = other.wire_bytes;
  source_number = other.source_number;
  offset = other.offset;
  length = other.length;
  total = other.total;
  immediate = other.immediate;
  remote_addr = other.remote_addr;
  rkey = other.rkey;
  remote_qpn = other.remote_qpn;
  remote_qkey = other.remote_qkey;
  compare_add = other.compare_add;
  swap = other.swap;
  if (!has_payload) return;
  reserve_payload();
  std::memcpy(payload(), length <= kSmall ? other.small : other.large.data(), length);
}

void Nic::arrive_again(const Message& message, Picos when) {
  Message& copy = fabric_.pool.take(*this);
  copy.copy_from(message);
  copy.meddled = true;
  fabric_.scheduler.schedule(copy, when);
}

// The fault whose window keeps packets from passing between this NIC and `sender`, or kCount.
Fault Nic::cut_off(const Nic& sender, Picos now) const {
  const Fault way = fabric_.reachability.blocked(sender.node_, node_, now);
  if (way != Fault::kCount || faults_ == nullptr) return way;
  if (faults_->lost_until > now) return Fault::loss_burst;
  for (const Nic* end : {this, &sender}) {
    if (end->faults_->failed_until > now) return Fault::nic_failure;
    if (end->faults_->flapping_until > now && (now / kFlap) % 2 == 1)
      return Fault::partition_flapping;
  }
  return Fault::kCount;
}

bool Nic::meddle_with(Message& message, Picos now) {
  const bool response = message.stage == Message::Stage::kResponseArrives;
  QueuePairCore& qp = *message.initiator;
  const Nic& sender = response ? *message.target : qp.nic;
  if (&sender == this) return false;  // loopback does not leave the NIC
  const Fault why = cut_off(sender, now);
  if (why != Fault::kCount) {
    fabric_.count_reached(why);
    lost(message, now, false);
    return true;
  }
  if (faults_ == nullptr || message.meddled) return false;
  FaultStream& draws = faults_->stream;
  const Picos held = std::max(faults_->clogged_until, faults_->held_from[sender.node_]);
  if (held > now) {
    draws.reach(held == faults_->clogged_until ? Fault::clog : Fault::delay);
    fabric_.scheduler.schedule(message, held);
    return true;
  }
  message.meddled = true;
  const bool datagram = qp.options.transport == Transport::kUd;
  if (response ? draws.fire(Fault::ack_loss) : draws.fire(Fault::loss)) {
    draws.reach(response ? Fault::ack_loss : Fault::loss);
    lost(message, now, !response && qp.next > message.sequence + 1);
    return true;
  }
  if (datagram && message.has_payload && message.length > 0 && draws.fire(Fault::corruption)) {
    draws.reach(Fault::corruption);
    const std::uint64_t bit = draws.stream(Fault::corruption).below(message.length * 8ULL);
    message.payload()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  if (!response && qp.options.transport != Transport::kUc && draws.fire(Fault::duplicate)) {
    draws.reach(Fault::duplicate);
    const auto gap = draws.stream(Fault::duplicate).below(20'000'000);
    arrive_again(message, now + static_cast<Picos>(gap));
  }
  if (!response && draws.fire(Fault::reorder)) {
    draws.reach(Fault::reorder);
    fabric_.scheduler.schedule(message, now + to_picos(draws.duration(Fault::reorder)));
    return true;
  }
  if (draws.fire(Fault::delay)) {
    draws.reach(Fault::delay);
    faults_->held_from[sender.node_] = now + to_picos(draws.duration(Fault::delay));
    fabric_.scheduler.schedule(message, faults_->held_from[sender.node_]);
    return true;
  }
  return false;
}

}  // namespace pyrdma::fabric::sim
