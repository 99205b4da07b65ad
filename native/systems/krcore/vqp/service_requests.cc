// Requests of the service itself: its messages, and the READs of long payloads.
#include <mutex>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

using fabric::Status;

// Nothing leads to a life that has ended; a connection of the next one leads to somebody else.
// Without dynamic connections there is no way to a dead peer any more.
PhysicalQp* Service::way_to(CorePool& pool, NodeId node, const Destination& to, bool& may_come) {
  may_come = false;
  if (to.meta.incarnation < peers_->life_of(node)) return nullptr;
  PhysicalQp* qp = pool.reliable_to(node);
  if (qp != nullptr && qp->life != to.meta.incarnation) qp = nullptr;
  const bool has_target = to.is_dynamic();
  if (qp == nullptr && has_target) qp = pool.next_dynamic();
  may_come = qp != nullptr || (has_target && !pool.dynamic.empty()) || is_making(pool, node);
  return qp;
}

Service::Sent Service::send(CorePool& pool, Prepared& request) {
  if (request.to.handle == nullptr) request.to.handle = peers_->handle_of_sender(request.node);
  bool may_come = false;
  PhysicalQp* qp = way_to(pool, request.node, request.to, may_come);
  if (qp != nullptr && qp->room() != 0 && post_physical(pool, *qp, {&request, 1}) == 1)
    return Sent::kNow;
  return may_come ? Sent::kLater : Sent::kNever;
}

// A full queue pair has places when its completions have been taken.
void Service::make_place(CorePool& pool, const Prepared& request) {
  bool may_come = false;
  PhysicalQp* qp = way_to(pool, request.node, request.to, may_come);
  if (qp != nullptr && qp->room() == 0) poll_inner(pool, *qp);
}

// The order of such a message among others does not matter, so any queue pair of this core will do.
void Service::send_service_message(CorePool& pool, NodeId node, const DctMeta& meta,
                                   const MessageHeader& header) {
  Prepared message;
  message.kind = Prepared::Kind::kInternal;
  message.request.opcode = fabric::Opcode::kSend;
  message.header = header;
  message.node = node;
  message.to = {peers_->handle_of_sender(node), meta, node};
  const std::lock_guard<Mutex> lock(pool.mutex);
  make_place(pool, message);
  if (send(pool, message) != Sent::kNow) pool.deferred.push_back(message);
}

// Requests of the service that found no place. None waits for another one, whose peer may be dead:
// one without a way ends. An answer that is lost so is asked for again by who lives; whose payload
// cannot be read is gone.
void Service::send_deferred(CorePool& pool) {
  for (std::size_t left = pool.deferred.size(); left-- > 0;) {
    Prepared request = pool.deferred.front();
    pool.deferred.pop_front();
    if (request.kind == Prepared::Kind::kFetch) {
      if (const auto end = end_without_read(request)) {
        request.fetched->store(*end, std::memory_order_release);
        continue;
      }
    }
    const Sent sent = send(pool, request);
    if (sent == Sent::kNow) continue;
    if (options_.bugs.has(Bug::kNoWayKept)) return pool.deferred.push_front(request);
    if (sent == Sent::kLater) {
      pool.deferred.push_back(request);
      continue;
    }
    env_.reached("krcore/no_way");
    finish(request, Status::kRetryExceeded, owner_of(request, request.owner));
  }
}

}  // namespace pyrdma::krcore
