// The queue pairs by which a receiver answers its senders (section 4.4).
//
// The paper does not say when such a queue pair ends. Nobody tells a receiver of a client that has
// ended, and to tell would cost each client a message. So an application that has all its queue
// pairs gives up those that answer, are idle, and have been used least recently. A client that
// lives gets another one with its next message.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "systems/krcore/service.h"

namespace pyrdma::krcore {

// Creates the queue pair by which the receiver answers, from what the header tells: no request goes
// over the network (section 4.4). The caller holds the receive lock of `bound`.
VqpId Service::reply_to(Vqp& bound, const MessageHeader& header) {
  const Sender sender = Sender::of(header);
  if (const auto known = bound.replies.find(sender); known != bound.replies.end()) {
    known->second.popped = bound.pops;
    ++known->second.messages;
    if (find(known->second.vqp) != nullptr) return known->second.vqp;
    bound.replies.erase(known);  // its application has ended it
  }
  Vqp* v = take_place(bound.options);
  while (v == nullptr && (reclaim_replies(bound) || reclaim_of_others(bound)))
    v = take_place(bound.options);
  if (v == nullptr) return {};
  CorePool& pool = *bound.pool.load(std::memory_order_acquire);
  v->pool.store(&pool, std::memory_order_release);
  const SendLock lock(*v);
  v->node.store(header.from_node, std::memory_order_relaxed);
  v->peer = header.from;
  v->peer_epoch = header.from_epoch;
  v->to = {peers_->handle_of_sender(header.from_node), header.meta, header.from_node};
  v->life = header.meta.incarnation;
  v->state.store(VqpState::kConnected);
  adopt(*v, lock.pool->next_to(v->node, v->to));
  // Those that the application has ended leave an entry, until there are twice as many as before.
  if (bound.replies.size() >= bound.most_replies) {
    std::erase_if(bound.replies,
                  [&](const auto& each) { return find(each.second.vqp) == nullptr; });
    bound.most_replies = std::max(Vqp::kFewReplies, 2 * bound.replies.size());
  }
  Vqp::Reply& reply = bound.replies[sender];
  reply.vqp = v->id;
  reply.popped = bound.pops;
  return v->id;
}

// Ends those that have been used least recently, if they are idle: so many that the next search is
// far. Returns whether it has ended one.
bool Service::reclaim_replies(Vqp& bound) {
  std::vector<std::pair<std::uint64_t, Sender>> idle;  // by their last use
  for (auto& [sender, reply] : bound.replies) {
    // The application has not seen that of the present call yet.
    if (reply.popped != bound.pops && is_idle(reply, bound.pops))
      idle.emplace_back(reply.used, sender);
  }
  const std::size_t count = std::min(idle.size(), 1 + bound.replies.size() / 16);
  std::ranges::partial_sort(idle, idle.begin() + static_cast<std::ptrdiff_t>(count));
  bool has_ended = false;
  for (std::size_t i = 0; i < count; ++i) {
    env_.reached("krcore/reply_reclaimed");
    const auto at = bound.replies.find(idle[i].second);
    const VqpId ended = at->second.vqp;
    bound.replies.erase(at);
    has_ended |= find(ended) != nullptr;
    destroy(ended);
  }
  return has_ended;
}

// Looks when it was used, too. An application that only answers has posted less than it has taken.
// One that posts on its own uses the queue pair without a message.
bool Service::is_idle(Vqp::Reply& reply, std::uint64_t now) {
  Vqp* v = find(reply.vqp);
  if (v == nullptr) return true;
  std::uint64_t posts = 0;
  {
    const SendLock lock(*v);
    posts = v->next_order;  // from 1 on
    if (!v->completions.empty() || v->transfer.stage != Transfer::kNone) return false;
  }
  {
    const std::lock_guard<Mutex> lock(v->receive_mutex);
    if (!v->inbox.empty() || !v->receives.empty()) return false;
  }
  const bool has_posted =
      posts != reply.seen_posts && (reply.seen_posts != 0 || posts > reply.messages + 1);
  reply.used = has_posted ? now : std::max(reply.used, reply.popped);
  reply.seen_posts = posts;
  return true;
}

// Of another queue of the application, unless a thread is at its messages.
bool Service::reclaim_of_others(const Vqp& bound) {
  std::vector<VqpId> others;
  {
    const std::lock_guard<Mutex> lock(table_mutex_);
    for (const auto& place : table_) {
      const Vqp* v = place.load(std::memory_order_acquire);
      if (v != nullptr && v != &bound && v->options.app == bound.options.app)
        others.push_back(v->id);
    }
  }
  return std::ranges::any_of(others, [&](VqpId id) {
    Vqp* other = find(id);
    if (other == nullptr || !other->receive_mutex.try_lock()) return false;
    const std::lock_guard<Mutex> lock(other->receive_mutex, std::adopt_lock);
    return reclaim_replies(*other);
  });
}

}  // namespace pyrdma::krcore
