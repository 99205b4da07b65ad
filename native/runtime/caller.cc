#include "runtime/caller.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "runtime/runtime.h"
#include "runtime/scopes.h"

namespace pyrdma::runtime {

namespace {

std::uint64_t bytes_of(const fabric::WorkRequest& request) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  return bytes;
}

fabric::WorkRequest read_of_nothing() {
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::kRead;
  return request;
}

}  // namespace

std::string text_of(std::span<const NodeId> nodes) {
  std::string text;
  for (const NodeId node : nodes) text += ' ' + std::to_string(node);
  return text;
}

Caller::Caller(Runtime& runtime, std::uint32_t index)
    : runtime_(runtime),
      env_(runtime.env()),
      index_(index),
      max_inline_(runtime.options().max_inline),
      limit_(runtime.options().max_in_flight),
      blocks_(runtime.memory(), runtime.options().block_bytes, runtime.options().blocks),
      acks_(*this),
      dropped_(runtime.env()),
      posting_(runtime.env()),
      shared_(runtime.options().callers > 1) {}

Caller::~Caller() = default;

void Caller::post(NodeId peer, std::span<fabric::WorkRequest> requests, AckKey& key) {
  const Scope step(env_, scope::post);
  std::unique_lock<Mutex> lock(posting_, std::defer_lock);
  if (shared_) lock.lock();
  make_room(requests.size(), lock, *this);
  post_to(*connections_[peer], requests, key);
}

inline void Caller::make_room(std::uint64_t requests, std::unique_lock<Mutex>& posting,
                              Caller& waiter) {
  if (has_room(requests)) [[likely]]
    return;
  wait_for_room(requests, posting, waiter);
}

// The wait does not hold the lock: its report of a timeout posts too. `waiter` is the caller of
// this thread.
void Caller::wait_for_room(std::uint64_t requests, std::unique_lock<Mutex>& posting,
                           Caller& waiter) {
  do {
    if (shared_) posting.unlock();
    runtime_.wait_until(
        waiter, [&] { return has_room(requests); }, "room for another request");
    if (shared_) posting.lock();
  } while (!has_room(requests));
}

// Requires room in the connection's caller, and its lock.
inline void Caller::post_to(Connection& connection, std::span<fabric::WorkRequest> requests,
                            AckKey& key) {
  PYRDMA_CHECK(requests.size() - 1, <, 64U);
  AckBits& bits = acks_.room_in(key);
  const std::uint64_t silent = bits.address() | AckBits::kNoBit;
  std::uint64_t position = connection.posted;
  for (fabric::WorkRequest& request : requests) {
    request.wr_id = silent;
    request.flags = 0;
    ++position;
    if (request.opcode == fabric::Opcode::kWrite || request.opcode == fabric::Opcode::kWriteImm) {
      if (bytes_of(request) <= max_inline_) request.flags = fabric::kInline;
      connection.last_write = position;
    } else {
      connection.last_flush = position;
      if (request.opcode != fabric::Opcode::kRead) connection.last_atomic = position;
    }
  }
  requests.back().wr_id = bits.add();
  requests.back().flags |= fabric::kSignaled;
  if (connection.fence_next) {
    requests.front().flags |= fabric::kFence;
    connection.fence_next = false;
  }
  connection.posted = position;
  connection.size_of(connection.posts++) = static_cast<std::uint8_t>(requests.size());
  std::atomic<std::uint64_t>& posted = connection.caller->posted_;
  posted.store(posted.load(std::memory_order_relaxed) + requests.size(), std::memory_order_relaxed);
  const fabric::PostResult result = connection.qp->post(requests);
  if (result.accepted != requests.size()) [[unlikely]]
    post_rest(connection, requests, result);
}

// A queue may be full while a completion is on its way. The requests are counted already, so this
// throws nothing, unless the completion queue has overrun: then nothing ends any more. If the queue
// stays full, the connection enters the error state: the NIC then takes the requests and ends them.
void Caller::post_rest(Connection& connection, std::span<fabric::WorkRequest> requests,
                       fabric::PostResult result) {
  const Time deadline = env_.now() + runtime_.options().wait_timeout;
  while (true) {
    PYRDMA_CHECK(static_cast<int>(result.error), ==,
                 static_cast<int>(fabric::PostError::kQueueFull));
    requests = requests.subspan(result.accepted);
    const std::uint64_t completed = connection.completed.load(std::memory_order_acquire);
    result = connection.qp->post(requests);
    if (result.accepted == requests.size()) return;
    if (result.accepted != 0) continue;
    const auto moved = [&] {
      if (connection.completed.load(std::memory_order_acquire) != completed) return true;
      runtime_.poll_if_callers_poll();
      return connection.completed.load(std::memory_order_acquire) != completed;
    };
    // The queue may have room though nothing more completes; so this looks again now and then.
    if (!env_.poll_until(moved, env_.now() + kMillisecond) && env_.now() >= deadline &&
        connection.qp->state() != fabric::QpState::kError) {
      connection.qp->modify(fabric::QpState::kError);
    }
  }
}

fabric::Status Caller::await_pair(NodeId peer) {
  const Scope step(env_, scope::await_pair);
  const Connection& connection = *connections_[peer];
  std::unique_lock<Mutex> lock(posting_, std::defer_lock);
  if (shared_) lock.lock();
  const std::uint64_t position = connection.posted;
  const auto completed = [&] {
    return connection.completed.load(std::memory_order_acquire) >= position;
  };
  if (!completed()) {
    if (shared_) lock.unlock();
    runtime_.wait_until(*this, completed, "completion of a pair fence");
    if (shared_) lock.lock();
  }
  const fabric::Status lost = lost_by(connection);
  return connection.qp->state() == fabric::QpState::kError ? fabric::Status::kFlushed : lost;
}

// Returns why the connection has lost a write or an atomic that no fence of this caller has
// reported. Requires the lock of the connection's caller.
fabric::Status Caller::hear_of_loss(const Connection& connection) {
  const std::uint64_t newest = connection.losses.newest(connection.last_change());
  std::uint64_t& heard = heard_[&connection].by_fence;
  if (newest <= heard) return fabric::Status::kSuccess;
  heard = newest;
  return connection.losses.why();
}

Mark Caller::mark(NodeId peer, AckKey& key) { return mark_of(*this, peer, key); }

Mark Caller::mark_of(Caller& other, NodeId peer, AckKey& key) {
  const Scope step(env_, scope::mark);
  Connection& connection = *other.connections_[peer];
  std::unique_lock<Mutex> lock(other.posting_, std::defer_lock);
  if (shared_) lock.lock();
  if (connection.last_write > connection.last_flush) {
    env_.reached("fence/mark after a write");
    other.make_room(1, lock, *this);
    flush(connection, key);
  }
  Mark mark{&connection, connection.last_flush, connection.last_change(),
            connection.losses.failures()};
  if (mark.failures != 0) [[unlikely]]
    tell(mark);
  return mark;
}

// What is lost already, and what of it this thread has been told. A failure from now on is seen by
// Mark::status.
void Caller::tell(Mark& mark) {
  const Losses& losses = mark.connection->losses;
  Heard& heard = heard_[mark.connection];
  const std::uint64_t newest = losses.newest(mark.change);
  if (newest > std::max(heard.by_fence, heard.by_mark)) {
    heard.by_mark = newest;
    mark.lost = losses.why();
  }
  if (mark.change <= std::max(heard.by_fence, heard.by_mark)) mark.change = 0;
}

fabric::Status Caller::fence_thread() { return fence({&runtime_.callers_[index_], 1}); }

fabric::Status Caller::fence_global() { return fence(runtime_.callers_); }

fabric::Status Caller::fence(std::span<const std::unique_ptr<Caller>> callers) {
  const Scope step(env_, scope::fence);
  AckKey key;
  bool may_have_lost = false;
  // Operations after the fence must wait for the positions that the connections have now. They need
  // not wait for later positions: other callers continue to post.
  std::vector<std::pair<Connection*, std::uint64_t>> awaited;
  for (const auto& caller : callers) {
    std::unique_lock<Mutex> lock(caller->posting_, std::defer_lock);
    if (shared_) lock.lock();
    for (const auto& connection : caller->connections_) {
      const Scope one(env_, scope::fence_connection);
      if (connection->losses.any()) [[unlikely]] {
        may_have_lost = true;
        if (connection->error.load(std::memory_order_relaxed) != fabric::Status::kSuccess)
          continue;  // nothing in flight on it will be placed
      }
      if (connection->last_write > connection->last_flush) {
        caller->make_room(1, lock, *this);
        flush(*connection, key);  // the key waits for it, and so for all requests before it
        continue;
      }
      if (connection->completed.load(std::memory_order_acquire) < connection->last_flush) {
        env_.reached("fence/thread with reads in flight");
        awaited.emplace_back(connection.get(), connection->last_flush);
      }
    }
  }
  fabric::Status status = key.wait();
  for (const auto& [connection, position] : awaited) {
    const auto placed = [&, connection = connection, position = position] {
      return connection->completed.load(std::memory_order_acquire) >= position;
    };
    if (!placed()) runtime_.wait_until(*this, placed, "completion of a fence");
    may_have_lost |= connection->losses.any();
    if (status == fabric::Status::kSuccess)
      status = connection->error.load(std::memory_order_relaxed);
  }
  // Nothing throws from here on: the report covers all that has been lost until now.
  if (may_have_lost || status != fabric::Status::kSuccess) [[unlikely]] {
    for (const auto& caller : callers) {
      const fabric::Status lost = hear_of_losses(caller->connections_);
      if (status == fabric::Status::kSuccess) status = lost;
    }
  }
  return status;
}

// The same as hear_of_loss() for all connections of one caller, with its lock.
fabric::Status Caller::hear_of_losses(std::span<const std::unique_ptr<Connection>> connections) {
  std::unique_lock<Mutex> lock(connections.front()->caller->posting_, std::defer_lock);
  if (shared_) lock.lock();
  fabric::Status status = fabric::Status::kSuccess;
  for (const auto& connection : connections) {
    const fabric::Status lost = lost_by(*connection);
    if (status == fabric::Status::kSuccess) status = lost;
  }
  return status;
}

void Caller::flush(Connection& connection, AckKey& key) {
  fabric::WorkRequest request = read_of_nothing();
  post_to(connection, {&request, 1}, key);
}

void Caller::keep(MemRef&& block, AckKey&& key) {
  kept_.push_back({std::move(block), std::move(key)});
  has_leftovers_ = true;
}

void Caller::finish_later(std::unique_ptr<Unfinished> work) {
  env_.reached("runtime/dropped work");
  has_leftovers_ = true;
  dropped_.add(std::move(work));
}

bool Caller::tidy() {
  std::erase_if(kept_, [](const Kept& kept) { return kept.key.query(); });
  if (dropped_.is_stepping()) return false;  // a step takes a block, or waits for room
  const bool ended = dropped_.any() && dropped_.step();
  has_leftovers_ = !kept_.empty() || dropped_.any();
  return ended;
}

void Caller::wait_until_ref(FunctionRef<bool()> ready, const char* what) {
  runtime_.wait_until(*this, ready, what);
}

// Never waits for room: this reports the timeouts of such waits.
std::vector<NodeId> Caller::silent_peers() {
  struct Probe {
    std::uint64_t completed;  // of the connection, at the begin
    bool posted = false;
    AckKey key;
  };
  std::vector<Probe> probes;
  for (const auto& connection : connections_)
    probes.push_back({connection->completed.load(std::memory_order_acquire), false, {}});
  const auto ended = [&](NodeId peer) {
    return connections_[peer]->completed.load(std::memory_order_acquire) != probes[peer].completed;
  };
  const auto fails = [&](NodeId peer) {
    return connections_[peer]->error.load(std::memory_order_relaxed) != fabric::Status::kSuccess;
  };
  const auto ask = [&](NodeId peer) {
    std::unique_lock<Mutex> lock(posting_, std::defer_lock);
    if (shared_) lock.lock();
    if (!has_room(1)) return;
    flush(*connections_[peer], probes[peer].key);
    probes[peer].posted = true;
  };
  const fabric::QpOptions defaults;
  const std::uint32_t attempt_us =
      std::max(runtime_.options().timeout_us, env_.device().capabilities().least_timeout_us);
  // The connection of a dead peer reports the death itself; this report covers threads without a
  // core.
  const Time deadline =
      env_.now() + kSecond + Time{attempt_us} * kMicrosecond * (defaults.retry_count + 1);
  const auto all_known = [&] {
    runtime_.make_turn();
    // Others may wait for what dropped work holds. A step rarely posts more than a few requests.
    if (has_room(limit_ / 2)) go_on();
    bool known = true;
    for (NodeId peer = 0; peer < probes.size(); ++peer) {
      if (ended(peer) || fails(peer)) continue;
      known = false;
      if (!probes[peer].posted) ask(peer);
    }
    return known;
  };
  env_.poll_until(all_known, deadline);
  std::vector<NodeId> silent;
  for (NodeId peer = 0; peer < probes.size(); ++peer) {
    if (!ended(peer) || fails(peer)) silent.push_back(peer);
  }
  return silent;
}

}  // namespace pyrdma::runtime
