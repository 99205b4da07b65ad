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

// The receiver reads the payload straight into the user's buffer.
bool Service::fetch(Vqp& v, InboxItem& item) {
  CorePool& pool = *v.pool.load(std::memory_order_acquire);
  if (item.header.length > item.receive.bytes) return false;
  ++counters_.zero_copies;
  item.state = InboxItem::kFetching;
  item.fetched = std::make_shared<std::atomic<std::uint8_t>>(InboxItem::kFetching);
  Prepared read;
  read.kind = Prepared::Kind::kFetch;
  read.owner = v.id;
  read.epoch = v.epoch;
  read.fetched = item.fetched;
  read.node = item.header.from_node;
  read.request.opcode = fabric::Opcode::kRead;
  read.request.remote_addr = item.header.address;
  read.request.rkey = item.header.key;
  std::uint64_t left = item.header.length;
  for (const fabric::Sge& sge : item.receive.sges) {
    if (left == 0) break;
    fabric::Sge& piece = read.sges[read.request.sge_count++];
    piece = sge;
    piece.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, sge.length));
    left -= piece.length;
  }
  read.to = {peers_->handle_of_sender(item.header.from_node), item.header.meta};
  const std::lock_guard<Mutex> lock(pool.mutex);
  make_place(pool, read);
  if (send(pool, read) != Sent::kNow) pool.deferred.push_back(read);
  return true;
}

// An announcement may come again, because its answer was lost. A message that waits has no answer
// yet.
bool Service::is_known(Vqp& v, const MessageHeader& header) {
  const Sender sender = Sender::of(header);
  bool is_refused = false;
  const auto waiting = std::ranges::find_if(v.inbox, [&](const InboxItem& item) {
    return item.header.ticket == header.ticket && Sender::of(item.header) == sender;
  });
  if (waiting != v.inbox.end()) {
    is_refused = waiting->status != fabric::Status::kSuccess;
    if (!is_refused) return true;
  } else {
    const auto taken = std::ranges::find_if(v.taken, [&](const Vqp::Taken& each) {
      return each.sender == sender && each.ticket == header.ticket;
    });
    if (taken == v.taken.end()) return false;
    is_refused = taken->is_refused;
  }
  CorePool& pool = *v.pool.load(std::memory_order_acquire);
  if (is_refused)
    refuse(pool, header, kTooLong);
  else
    send_service_message(pool, header.from_node, header.meta, done_of(header, pool));
  return true;
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
