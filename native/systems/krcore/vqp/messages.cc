// Two-sided messages (section 4.4): what arrives in the buffers of a core goes to the virtual queue
// pair that its header names. Long payloads are read by the receiver (section 4.5).
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "fabric/post_rules.h"
#include "fabric/shm/copy.h"
#include "systems/krcore/scopes.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

using fabric::Status;

namespace {

constexpr std::uint32_t kForeignMessages = 16;  // then the sender shall send to the receiver's core

}  // namespace

MessageHeader Service::header_of(const Vqp& v, MessageKind kind, CorePool& pool) const {
  MessageHeader header;
  header.kind = kind;
  address(v, pool, header);
  return header;
}

void Service::address(const Vqp& v, CorePool& pool, MessageHeader& header) const {
  header.to = v.peer;
  header.port = static_cast<std::uint16_t>(v.port);
  header.from_node = env_.node();
  header.from = v.id.number();
  header.meta = pool.target();
  header.from_epoch = v.epoch;
  header.to_epoch = v.peer_epoch;
}

// Takes batches of messages, at most `rounds` of them. Returns false when another thread does so.
bool Service::dispatch_all(CorePool& pool, std::uint32_t rounds) {
  if (!pool.receive_mutex.try_lock()) return false;
  std::vector<MessageHeader> repeated;
  {
    const std::lock_guard<Mutex> lock(pool.receive_mutex, std::adopt_lock);
    take_batches(pool, rounds);
    repeated.swap(pool.repeated);
  }
  if (!repeated.empty()) take_repeated(pool, repeated);
  return true;
}

void Service::take_batches(CorePool& pool, std::uint32_t rounds) {
  const Scope step(env_, scope::poll_receives);
  CorePool::Batch& batch = pool.received;
  std::size_t count = batch.size();
  for (std::uint32_t round = 0; round < rounds && count == batch.size(); ++round) {
    count = pool.receives().poll(batch);
    if (count == 0) note_overrun(pool.receives(), "the messages of KRCore");
    for (const fabric::Completion& wc : std::span(batch).first(count)) {
      if (wc.wr_id >= pool.buffers()) continue;
      if (wc.status == Status::kSuccess) {
        const std::byte* at = pool.buffer(wc.wr_id);
        if (const auto header = parse_header(at, wc.byte_count))
          take_message(pool, *header, at + sizeof(MessageHeader));
        else
          ++counters_.malformed;
      }
      pool.post_buffer(wc.wr_id);
    }
  }
}

// Takes what has arrived at all cores before messages that come again. It waits for the locks: a
// thread that polls without a pause holds one nearly always, and the sender of a message that is
// dropped again and again would be taken for dead.
void Service::take_repeated(CorePool& from, std::span<const MessageHeader> headers) {
  std::vector<std::pair<CorePool*, MessageHeader>> waiting, next;
  for (const MessageHeader& header : headers) waiting.emplace_back(&from, header);
  while (!waiting.empty()) {
    for (const auto& pool : pools_) {
      const std::lock_guard<Mutex> lock(pool->receive_mutex);
      take_batches(*pool, ~0U);
      for (const MessageHeader& header : pool->repeated) next.emplace_back(pool.get(), header);
      pool->repeated.clear();
    }
    for (const auto& [pool, header] : waiting) take_message(*pool, header, nullptr);
    waiting.swap(next);
    next.clear();
  }
}

Vqp* Service::named_by(const MessageHeader& header) {
  return find(VqpId::of(header.to != 0 ? header.to : ports_[header.port].load()));
}

bool Service::is_for_earlier(const Vqp& v, const MessageHeader& header) {
  return header.to_epoch != 0 && header.to_epoch != v.epoch;
}

bool Service::is_from_peer(const Vqp& v, const MessageHeader& header) {
  return v.node == header.from_node && v.life == header.meta.incarnation;
}

void Service::take_message(CorePool& pool, const MessageHeader& header, const std::byte* payload) {
  const Scope step(env_, scope::take_message);
  if (header.from_node >= env_.nodes()) {
    ++counters_.malformed;
    return;
  }
  // A node that comes back may have the numbers and keys of its last life.
  if (header.to_life != MessageHeader::kAnyLife &&
      header.to_life != static_cast<std::uint16_t>(env_.incarnation())) {
    env_.reached("krcore/old_life");
    return;
  }
  Vqp* v = named_by(header);
  const auto is_old = [&] { return is_for_earlier(*v, header); };
  if (v != nullptr && is_old()) {
    env_.reached("krcore/old_connection");
    return;
  }
  // The first announcement, or what was sent before a transfer, may lie with another core.
  const bool has_payload =
      header.kind != MessageKind::kZeroCopy && header.kind != MessageKind::kTransfer;
  if ((header.flags & MessageHeader::kAgain) != 0 && pools_.size() > 1 && !has_payload) {
    pool.repeated.push_back(header);
    pool.repeated.back().flags &= static_cast<std::uint8_t>(~MessageHeader::kAgain);
    return;
  }
  switch (header.kind) {
    case MessageKind::kData:
    case MessageKind::kZeroCopy:
    case MessageKind::kWriteNotice:
      if (v == nullptr) {
        refuse(pool, header, Status::kRemoteInvalidRequest);
        return;
      }
      deliver(pool, *v, header, payload);
      return;
    case MessageKind::kZeroCopyDone:
      if (v != nullptr) {
        const SendLock lock(*v);
        if (is_old() || !is_from_peer(*v, header)) return;  // since the look without the lock
        complete_ticket(*v, header.ticket, Status::kSuccess);
      }
      return;
    case MessageKind::kTransfer:
      on_transfer(pool, header);
      return;
    case MessageKind::kTransferAck:
      if (v != nullptr) {
        const SendLock lock(*v);
        if (is_old() || !is_from_peer(*v, header)) return;
        if (v->transfer.stage != Transfer::kRunning || v->transfer.ticket != header.ticket) return;
        v->transfer.acked = true;
        end_transfer(*lock.pool, *v);
      }
      return;
    case MessageKind::kRefused:
      if (v != nullptr) {
        const SendLock lock(*v);
        if (is_old() || !is_from_peer(*v, header)) return;
        const auto status = header.key <= static_cast<std::uint32_t>(Status::kGeneral)
                                ? static_cast<Status>(header.key)
                                : Status::kGeneral;
        complete_ticket(*v, header.ticket, status);
        v->refusal = status;
        fail_vqp(*v);
      }
      return;
    case MessageKind::kFake:
    case MessageKind::kCount:
      return;
  }
}

void Service::refuse(CorePool& pool, const MessageHeader& header, Status status) {
  ++counters_.refused_messages;
  MessageHeader answer;
  answer.kind = MessageKind::kRefused;
  answer.to = header.from;
  answer.to_epoch = header.from_epoch;
  answer.from_node = env_.node();
  answer.meta = pool.target();
  answer.key = static_cast<std::uint32_t>(status);
  answer.ticket = header.ticket;
  send_service_message(pool, header.from_node, header.meta, answer);
}

void Service::deliver(CorePool& pool, Vqp& v, const MessageHeader& header,
                      const std::byte* payload) {
  Status refusal = Status::kSuccess;
  {
    const std::lock_guard<Mutex> lock(v.receive_mutex);
    // A reset or an end since the look without the lock: the message would take a receive of the
    // next connection.
    if (named_by(header) != &v || is_for_earlier(v, header)) return;
    const bool is_direct = header.to != 0;
    const Sender sender = Sender::of(header);
    if (header.kind == MessageKind::kZeroCopy && is_known(v, header)) return;
    if (header.kind == MessageKind::kZeroCopy && !can_note(v, header)) {
      ++counters_.malformed;
      refusal = Status::kRemoteInvalidRequest;
    } else if (is_refused(v, sender)) {
      refusal = Status::kRnrRetryExceeded;  // what follows a lost message is lost, too
    } else if (is_direct && v.state.load() == VqpState::kError) {
      refusal = Status::kRemoteOperation;
    } else if (v.inbox.size() >= options_.inbox_messages + v.options.receive_entries ||
               v.inbox_bytes + header.length > options_.inbox_bytes + options_.message_bytes) {
      refusal = Status::kRnrRetryExceeded;
      v.refused[sender.place()] = sender;
    } else {
      InboxItem& item = v.inbox.emplace_back();
      item.header = header;
      if (header.kind == MessageKind::kZeroCopy) item.good_until = env_.now() + options_.lease;
      if (v.waiting_items == 0 && !v.receives.empty() && header.kind == MessageKind::kData) {
        PostedReceive receive = std::move(v.receives.front());
        v.receives.pop_front();
        put_into(v, item, payload, std::move(receive));
        if (item.status != Status::kSuccess) refuse_untaken(v, item);
      } else {
        ++v.waiting_items;
        if (header.kind == MessageKind::kData) {
          item.bytes.assign(payload, payload + header.length);
          v.inbox_bytes += header.length;
          env_.charge_copy(header.length);
        }
        match(v);
      }
      auto reply = v.replies.find(sender);
      if (reply != v.replies.end() && &pool != v.pool.load()) ++reply->second.foreign;
    }
  }
  if (refusal != Status::kSuccess) refuse(pool, header, refusal);
  env_.notify(v.watch);
}

// Copies the payload into the user's buffer.
void Service::put_into(const Vqp& v, InboxItem& item, const std::byte* payload,
                       PostedReceive&& receive) {
  item.receive = std::move(receive);
  item.state = InboxItem::kReady;
  if (!has_buffers(v, item.receive)) {
    item.status = Status::kLocalProtection;
    return;
  }
  if (item.header.length > item.receive.bytes) {
    item.status = Status::kLocalLength;
    return;
  }
  std::uint64_t left = item.header.length;
  for (const fabric::Sge& sge : item.receive.sges) {
    const std::uint64_t piece = std::min<std::uint64_t>(left, sge.length);
    // Requests of peers may use the buffer meanwhile, as with a receive of a NIC: words stay whole.
    if (piece != 0) fabric::shm::copy_out(reinterpret_cast<std::byte*>(sge.addr), payload, piece);
    payload += piece;
    left -= piece;
  }
  env_.charge_copy(item.header.length);
}

// The regions of a receive may have ended since its post, and their memory be another
// application's.
bool Service::has_buffers(const Vqp& v, const PostedReceive& receive) const {
  return std::ranges::all_of(receive.sges, [&](const fabric::Sge& sge) {
    std::uint32_t key = 0;
    return regions_->check(sge, true, v.options.domain, key);
  });
}

// The receive is too short, or has lost its memory: both sides learn of it.
void Service::refuse_untaken(const Vqp& v, InboxItem& item) {
  item.state = InboxItem::kReady;
  refuse(*v.pool.load(std::memory_order_acquire), item.header, kNotTaken);
}

// Gives waiting messages the receives that have been posted, in order.
void Service::match(Vqp& v) {
  std::size_t at = v.inbox.size() - v.waiting_items;
  while (v.waiting_items != 0 && !v.receives.empty()) {
    InboxItem& item = v.inbox[at++];
    --v.waiting_items;
    PostedReceive receive = std::move(v.receives.front());
    v.receives.pop_front();
    if (item.header.kind == MessageKind::kData) {
      v.inbox_bytes -= item.header.length;
      put_into(v, item, item.bytes.data(), std::move(receive));
      item.bytes = {};
      if (item.status != Status::kSuccess) refuse_untaken(v, item);
    } else if (item.header.kind == MessageKind::kWriteNotice) {
      item.receive = std::move(receive);
      item.state = InboxItem::kReady;
    } else {
      item.receive = std::move(receive);
      if (!fetch(v, item)) refuse_untaken(v, item);
    }
  }
}

fabric::PostResult Service::post_receive(VqpId id,
                                         std::span<const fabric::ReceiveRequest> requests) {
  const Scope step(env_, scope::post_receive);
  failure_.check();
  Vqp* v = find(id);
  if (v == nullptr) return {0, fabric::PostError::kInvalidState};
  const std::lock_guard<Mutex> lock(v->receive_mutex);
  fabric::PostResult result;
  for (const fabric::ReceiveRequest& request : requests) {
    if (!fabric::has_pieces_up_to(std::min(v->options.max_sges, kMostSges), request)) {
      result.error = fabric::PostError::kInvalid;
      break;
    }
    if (v->receives.size() + (v->inbox.size() - v->waiting_items) >= v->options.receive_entries) {
      result.error = fabric::PostError::kQueueFull;
      break;
    }
    PostedReceive receive;
    receive.wr_id = request.wr_id;
    bool is_good = true;
    for (std::uint32_t i = 0; i < request.sge_count; ++i) {
      const fabric::Sge& sge = request.sges[i];
      std::uint32_t key = 0;
      is_good = is_good && regions_->check(sge, true, v->options.domain, key);
      receive.sges.push_back(sge);
      receive.bytes += sge.length;
    }
    if (!is_good) {
      result.error = fabric::PostError::kInvalid;
      break;
    }
    v->receives.push_back(std::move(receive));
    ++result.accepted;
  }
  match(*v);
  return result;
}

// What comes late of a connection that has ended before the refused one has no promise either.
bool Service::is_refused(const Vqp& v, const Sender& sender) {
  const auto known = v.refused.find(sender.place());
  return known != v.refused.end() && (known->second == sender || sender.is_before(known->second));
}

// Ends what cannot be taken. Returns whether the oldest message can.
bool Service::has_ready(Vqp& v) {
  while (!v.inbox.empty()) {
    InboxItem& item = v.inbox.front();
    if (item.state == InboxItem::kFetching) look_at_fetch(item);
    if (item.state == InboxItem::kFailed) lose_messages_of(v, Sender::of(item.header));
    if (!item.is_lost) return item.state == InboxItem::kReady;
    // A READ still writes to its receive.
    if (item.state == InboxItem::kFetching && item.fetched->load() != InboxItem::kStale)
      return false;
    if (item.state == InboxItem::kWaits) {
      --v.waiting_items;
      if (item.header.kind == MessageKind::kData) v.inbox_bytes -= item.header.length;
    } else {
      v.receives.push_front(std::move(item.receive));
    }
    v.inbox.pop_front();
    match(v);
  }
  return false;
}

// The payload of one of them could not be read. What follows a lost message is lost, too, so that
// the sender's messages arrive without a gap. A sender that lives asks again, and learns of it.
void Service::lose_messages_of(Vqp& v, const Sender& sender) {
  if (!is_refused(v, sender)) v.refused[sender.place()] = sender;
  for (InboxItem& item : v.inbox) item.is_lost |= Sender::of(item.header) == sender;
}

std::size_t Service::pop_messages(VqpId id, std::span<Message> out, bool with_replies) {
  const Scope step(env_, scope::pop_messages);
  failure_.check();
  Vqp* v = find(id);
  if (v == nullptr) return 0;
  CorePool& own = *v->pool.load(std::memory_order_acquire);
  dispatch(own);
  if (&own != pools_.front().get()) dispatch(*pools_.front());  // the node's target
  struct Done {
    NodeId node;
    DctMeta meta;
    MessageHeader header;
  };
  std::vector<Done> done;
  std::vector<VqpId> to_move;
  std::size_t taken = 0;
  // A READ of the first message may have ended: its completion must be taken before the look.
  NodeId waits_for = fabric::kNoNode;
  {
    const std::lock_guard<Mutex> lock(v->receive_mutex);
    if (!v->inbox.empty() && v->inbox.front().state == InboxItem::kFetching)
      waits_for = v->inbox.front().header.from_node;
  }
  if (waits_for != fabric::kNoNode) {
    const std::lock_guard<Mutex> lock(own.mutex);
    poll_all(own, waits_for);
  }
  {
    const std::lock_guard<Mutex> lock(v->receive_mutex);
    ++v->pops;
    while (taken < out.size() && has_ready(*v)) {
      InboxItem& item = v->inbox.front();
      Message& message = out[taken++];
      message = {};
      message.wr_id = item.receive.wr_id;
      message.bytes = item.header.length;
      message.immediate = item.header.immediate;
      message.has_immediate = (item.header.flags & MessageHeader::kHasImmediate) != 0;
      message.status = item.status;
      message.from = item.header.from_node;
      if (item.header.kind == MessageKind::kWriteNotice)
        message.opcode = fabric::Opcode::kReceiveWriteImm;
      if (item.header.kind == MessageKind::kZeroCopy) {
        note_taken(*v, item);
        if (item.status == Status::kSuccess)
          done.push_back({item.header.from_node, item.header.meta, done_of(item.header, own)});
      }
      if (with_replies && item.header.to == 0) {
        message.reply = reply_to(*v, item.header);
        if (auto sender = v->replies.find(Sender::of(item.header));
            sender != v->replies.end() && !sender->second.is_moved &&
            sender->second.foreign >= kForeignMessages) {
          sender->second.is_moved = true;
          to_move.push_back(sender->second.vqp);
        }
      }
      v->inbox.pop_front();
    }
  }
  for (const Done& end : done) send_service_message(own, end.node, end.meta, end.header);
  // The sender shall send to this core from now on.
  for (const VqpId reply : to_move) start_transfer(reply, own.core);
  return taken;
}

}  // namespace pyrdma::krcore
