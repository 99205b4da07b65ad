// The transfer of a virtual queue pair to another physical one, or to another core (section 4.6).
//
// A fake request tells when all requests before it are done; the peer's acknowledgement, when it
// has dispatched all messages before the notification. Both may begin at once: the one that is
// asked while it asks acknowledges, and begins no second transfer. Posts wait meanwhile.
#include <algorithm>
#include <mutex>
#include <utility>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

void Service::start_transfer(VqpId id, std::uint32_t core) {
  Vqp* v = find(id);
  if (v == nullptr) return;
  const SendLock lock(*v);
  // The peer must learn of it even if this queue pair has sent nothing: it may send here.
  v->has_sent_messages |= v->peer != 0;
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

Prepared Service::transfer_message(Vqp& v, MessageKind kind) {
  Prepared message;
  message.kind = Prepared::Kind::kInternal;
  message.owner = v.id;
  message.epoch = v.epoch;
  message.order = v.next_order++;
  message.ticket = v.transfer.ticket;
  message.to = v.to;
  message.request.opcode = fabric::Opcode::kSend;
  message.header = header_of(v, kind, *v.transfer.pool);
  message.header.ticket = v.transfer.ticket;
  if (v.transfer.is_answer) message.header.flags = MessageHeader::kAnswer;
  return message;
}

// The queue pairs of a core that wait for their peer ask it again. The peer answers each time.
// Those that find no room come first at the next turn, which is near: a message that is not
// announced for long is lost (vqp/zero_copy.cc). Returns whether there are such.
bool Service::ask_again(CorePool& pool) {
  std::vector<VqpId>& asking = core_states_[pool.core]->asking;
  if (asking.empty()) return false;
  std::vector<VqpId> turn;
  turn.swap(asking);
  const Time now = env_.now();
  std::optional<std::size_t> first_left;  // of `asking`
  for (const VqpId id : turn) {
    Vqp* v = find(id);
    if (v == nullptr) continue;
    v->is_asking = false;
    if (v->pool.load(std::memory_order_relaxed) != &pool) continue;
    const std::size_t place = asking.size();
    // What asks goes by another queue pair if its own has failed.
    if (v->qp == nullptr || (v->qp->has_failed && v->qp->under_way() == 0))
      adopt(*v, pool.next_to(v->node, v->to));
    bool has_room = true;
    const auto may_ask = [&](Time& again, Time& interval, Time longest) {
      if (v->qp == nullptr || v->qp->has_failed || again > now) return false;
      has_room = v->qp->room() > 0;
      if (!has_room) return false;
      interval = std::min(2 * interval, longest);
      again = now + interval;
      return true;
    };
    Transfer& transfer = v->transfer;
    const bool waits = transfer.stage == Transfer::kRunning && !transfer.acked;
    if (waits && may_ask(transfer.again, transfer.interval, kForever)) {
      env_.reached("krcore/asked_again");
      Prepared message = transfer_message(*v, MessageKind::kTransfer);
      message.header.flags |= MessageHeader::kAgain;
      post_physical(pool, *v->qp, {&message, 1});
    }
    for (Question& question : v->announced) {
      // The receiver may read for a lease from an announcement on (vqp/zero_copy.cc).
      if (!may_ask(question.again, question.interval, options_.lease / 2)) continue;
      if (!has_buffers(question.message, v->options.domain, 1, 1)) {
        complete_ticket(*v, question.message.ticket, fabric::Status::kLocalProtection);
        fail_vqp(*v);
        break;  // it announces nothing any more
      }
      env_.reached("krcore/asked_again");
      Prepared message = question.message;
      message.kind = Prepared::Kind::kInternal;
      message.header.flags |= MessageHeader::kAgain;
      message.to = v->to;
      post_physical(pool, *v->qp, {&message, 1});
    }
    if (!has_room) {
      const auto left = std::ranges::find_if(
          v->announced, [&](const Question& each) { return each.again <= now; });
      std::rotate(v->announced.begin(), left, v->announced.end());
      if (!first_left) first_left = place;
    }
    if (waits || !v->announced.empty()) want_answer(pool, *v);
  }
  if (!first_left) return false;
  std::rotate(asking.begin(), asking.begin() + static_cast<std::ptrdiff_t>(*first_left),
              asking.end());
  return true;
}

void Service::begin_transfer(CorePool& pool, Vqp& v) {
  Transfer& transfer = v.transfer;
  const bool is_idle = v.qp == nullptr || v.qp->has_failed;
  // Requests that come back from a failed queue pair go before later ones.
  if (v.qp != nullptr && v.qp->has_failed && v.qp->under_way() != 0) return;
  // Held posts come first; they may be what the transfer waits for.
  if (!is_idle && !v.pending.empty()) return;
  if (!is_idle && v.qp->room() < 2) return;
  transfer.ticket = v.next_ticket++;
  transfer.stage = Transfer::kRunning;
  ++counters_.transfers;
  // One-sided requests alone tell the peer nothing that it could miss.
  transfer.acked = options_.bugs.has(Bug::kTransferWithoutAck) || !v.has_sent_messages;
  transfer.fake_done = options_.bugs.has(Bug::kTransferWithoutFake);
  if (is_idle) {
    abandon(v);
    await_placement(pool, v);
    if (!transfer.acked) ask_by_another_way(pool, v);
    end_transfer(pool, v);
    return;
  }
  Prepared messages[2];
  std::size_t count = 0;
  messages[count++] = transfer_message(v, MessageKind::kFake);
  if (v.has_sent_messages) messages[count++] = transfer_message(v, MessageKind::kTransfer);
  const std::uint32_t accepted = post_physical(pool, *v.qp, std::span(messages).first(count));
  if (accepted == count) {
    transfer.interval = options_.ask_again;
    transfer.again = env_.now() + transfer.interval;
    want_answer(pool, v);
    end_transfer(pool, v);
    return;
  }
  // A device that took only a part is asked again; the ticket of the first attempt is void.
  transfer.stage = Transfer::kWanted;
  want_turn(pool, v);
}

void Service::ask_by_another_way(CorePool& pool, Vqp& v) {
  env_.reached("krcore/asked_by_another_way");
  v.transfer.interval = options_.ask_again;
  v.transfer.again = env_.now();
  want_answer(pool, v);
}

// Time stands in for a fake request.
void Service::await_placement(CorePool& pool, Vqp& v) {
  v.transfer.is_timed = true;
  want_turn(pool, v);
}

// A queue pair that has left its physical one without a transfer, since that has failed or its peer
// has left it, goes on by another way, and what is posted waits until nothing of the old way can be
// overtaken. Messages may lie with another core of the peer, so it asks by the new way whether all
// have been dispatched. WRITEs have completed, but the memory may not have them: a READ, an atomic
// or a message drains only what went by its own queue pair, and no request goes by one that has
// failed. So it waits as long as a placement may take.
void Service::go_another_way(Vqp& v, bool is_another) {
  Transfer& transfer = v.transfer;
  const bool asks =
      is_another && v.has_sent_messages && !options_.bugs.has(Bug::kTransferWithoutAck);
  const bool waits = v.placed_at != 0 && env_.now() < v.placed_at;  // the clock is slow
  if ((!asks && !waits) || v.state.load() != VqpState::kConnected ||
      transfer.stage == Transfer::kRunning)
    return;
  CorePool& pool = *v.pool.load(std::memory_order_relaxed);
  if (transfer.stage == Transfer::kNone) {
    transfer = {};
    transfer.pool = &pool;
  }
  transfer.stage = Transfer::kRunning;
  transfer.ticket = v.next_ticket++;
  transfer.acked = !asks;
  ++counters_.transfers;
  await_placement(pool, v);
  if (asks) ask_by_another_way(pool, v);
}

void Service::end_transfer(CorePool& pool, Vqp& v) {
  Transfer& transfer = v.transfer;
  transfer.fake_done |= transfer.is_timed && env_.now() >= v.placed_at;
  if (!transfer.fake_done || !transfer.acked) return;
  env_.reached("krcore/transferred");
  CorePool& to = *transfer.pool;
  if (transfer.meta) v.to.meta = *transfer.meta;
  v.transfer = {};
  v.way.reset();  // the peer has dispatched all
  if (&to != &pool) {
    leave(v);
    v.is_waiting = v.is_asking = false;
    v.pool.store(&to, std::memory_order_release);
    // The thread that uses it places it there, with the new lock.
    return;
  }
  adopt(v, pool.next_to(v.node, v.to));
  flush_pending(pool, v);
  if (!v.pending.empty()) want_turn(pool, v);
}

void Service::on_transfer(CorePool& pool, const MessageHeader& header) {
  Vqp* v = find(VqpId::of(header.to));
  if (v == nullptr && header.to == 0) {
    // The sender knows the port alone; the queue pair that answers it may exist.
    if (Vqp* bound = find(VqpId::of(ports_[header.port].load()))) {
      const std::lock_guard<Mutex> lock(bound->receive_mutex);
      const auto reply = bound->replies.find(Sender::of(header));
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
  send_service_message(pool, header.from_node, header.meta, ack);
  if (v == nullptr || (header.flags & MessageHeader::kAnswer) != 0) return;
  const SendLock lock(*v);
  if (!is_from_peer(*v, header)) return;
  if (v->transfer.stage != Transfer::kNone) {
    env_.reached("krcore/both_transfer");
    v->transfer.meta = header.meta;
    return;
  }
  want_transfer(*v, *lock.pool, header.meta, true);
  if (v->transfer.stage == Transfer::kWanted) begin_transfer(*lock.pool, *v);
}

}  // namespace pyrdma::krcore
