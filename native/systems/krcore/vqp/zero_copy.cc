// The zero-copy protocol of two-sided messages (section 4.5): the sender announces a long payload,
// and the receiver reads it straight into the user's buffer. The send ends when the receiver has
// read.
//
// A send that ends with an error may still be read, since its receiver may not know of the error.
// The paper says nothing of it. The owner must not use the buffer for something else then, but
// remove its registration: that memory has no other use until all leases have ended.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

// The receiver reads the payload straight into the user's buffer. Returns false, with the status of
// the message, if that cannot take it.
bool Service::fetch(Vqp& v, InboxItem& item) {
  if (!has_buffers(v, item.receive)) item.status = fabric::Status::kLocalProtection;
  if (item.header.length > item.receive.bytes) item.status = fabric::Status::kLocalLength;
  if (item.status != fabric::Status::kSuccess) return false;
  ++counters_.zero_copies;
  item.state = InboxItem::kFetching;
  item.fetched = std::make_shared<std::atomic<std::uint8_t>>(InboxItem::kFetching);
  read_payload(v, item);
  return true;
}

void Service::read_payload(Vqp& v, InboxItem& item) {
  Prepared read;
  read.kind = Prepared::Kind::kFetch;
  read.owner = v.id;
  read.epoch = v.epoch;
  read.fetched = item.fetched;
  read.good_until = item.good_until;
  read.node = item.header.from_node;
  read.request.opcode = fabric::Opcode::kRead;
  read.request.remote_addr = item.header.address;
  read.request.rkey = item.header.key;
  std::uint64_t left = item.header.length;
  for (const fabric::Sge& sge : item.receive.sges) {
    if (left == 0) break;
    const std::uint32_t number = read.request.sge_count++;
    fabric::Sge& piece = read.sges[number];
    piece = sge;
    read.local_keys[number] = sge.lkey;
    regions_->check(sge, true, v.options.domain, piece.lkey);  // `end_without_read` has the result
    piece.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, sge.length));
    left -= piece.length;
  }
  read.to = {peers_->handle_of_sender(read.node), item.header.meta, read.node};
  CorePool& pool = *v.pool.load(std::memory_order_acquire);
  const std::lock_guard<Mutex> lock(pool.mutex);
  if (const auto end = end_without_read(read)) {
    item.fetched->store(*end, std::memory_order_release);
    return;
  }
  make_place(pool, read);
  if (send(pool, read) != Sent::kNow) pool.deferred.push_back(read);
}

// An announcement gives a right to read as long as a lease lasts. The sender, which has the memory,
// announces at least twice in that time what is not read, as long as its application has the
// memory. So a READ that has not begun in time waits for the next announcement. It waits as long as
// the memory may have another use; a sender that has not announced by then is dead or cut off.
std::optional<InboxItem::State> Service::end_without_read(const Prepared& fetch) {
  Vqp* v = owner_of(fetch, fetch.owner);
  if (v == nullptr || !has_buffers(fetch, v->options.domain, 0, fetch.request.sge_count))
    return InboxItem::kFailed;
  if (env_.now() > fetch.good_until) {
    env_.reached("krcore/announcement_stale");
    return InboxItem::kStale;
  }
  return std::nullopt;
}

void Service::look_at_fetch(InboxItem& item) const {
  const auto state = static_cast<InboxItem::State>(item.fetched->load(std::memory_order_acquire));
  if (state != InboxItem::kStale)
    item.state = state;
  else if (env_.now() > item.good_until + regions_->grace())
    item.state = InboxItem::kFailed;
}

void Service::announce_again(Vqp& v, InboxItem& item, const MessageHeader& header) {
  item.header = header;
  item.good_until = env_.now() + options_.lease;
  if (item.state != InboxItem::kFetching || item.fetched->load() != InboxItem::kStale) return;
  item.fetched->store(InboxItem::kFetching, std::memory_order_release);
  read_payload(v, item);
}

// An announcement may come again, because its answer was lost. A message that waits has no answer
// yet. One of a connection that has ended has nobody who waits for it.
bool Service::is_known(Vqp& v, const MessageHeader& header) {
  const Sender sender = Sender::of(header);
  std::uint64_t refused = 0;
  const auto waiting = std::ranges::find_if(v.inbox, [&](const InboxItem& item) {
    return item.header.ticket == header.ticket && Sender::of(item.header) == sender;
  });
  if (waiting != v.inbox.end()) {
    if (waiting->status == fabric::Status::kSuccess) {
      announce_again(v, *waiting, header);
      return true;
    }
    refused = header.ticket;
  } else {
    const auto from = v.taken.find(sender.place());
    if (from == v.taken.end()) return false;
    if (sender.is_before(from->second.sender)) return true;
    const TakenTickets& tickets = from->second.tickets;
    if (from->second.sender != sender || !tickets.contains(header.ticket)) return false;
    if (tickets.first_refused != 0 && tickets.first_refused <= header.ticket)
      refused = tickets.first_refused;
  }
  CorePool& pool = *v.pool.load(std::memory_order_acquire);
  MessageHeader asked = header;
  asked.ticket = refused;
  if (refused != 0)
    refuse(pool, asked, kNotTaken);
  else
    send_service_message(pool, header.from_node, header.meta, done_of(header, pool));
  return true;
}

// Whether the message can be noted when it has been taken. No correct sender sends another one.
bool Service::can_note(const Vqp& v, const MessageHeader& header) {
  const Sender sender = Sender::of(header);
  const auto from = v.taken.find(sender.place());
  return from == v.taken.end() || from->second.sender != sender
             ? header.ticket != 0
             : from->second.tickets.has_room_for(header.ticket);
}

void Service::note_taken(Vqp& v, const InboxItem& item) {
  const Sender sender = Sender::of(item.header);
  if (options_.bugs.has(Bug::kOneSenderKept) && !v.taken.contains(sender.place())) v.taken.clear();
  Vqp::Taken& from = v.taken.try_emplace(sender.place(), Vqp::Taken{sender, {}}).first->second;
  if (sender.is_before(from.sender)) return;
  if (from.sender != sender) from = {sender, {}};
  from.tickets.add(item.header.ticket);
  if (item.status != fabric::Status::kSuccess && from.tickets.first_refused == 0)
    from.tickets.first_refused = item.header.ticket;
}

MessageHeader Service::done_of(const MessageHeader& announced, CorePool& pool) const {
  MessageHeader done;
  done.kind = MessageKind::kZeroCopyDone;
  done.to = announced.from;
  done.to_epoch = announced.from_epoch;
  done.from_node = env_.node();
  done.ticket = announced.ticket;
  done.meta = pool.target();
  return done;
}

// Polls what may carry requests to the node.
void Service::poll_all(CorePool& pool, NodeId node) {
  if (!pool.dynamic.empty()) poll_inner(pool, *pool.dynamic.front());
  const auto [first, last] = pool.reliable.equal_range(node);
  for (auto each = first; each != last; ++each) poll_inner(pool, *each->second);
}

}  // namespace pyrdma::krcore
