#include "fabric/sim/requester.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr Picos kEngineAhead = 100 * kPicosPerNano;
constexpr Picos kQueuePairAhead = 500 * kPicosPerNano;
constexpr Picos kLinkAhead = 2000 * kPicosPerNano;
constexpr int kBurst = 8;  // messages of one queue pair before the next queue pair has its turn
}  // namespace

std::uint64_t RequesterState::repeat_from(Position place) {
  const std::uint64_t sent = next_ + (chunk_offset_ > 0) - place.sequence;
  go_to(place.sequence, place.offset);
  pending_failure_ = Status::kSuccess;  // the engine will find the failure again
  outstanding_reads_ = 0;
  blocked_ = false;
  return sent;
}

void RequesterState::reset() {
  go_to(0);
  outstanding_reads_ = 0;
  awaited_ = 0;
  blocked_ = false;
  drains_ = false;
  connected_for_ = ~0ULL;
}

// ---- turns of the engine ----

// The next turn of an idle engine is known when the doorbell rings. The engine takes requests that
// fetch no payload at once, which saves an event. The engine fetches a payload only when its turn
// comes, since the CPU may still change the bytes. The clock of a slowed thread is far ahead of the
// events: what it sends at once would keep the engine from what others send before.
void Requester::doorbell(QueuePairCore& qp, Picos when) {
  RequesterState& state = qp.requester;
  const bool is_ahead = nic_.fabric().scheduler.running().slow_shift != 0;
  if (first_active_ == nullptr && !is_ahead && !nic_.dead() &&
      !qp.retransmit.waits_for_receiver()) {
    Step step = Step::kSent;
    for (int i = 0; i < kBurst && step == Step::kSent; ++i) {
      if (state.next_ == qp.sends.posted()) return;
      const SendEntry& entry = qp.sends[state.next_];
      const bool fetches = !entry.needs_data_back() && entry.length > 0 && !entry.is_inline();
      if (fetches || earliest_turn() > when || state.chunk_offset_ != 0) break;
      step = send_chunk(qp, when);
    }
    if (step == Step::kBlocked || state.next_ == qp.sends.posted()) return;
    if (step == Step::kWaits) when = std::max(when, state.ready_at_);
  }
  activate(qp, when);
}

void Requester::activate(QueuePairCore& qp, Picos when) {
  if (qp.requester.active_) return;  // the engine's list has the queue pair
  qp.requester.active_ = true;
  qp.requester.ready_at_ = when;
  ++qp.references;
  append(qp);
  schedule(when);
}

void Requester::unblock(QueuePairCore& qp) {
  if (!qp.requester.blocked_ || qp.state != QpState::kReadyToSend) return;
  qp.requester.blocked_ = false;
  activate(qp, nic_.fabric().scheduler.clock());
}

void Requester::resume(Picos when) {
  if (first_active_ != nullptr) schedule(when);
}

void Requester::append(QueuePairCore& qp) {
  qp.requester.next_active_ = nullptr;
  (first_active_ == nullptr ? first_active_ : last_active_->requester.next_active_) = &qp;
  last_active_ = &qp;
}

void Requester::schedule(Picos when) {
  if (due_ <= when) return;
  due_ = when;
  nic_.fabric().scheduler.schedule(*this, when);
}

Picos Requester::earliest_turn() const {
  const Transmitter& link = nic_.transmitter;
  return std::max({engine_.free_at() - kEngineAhead, link.pipeline_free_at() - kEngineAhead,
                   link.free_at() - kLinkAhead, link.paused_until(),
                   nic_.contexts.fetches_until() - nic_.times().dma_read});
}

void Requester::fire(Picos now) {
  if (now != due_) return;  // an earlier turn has superseded this event
  due_ = kNever;
  Picos next_turn = kNever;
  const QueuePairCore* first_waiting = nullptr;
  while (first_active_ != nullptr && !nic_.dead()) {
    const Picos free = earliest_turn();
    if (free > now) {
      nic_.transmitter.note_storm(free);
      next_turn = std::min(next_turn, free);
      break;
    }
    QueuePairCore& qp = *first_active_;
    if (&qp == first_waiting) break;  // the engine went once round: no queue pair is ready
    first_active_ = qp.requester.next_active_;
    Step step = Step::kWaits;
    if (qp.requester.ready_at_ <= now) {
      step = turn(qp, now);
      first_waiting = nullptr;
      next_turn = kNever;
    }
    if (step == Step::kBlocked) {
      qp.requester.active_ = false;
      drop_reference(&qp);
      continue;
    }
    append(qp);
    if (step == Step::kWaits) {
      if (first_waiting == nullptr) first_waiting = &qp;
      next_turn = std::min(next_turn, qp.requester.ready_at_);
    }
  }
  if (first_active_ != nullptr && next_turn != kNever) schedule(next_turn);
}

void Requester::prefetch() const {
  nic_.prefetch();
  if (first_active_ == nullptr) return;
  first_active_->prefetch();
  first_active_->sends.prefetch(first_active_->requester.next_);
}

Requester::Step Requester::turn(QueuePairCore& qp, Picos now) {
  Step step = Step::kSent;
  for (int i = 0; i < kBurst && step == Step::kSent; ++i) step = send_chunk(qp, now);
  return step;
}

// ---- one request, or the next chunk of a request ----

Requester::Step Requester::send_chunk(QueuePairCore& qp, Picos now) {
  RequesterState& state = qp.requester;
  if (state.next_ == qp.sends.posted() || state.pending_failure_ != Status::kSuccess ||
      qp.retransmit.waits_for_receiver() || qp.destroyed)
    return Step::kBlocked;
  const NicTimes& t = nic_.times();
  const SendEntry& entry = qp.sends[state.next_];
  const bool first = state.chunk_offset_ == 0;
  Picos cost = 0;
  if (first) {
    const Step step = fetch(qp, now);
    if (step != Step::kSent) return step;
    cost = t.tx_message + (entry.is_signaled() ? t.completion : 0);
    if (qp.options.transport == Transport::kDc) cost += t.dc_message;
  }
  Message& message = make_message(qp);
  const Payload payload = entry.needs_data_back() ? Payload::kNone : load_payload(message, qp);
  if (payload == Payload::kGone) [[unlikely]] {
    nic_.release(message);
    return fail(qp, Status::kLocalProtection);
  }
  const bool by_dma = payload == Payload::kByDma;
  if (by_dma) cost += t.payload_fetch;
  cost <<= nic_.slow();
  const Picos begin = engine_.serve(now, now, cost);
  Picos ready = begin;
  if (first) ready = nic_.contexts.load(qp, now, pace(qp, entry, begin));
  ready = by_dma ? nic_.dma.fetch(message, now, ready) : ready + t.tx_latency;
  nic_.trace("sends", message, begin);
  nic_.record(TimelineRow::kRequester, message, begin - cost, ready);
  const Chunk chunk = message.chunk;
  const Picos left = nic_.transmitter.send_request(message, now, begin, ready);
  if (qp.ordered()) {
    qp.sends.set_left(state.next_, left);
    qp.retransmit.run();
  }
  if (chunk.last)
    sent(qp, entry, left);
  else
    state.chunk_offset_ += chunk.length;
  return Step::kSent;
}

// Fetches the next request. Returns kSent when the engine may send the request now.
Requester::Step Requester::fetch(QueuePairCore& qp, Picos now) {
  RequesterState& state = qp.requester;
  const SendEntry& entry = qp.sends[state.next_];
  if (entry.ready_at > now) {
    state.ready_at_ = entry.ready_at;
    return Step::kWaits;
  }
  if (!may_start(qp, entry)) {
    state.blocked_ = true;
    return Step::kBlocked;
  }
  if (state.paced_until_ - kQueuePairAhead > now) {
    state.ready_at_ = state.paced_until_ - kQueuePairAhead;
    return Step::kWaits;
  }
  const Status status = check(qp);
  if (status == Status::kSuccess)
    return qp.options.transport == Transport::kDc ? connect(qp, now) : Step::kSent;
  return fail(qp, status);
}

// The next request cannot be sent. It fails when all earlier requests have been answered.
Requester::Step Requester::fail(QueuePairCore& qp, Status status) {
  qp.requester.pending_failure_ = status;
  qp.fail_pending();
  return Step::kBlocked;
}

bool Requester::may_start(const QueuePairCore& qp, const SendEntry& entry) {
  const std::uint32_t reads = qp.requester.outstanding_reads_;
  if ((entry.flags & kFence) != 0 && reads > 0) return false;
  return !entry.needs_data_back() || reads < qp.reads_at_once;
}

// The NIC checks the keys and the length of a request when the NIC fetches the request.
Status Requester::check(QueuePairCore& qp) const {
  const Status keys = check_keys(qp);
  if (keys != Status::kSuccess) return keys;
  const SendEntry& entry = qp.sends[qp.requester.next_];
  const std::uint64_t most = qp.options.transport == Transport::kUd
                                 ? static_cast<std::uint64_t>(nic_.fabric().profile.link_mtu_bytes)
                                 : kMaxMessage;
  return entry.length > most || (entry.is_atomic() && entry.length != 8) ? Status::kLocalLength
                                                                         : Status::kSuccess;
}

Status Requester::check_keys(QueuePairCore& qp) const {
  const SendEntry& entry = qp.sends[qp.requester.next_];
  if (entry.is_inline()) return Status::kSuccess;
  const Sge* sges = qp.sends.sges(qp.requester.next_);
  for (std::uint32_t i = 0; i < entry.sge_count; ++i) {
    if (sges[i].length == 0) continue;
    const Region* region = nic_.regions.find(sges[i].lkey);
    if (region == nullptr || region->domain != qp.domain ||
        !region->covers(sges[i].addr, sges[i].length) ||
        (entry.needs_data_back() && (region->access & kLocalWrite) == 0))
      return Status::kLocalProtection;
  }
  return Status::kSuccess;
}

Message& Requester::make_message(QueuePairCore& qp) {
  const std::uint64_t sequence = qp.requester.next_;
  const SendEntry& entry = qp.sends[sequence];
  const Destination to = qp.is_addressed() ? qp.sends.destination(sequence)
                                           : Destination{qp.peer_nic, qp.peer_number, 0};
  Message& message = nic_.fabric().pool.take(*to.target, qp);
  message.header = {.sequence = sequence,
                    .remote_addr = entry.remote_addr,
                    .epoch = qp.retransmit.epoch(),
                    .rkey = entry.rkey,
                    .total = entry.length,
                    .source_number = qp.number,
                    .remote_qpn = to.qpn,
                    .remote_qkey = to.qkey,
                    .immediate = entry.immediate,
                    .opcode = entry.opcode,
                    .signaled = entry.is_signaled()};
  message.chunk = {.offset = qp.requester.chunk_offset_, .first = qp.requester.chunk_offset_ == 0};
  if (!entry.needs_data_back()) return message;
  if (entry.is_atomic()) message.operands = qp.sends.operands(sequence);
  message.wire_bytes = nic_.fabric().network.control().bytes;
  message.packets = 1;
  // A repeated read continues at the first byte that its response did not deliver.
  message.chunk.offset = qp.completer.delivered(sequence);
  ++qp.requester.outstanding_reads_;
  return message;
}

// Loads the payload of the next chunk. DMA fetches the payload over PCIe, unless it is inline and
// has come with the request. The payload is gone when its region was deregistered meanwhile.
Requester::Payload Requester::load_payload(Message& message, QueuePairCore& qp) {
  const SendEntry& entry = qp.sends[qp.requester.next_];
  const Network& network = nic_.fabric().network;
  Chunk& chunk = message.chunk;
  chunk.length = std::min(entry.length - chunk.offset, network.chunk_bytes());
  chunk.last = chunk.offset + chunk.length == entry.length;
  const bool by_dma = chunk.length > 0 && !entry.is_inline();
  message.late_source = by_dma && qp.ordered() && nic_.weak_memory.draws_late_source();
  if (chunk.length > 0 && !nic_.dma.gather(message, ~0ULL)) [[unlikely]]
    return Payload::kGone;
  chunk.has_payload = chunk.length > 0;
  const Network::WireSize wire = qp.options.transport == Transport::kUd
                                     ? network.datagram(chunk.length)
                                     : network.connected(chunk.length);
  message.wire_bytes = wire.bytes;
  message.packets = wire.packets;
  nic_.counters().packets += wire.packets - 1;
  if (by_dma) {
    const auto count = [this](const Sge&, std::uint64_t, std::uint32_t, std::uint32_t) {
      ++nic_.counters().payload_dma_reads;
      return true;
    };
    for_each_piece(qp.sends.sges(qp.requester.next_), entry.sge_count, chunk.offset, chunk.length,
                   count);
  }
  return by_dma ? Payload::kByDma : Payload::kNone;
}

// The NIC starts the requests of one queue pair one after another, at a rate of its own.
Picos Requester::pace(QueuePairCore& qp, const SendEntry& entry, Picos begin) {
  const NicTimes& t = nic_.times();
  const Picos start = std::max(begin, qp.requester.paced_until_);
  qp.requester.paced_until_ = start + (entry.needs_data_back() ? t.qp_read : t.qp_message);
  return start;
}

// A DC initiator is connected to one target at a time, of which a NIC may have several. A change of
// the target waits until the present target has answered all requests, and sends a disconnect and a
// connect packet. Other queue pairs go on meanwhile. A connected target keeps a context for the
// initiator.
Requester::Step Requester::connect(QueuePairCore& qp, Picos now) {
  RequesterState& state = qp.requester;
  NicFaults* faults = nic_.faults();
  const bool storm = faults != nullptr && faults->dc_storm_until > now;
  const Destination target = qp.sends.destination(state.next_);
  if (state.dc_target_ == target && (!storm || state.connected_for_ == state.next_))
    return Step::kSent;
  if (qp.completer.completed() < state.next_) {
    state.blocked_ = state.drains_ = true;
    return Step::kBlocked;
  }
  if (storm) faults->stream.reach(Fault::dc_storm);
  const bool connected = state.dc_target_.target != nullptr;
  if (connected) nic_.transmitter.send_control(*state.dc_target_.target, 1, now, now);
  disconnect(qp);
  nic_.transmitter.send_control(*target.target, 1, now, now);
  target.target->contexts.change_footprint(nic_.fabric().profile.nic_qp_state_bytes);
  state.dc_target_ = target;
  state.connected_for_ = state.next_;
  if (!connected) return Step::kSent;
  // The last answer was with the NIC while its completion crossed PCIe.
  const NicTimes& t = nic_.times();
  const Picos begin = state.drains_ ? now - t.dma_write : now;
  state.drains_ = false;
  state.ready_at_ = std::max(now, begin + (t.dc_reconnect << nic_.slow()));
  return Step::kWaits;
}

void Requester::leave(QueuePairCore& qp) {
  Nic* const target = qp.requester.dc_target_.target;
  if (target != nullptr) target->receiver.end(qp);
  disconnect(qp);
}

void Requester::disconnect(QueuePairCore& qp) {
  Nic* const target = qp.requester.dc_target_.target;
  if (target == nullptr) return;
  target->contexts.change_footprint(-qp.nic.fabric().profile.nic_qp_state_bytes);
  qp.requester.dc_target_ = {};
}

// Advances to the next request. The last chunk of the present request is on the link.
void Requester::sent(QueuePairCore& qp, const SendEntry& entry, Picos left) {
  RequesterState& state = qp.requester;
  const std::uint64_t sequence = state.next_;
  ++nic_.counters().requests;
  state.go_to(sequence + 1);
  if (entry.is_signaled() || (qp.ordered() && qp.is_answered(entry)))
    state.awaited_ = std::max(state.awaited_, state.next_);
  if (!qp.ordered()) nic_.completer.complete_locally(qp, sequence, left);
}

}  // namespace pyrdma::fabric::sim
