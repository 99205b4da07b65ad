// From the send queue to the link: the requester engine takes requests of the active queue pairs in
// turn, fetches their payload over PCIe and reserves the link. It never runs far ahead of the link,
// so that later requests of other queue pairs find their turn.
#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {
constexpr Picos kEngineAhead = 500 * kPicosPerNano;
constexpr Picos kLinkAhead = 2000 * kPicosPerNano;
constexpr int kBurst = 8;  // requests of one queue pair before the next has its turn
}  // namespace

void Nic::append_active(QueuePairCore& qp) {
  qp.next_active = nullptr;
  (active_head_ == nullptr ? active_head_ : active_tail_->next_active) = &qp;
  active_tail_ = &qp;
}

// An idle engine's next turn is known when the doorbell rings: it takes requests that fetch no
// payload at once, which saves an event. A payload is fetched when its time comes, since its bytes
// may still change.
void Nic::doorbell(QueuePairCore& qp, Picos when) {
  if (active_head_ == nullptr && !dead_ && !qp.retry_pending()) {
    Step step = Step::kSent;
    for (int i = 0; i < kBurst && step == Step::kSent; ++i) {
      const Picos free =
          std::max({engine_free_ - kEngineAhead, link_free_ - kLinkAhead, paused_until_});
      if (qp.next == qp.posted) return;
      const SendEntry& entry = qp.entry(qp.next);
      const bool fetches =
          !entry.needs_data_back() && entry.length > 0 && (entry.flags & kInline) == 0;
      if (fetches || free > when || qp.chunk_offset != 0) break;
      step = send_chunk(qp, when);
    }
    if (step == Step::kBlocked || qp.next == qp.posted) return;
  }
  activate(qp, when);
}

void Nic::activate(QueuePairCore& qp, Picos when) {
  if (qp.active) return;  // the engine will come to it
  qp.active = true;
  qp.ready_at = when;
  ++qp.references;
  append_active(qp);
  schedule_engine(when);
}

void Nic::schedule_engine(Picos when) {
  if (engine_due_ <= when) return;
  engine_due_ = when;
  fabric_.scheduler.schedule(*this, when);
}

void Nic::fire(Picos now) {
  if (now != engine_due_) return;  // superseded by an earlier turn
  engine_due_ = kNever;
  Picos next_turn = kNever;
  const QueuePairCore* first_waiting = nullptr;
  while (active_head_ != nullptr && !dead_) {
    const Picos free =
        std::max({engine_free_ - kEngineAhead, link_free_ - kLinkAhead, paused_until_});
    if (free > now) {
      if (faults_ != nullptr && faults_->stormed_until == free)
        faults_->stream.reach(Fault::pause_storm);
      next_turn = std::min(next_turn, free);
      break;
    }
    QueuePairCore& qp = *active_head_;
    if (&qp == first_waiting) break;  // once round: nobody is ready
    active_head_ = qp.next_active;
    Step step = Step::kWaits;
    if (qp.ready_at <= now) {
      step = Step::kSent;
      for (int i = 0; i < kBurst && step == Step::kSent; ++i) step = send_chunk(qp, now);
      first_waiting = nullptr;
      next_turn = kNever;
    }
    if (step == Step::kBlocked) {
      qp.active = false;
      drop_reference(&qp);
      continue;
    }
    append_active(qp);
    if (step == Step::kWaits) {
      if (first_waiting == nullptr) first_waiting = &qp;
      next_turn = std::min(next_turn, qp.ready_at);
    }
  }
  if (active_head_ != nullptr && next_turn != kNever) schedule_engine(next_turn);
}

bool Nic::may_start(QueuePairCore& qp) const {
  const SendEntry& entry = qp.entry(qp.next);
  if ((entry.flags & kFence) != 0 && qp.outstanding_reads > 0) return false;
  return !entry.needs_data_back() || qp.outstanding_reads < qp.options.max_outstanding_reads;
}

// The lkeys of a request, as the NIC checks them when it fetches.
Status Nic::check_local(const QueuePairCore& qp, std::uint64_t sequence) const {
  const SendEntry& entry = qp.entry(sequence);
  if ((entry.flags & kInline) != 0) return Status::kSuccess;
  const Sge* sges = qp.entry_sges(sequence);
  for (std::uint32_t i = 0; i < entry.sge_count; ++i) {
    if (sges[i].length == 0) continue;
    const Region* region = regions.find(sges[i].lkey);
    if (region == nullptr || region->domain != qp.domain || sges[i].addr < region->addr ||
        sges[i].length > region->size ||
        sges[i].addr - region->addr > region->size - sges[i].length)
      return Status::kLocalProtection;
    if (entry.needs_data_back() && (region->access & kLocalWrite) == 0)
      return Status::kLocalProtection;
  }
  return Status::kSuccess;
}

// What a request may carry, after its keys have been checked.
Status Nic::check_length(const QueuePairCore& qp, std::uint64_t sequence) const {
  const SendEntry& entry = qp.entry(sequence);
  const bool atomic = entry.opcode == Opcode::kCompareSwap || entry.opcode == Opcode::kFetchAdd;
  const std::uint64_t most = qp.options.transport == Transport::kUd
                                 ? static_cast<std::uint64_t>(fabric_.profile.link_mtu_bytes)
                                 : kMaxMessage;
  return entry.length > most || (atomic && entry.length != 8) ? Status::kLocalLength
                                                              : Status::kSuccess;
}

Nic::Step Nic::send_chunk(QueuePairCore& qp, Picos now) {
  if (qp.next == qp.posted || qp.pending_failure != Status::kSuccess || qp.retry_pending() ||
      qp.destroyed)
    return Step::kBlocked;
  SendEntry& entry = qp.entry(qp.next);
  const NicTimes& t = times();
  const std::uint64_t sequence = qp.next;
  const bool first = qp.chunk_offset == 0;
  Picos cost = 0;
  if (first) {
    if (entry.visible_at > now) {
      qp.ready_at = entry.visible_at;
      return Step::kWaits;
    }
    if (!may_start(qp)) {
      qp.blocked = true;
      return Step::kBlocked;
    }
    Status status = check_local(qp, sequence);
    if (status == Status::kSuccess) status = check_length(qp, sequence);
    if (status != Status::kSuccess) {
      qp.pending_failure = status;
      fail_pending(qp);
      return Step::kBlocked;
    }
    cost = t.tx_message + ((entry.flags & kSignaled) != 0 ? t.completion : 0) + touch_state(qp);
  }

  Message& message = fabric_.pool.take(*this);
  message.initiator = &qp;
  ++qp.references;
  message.sequence = sequence;
  message.epoch = qp.epoch;
  message.opcode = entry.opcode;
  message.status = Status::kSuccess;
  message.signaled = (entry.flags & kSignaled) != 0;
  message.meddled = message.late_source = false;
  message.sampled = 0;
  message.ecn_marked = false;
  message.total = entry.length;
  message.immediate = entry.immediate;
  message.remote_addr = entry.remote_addr;
  message.rkey = entry.rkey;
  message.source_number = qp.number;
  message.remote_qkey = entry.remote_qkey;
  message.compare_add = entry.compare_add;
  message.swap = entry.swap;
  const bool by_handle = qp.is_addressed();
  message.target = by_handle ? entry.target : qp.peer_nic;
  message.remote_qpn = by_handle ? entry.remote_qpn : qp.peer_number;
  message.offset = qp.chunk_offset;
  message.first = first;

  Picos fetch = 0;
  if (entry.needs_data_back()) {
    message.length = 0;
    message.last = true;
    // A read that is sent again goes on where its response broke off.
    if (sequence == qp.completed) message.offset = qp.response_offset;
    message.has_payload = false;
    message.wire_bytes = fabric_.network.control().bytes;
    ++qp.outstanding_reads;
  } else {
    message.length = std::min(entry.length - qp.chunk_offset, fabric_.network.chunk_bytes());
    message.last = message.offset + message.length == entry.length;
    message.late_source = memory_.late_source > 0 && qp.ordered() && message.length > 0 &&
                          (entry.flags & kInline) == 0 && draws(memory_.late_source);
    message.has_payload = gather(message, qp, sequence);
    const auto wire = qp.options.transport == Transport::kUd
                          ? fabric_.network.datagram(message.length)
                          : fabric_.network.connected(message.length);
    message.wire_bytes = wire.bytes;
    counters_.packets += wire.packets - 1;
    if (message.length > 0 && (entry.flags & kInline) == 0) {
      fetch = t.dma_read;
      cost += t.payload_fetch;
      ++counters_.payload_dma_reads;
    }
  }
  if (qp.options.transport == Transport::kDc && first) {
    cost += t.dc_message;
    const bool storm = faults_ != nullptr && faults_->dc_storm_until > now;
    if (storm) faults_->stream.reach(Fault::dc_storm);
    if (qp.dc_target != message.target || storm) {
      if (qp.dc_target != nullptr) cost += t.dc_reconnect;
      qp.dc_target = message.target;
    }
  }
  engine_free_ = std::max(engine_free_, now) + (cost << slow_);
  Picos ready = engine_free_ + t.tx_latency + fetch;
  if (fetch != 0) {
    pcie_free_ = std::max(pcie_free_, engine_free_) +
                 static_cast<Picos>(static_cast<double>(message.length) * t.pcie_picos_per_byte);
    // The message goes out while its end is still being fetched, which cannot leave before it is
    // there.
    ready = std::max(
        ready, pcie_free_ + t.tx_latency + fetch - fabric_.network.wire_time(message.wire_bytes));
  }
  const bool last = message.last, signaled = message.signaled;
  trace("sends", message, engine_free_);
  transmit(message, ready);
  if (!last) {
    qp.chunk_offset += message.length;
    return Step::kSent;
  }
  ++counters_.requests;
  qp.chunk_offset = 0;
  ++qp.next;
  if (!qp.ordered())
    complete_locally(qp, sequence, link_free_ + (signaled ? t.dma_write : 0));
  else if (signaled || entry.needs_data_back())
    qp.awaited = qp.next;
  return Step::kSent;
}

// Weak memory: the source, or some of it, is read as late as the completion allows.
bool Nic::gather_late(Message& message) {
  QueuePairCore& qp = *message.initiator;
  message.late_source = false;
  // What it would be read for is over: the message has never left.
  if (qp.destroyed || message.epoch != qp.epoch || message.sequence < qp.completed) return false;
  const std::uint64_t mask = memory_draws_.below(2) == 0 ? ~0ULL : memory_draws_();
  message.has_payload = qp.nic.gather(message, qp, message.sequence, mask);
  fabric_.count_fired(Fault::late_source);
  if (message.has_payload) fabric_.count_reached(Fault::late_source);
  return true;
}

// Copies the chunk's bytes, as they are now, into the message, or only the pieces in `mask`. False
// when nobody reads them.
bool Nic::gather(Message& message, QueuePairCore& qp, std::uint64_t sequence, std::uint64_t mask) {
  if (message.length == 0) return false;
  const SendEntry& entry = qp.entry(sequence);
  message.reserve_payload();
  if ((entry.flags & kInline) != 0) {
    std::memcpy(message.payload(), qp.entry_inline(sequence) + message.offset, message.length);
    return true;
  }
  std::uint64_t skip = message.offset;
  std::uint32_t copied = 0;
  const Sge* sges = qp.entry_sges(sequence);
  for (std::uint32_t i = 0; i < entry.sge_count && copied < message.length; ++i) {
    if (skip >= sges[i].length) {
      skip -= sges[i].length;
      continue;
    }
    const Region* region = regions.find(sges[i].lkey);
    if (region == nullptr) return false;  // deregistered while in use
    const auto bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(sges[i].length - skip, message.length - copied));
    if (region->synthetic) return false;
    const std::byte* from = region->data + (sges[i].addr + skip - region->addr);
    if (mask == ~0ULL)
      std::memcpy(message.payload() + copied, from, bytes);
    else if (bytes > 0)
      Pieces(from, bytes, least_unit(bytes)).copy(message.payload() + copied, from, mask);
    copied += bytes;
    skip = 0;
  }
  return true;
}

void Nic::transmit(Message& message, Picos ready) {
  const NicTimes& t = times();
  ++counters_.packets;
  counters_.wire_bytes += static_cast<std::uint64_t>(message.wire_bytes);
  message.stage = Message::Stage::kRequestArrives;
  message.placement = t.dma_write;
  Picos& engine = message.engine;
  switch (message.opcode) {
    case Opcode::kWrite:
      engine = t.rx_write;
      break;
    case Opcode::kRead:
      engine = t.rx_read;
      message.placement = t.dma_read;
      break;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      engine = t.rx_atomic;
      message.placement = t.dma_read;
      break;
    default:
      engine = t.rx_send;
      break;
  }
  if (!message.first)
    engine = 0;
  else if (message.initiator->options.transport == Transport::kDc)
    engine += t.dc_message;
  if (message.rkey != 0 && times().device_memory_saving > 0) {
    const Region* region = message.target->regions.find(message.rkey);
    if (region != nullptr && region->on_device)
      message.placement = std::max<Picos>(0, message.placement - t.device_memory_saving);
  }
  Picos arrival = ready;
  if (message.target != this) {
    link_free_ = std::max(link_free_, ready) + fabric_.network.wire_time(message.wire_bytes);
    const std::uint64_t flow =
        (std::uint64_t{message.source_number} << 32) ^ message.target->node();
    arrival =
        fabric_.network.cross(node_, message.target->node(), link_free_, message.wire_bytes, flow);
  }
  message.owner = message.target;
  Picos& due = message.initiator->last_request_due;
  due = std::max(due, arrival + t.rx_latency + engine + message.placement);
  message.lead = due - arrival;
  fabric_.scheduler.schedule(message, due);
}

// Unconnected transports are done when the packet has left.
void Nic::complete_locally(QueuePairCore& qp, std::uint64_t sequence, Picos at) {
  if ((qp.entry(sequence).flags & kSignaled) == 0) {
    if (qp.completed == sequence) ++qp.completed;
    return;
  }
  qp.awaited = sequence + 1;
  Message& done = fabric_.pool.take(*this);
  done.initiator = &qp;
  ++qp.references;
  done.sequence = sequence;
  done.epoch = qp.epoch;
  done.status = Status::kSuccess;  // a message of the pool still has its last one
  done.stage = Message::Stage::kLocalCompletes;
  fabric_.scheduler.schedule(done, at);
}

Picos Nic::touch_state(const QueuePairCore& qp) {
  if (faults_ != nullptr) [[unlikely]] {
    if (faults_->stream.fire(Fault::cache_miss)) {
      faults_->stream.reach(Fault::cache_miss);
      return to_picos(faults_->stream.duration(Fault::cache_miss));
    }
    if (faults_->noisy_until > fabric_.scheduler.clock()) {
      faults_->stream.reach(Fault::noisy_neighbour);
      return 2 * std::max(times().qp_miss, times().tx_message);
    }
  }
  if (!cache.overflows()) [[likely]]
    return 0;
  const bool hit = cache.access(qp.serial, fabric_.profile.nic_qp_state_bytes);
  ++(hit ? counters_.cache_hits : counters_.cache_misses);
  return hit ? 0 : times().qp_miss;
}

Picos Nic::touch_translation(const Region& region, std::uint64_t addr) {
  if (!cache.overflows()) [[likely]]
    return 0;
  const std::uint64_t page =
      (addr - region.addr) / static_cast<std::uint64_t>(fabric_.profile.nic_page_bytes);
  const bool hit =
      cache.access((region.serial << 24) ^ page ^ (1ULL << 63),
                   fabric_.profile.nic_page_state_bytes + fabric_.profile.nic_mr_state_bytes);
  ++(hit ? counters_.cache_hits : counters_.cache_misses);
  return hit ? 0 : times().mr_miss;
}

}  // namespace pyrdma::fabric::sim
