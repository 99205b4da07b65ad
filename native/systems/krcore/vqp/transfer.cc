// The transfer of a virtual queue pair to another physical one, or to another core (section 4.6).
//
// A fake request tells when all requests before it are done; the peer's acknowledgement, when it has
// dispatched all messages before the notification. Both may begin at once: the one that is asked
// while it asks acknowledges, and begins no second transfer. Posts wait meanwhile.
#include <mutex>
#include <utility>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

void Service::start_transfer(VqpId id, std::uint32_t core) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  const SendLock lock(*v);
  want_transfer(*v, pool(core), std::nullopt, false);
  if (v->transfer.stage == Transfer::kWanted) begin_transfer(*lock.pool, *v);
}

// The caller holds the lock of the queue pair's pool.
void Service::want_transfer(Vqp& v, CorePool& to, std::optional<DctMeta> meta, bool is_answer) {
  if (v.state.load() != VqpState::kConnected || v.transfer.stage != Transfer::kNone) return;
  v.transfer = {};
  v.transfer.stage = Transfer::kWanted;
  v.transfer.is_answer = is_answer;
  v.transfer.pool = &to;
  v.transfer.meta = meta;
  want_turn(*v.pool.load(), v);
}

void Service::begin_transfer(CorePool& pool, Vqp& v) {
  Transfer& transfer = v.transfer;
  const bool is_idle = v.qp == nullptr || v.qp->has_failed;
  // Held posts come first; they may be what the transfer waits for.
  if (!is_idle && !v.pending.empty()) return;
  if (!is_idle && v.qp->room() < 2) return;
  transfer.ticket = v.next_ticket++;
  transfer.stage = Transfer::kRunning;
  ++counters_.transfers;
  // One-sided requests alone tell the peer nothing that it could miss.
  transfer.acked = options_.bugs.has(Bug::kTransferWithoutAck) || !v.has_sent_messages || is_idle;
  transfer.fake_done = options_.bugs.has(Bug::kTransferWithoutFake) || is_idle;
  if (is_idle) {
    end_transfer(pool, v);
    return;
  }
  Prepared messages[2];
  std::size_t count = 0;
  const auto add = [&](MessageKind kind) {
    Prepared& next = messages[count++];
    next.kind = Prepared::Kind::kInternal;
    next.owner = v.id;
    next.ticket = transfer.ticket;
    next.to = v.to;
    next.request.opcode = fabric::Opcode::kSend;
    next.header = header_of(v, kind, *transfer.pool);
    next.header.ticket = transfer.ticket;
    if (transfer.is_answer) next.header.flags = MessageHeader::kAnswer;
  };
  add(MessageKind::kFake);
  if (v.has_sent_messages) add(MessageKind::kTransfer);
  const std::uint32_t accepted = post_physical(pool, *v.qp, std::span(messages).first(count));
  if (accepted == count) {
    end_transfer(pool, v);
    return;
  }
  // A device that took only a part is asked again; the ticket of the first attempt is void.
  transfer.stage = Transfer::kWanted;
  want_turn(pool, v);
}

void Service::end_transfer(CorePool& pool, Vqp& v) {
  Transfer& transfer = v.transfer;
  if (!transfer.fake_done || !transfer.acked) return;
  env_.reached("krcore/transferred");
  CorePool& to = *transfer.pool;
  if (transfer.meta) v.to.meta = *transfer.meta;
  v.transfer = {};
  if (&to != &pool) {
    leave(v);
    v.is_waiting = false;
    v.pool.store(&to, std::memory_order_release);
    // The thread that uses it places it there, with the new lock.
    return;
  }
  PhysicalQp* next = pool.reliable_to(v.node);
  if (next == nullptr && v.to.handle != nullptr) next = pool.next_dynamic();
  adopt(v, next);
  flush_pending(pool, v);
  if (!v.pending.empty()) want_turn(pool, v);
}

void Service::on_transfer(CorePool& pool, const MessageHeader& header) {
  Vqp* v = find(VqpId::of(header.to));
  if (v == nullptr && header.to == 0) {
    // The sender knows the port alone; the queue pair that answers it may exist.
    if (Vqp* bound = find(VqpId::of(ports_[header.port].load()))) {
      const std::lock_guard<Mutex> lock(bound->receive_mutex);
      const auto reply = bound->replies.find({header.from_node, header.from});
      if (reply != bound->replies.end()) v = find(reply->second.vqp);
    }
  }
  MessageHeader ack;
  ack.kind = MessageKind::kTransferAck;
  ack.to = header.from;
  ack.to_epoch = header.from_epoch;
  ack.from_node = env_.node();
  ack.meta = pool.target();
  ack.ticket = header.ticket;
  send_service_message(pool, header.from_node, header.meta, ack, {});
  if (v == nullptr || (header.flags & MessageHeader::kAnswer) != 0) return;
  const SendLock lock(*v);
  if (v->node != header.from_node) return;
  if (v->transfer.stage != Transfer::kNone) {
    env_.reached("krcore/both_transfer");
    v->transfer.meta = header.meta;
    return;
  }
  want_transfer(*v, *lock.pool, header.meta, true);
  if (v->transfer.stage == Transfer::kWanted) begin_transfer(*lock.pool, *v);
}

}  // namespace pyrdma::krcore
