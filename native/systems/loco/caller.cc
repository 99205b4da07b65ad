#include "systems/loco/caller.h"

#include "base/assert.h"
#include "systems/loco/manager.h"

namespace pyrdma::loco {

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

Caller::Caller(Manager& manager, std::uint32_t index)
    : manager_(manager),
      env_(manager.env()),
      index_(index),
      max_inline_(manager.options().max_inline),
      limit_(manager.options().max_in_flight),
      blocks_(manager.memory(), manager.options().block_bytes, manager.options().blocks),
      acks_(*this),
      posting_(manager.env()),
      shared_(manager.options().callers > 1) {}

Caller::~Caller() = default;

void Caller::post(NodeId peer, std::span<fabric::WorkRequest> requests, AckKey& key) {
  std::unique_lock<Mutex> lock(posting_, std::defer_lock);
  if (shared_) lock.lock();
  post_to(*lanes_[peer], requests, key);
}

inline void Caller::post_to(Lane& lane, std::span<fabric::WorkRequest> requests, AckKey& key) {
  PYRDMA_CHECK(requests.size() - 1, <, 64U);
  lane.caller->wait_for_room(requests.size());
  AckBits& bits = acks_.room_in(key);
  const std::uint64_t silent = bits.address() | AckBits::kNoBit;
  std::uint64_t position = lane.posted;
  for (fabric::WorkRequest& request : requests) {
    request.wr_id = silent;
    request.flags = 0;
    ++position;
    if (request.opcode == fabric::Opcode::kWrite || request.opcode == fabric::Opcode::kWriteImm) {
      if (bytes_of(request) <= max_inline_) request.flags = fabric::kInline;
      lane.last_write = position;
    } else {
      lane.last_flush = position;
    }
  }
  requests.back().wr_id = bits.add();
  requests.back().flags |= fabric::kSignaled;
  if (lane.fence_next) {
    requests.front().flags |= fabric::kFence;
    lane.fence_next = false;
  }
  lane.posted = position;
  lane.size_of(lane.posts++) = static_cast<std::uint8_t>(requests.size());
  lane.caller->posted_ += requests.size();
  const fabric::PostResult result = lane.qp->post(requests);
  if (result.accepted != requests.size()) [[unlikely]]
    post_rest(lane, requests, result);
}

// A queue may be full for as long as a completion is under way.
void Caller::post_rest(Lane& lane, std::span<fabric::WorkRequest> requests,
                       fabric::PostResult result) {
  while (true) {
    PYRDMA_CHECK(static_cast<int>(result.error), ==,
                 static_cast<int>(fabric::PostError::kQueueFull));
    requests = requests.subspan(result.accepted);
    const std::uint64_t completed = lane.completed.load(std::memory_order_acquire);
    result = lane.qp->post(requests);
    if (result.accepted == requests.size()) return;
    if (result.accepted != 0) continue;
    manager_.wait_until(
        *this, [&] { return lane.completed.load() != completed; }, "room in a send queue");
  }
}

void Caller::wait_for_room(std::uint64_t requests) {
  const auto has_room = [&] {
    return posted_ + requests - completed_.load(std::memory_order_acquire) <= limit_;
  };
  if (has_room()) [[likely]]
    return;
  manager_.wait_until(*this, has_room, "room for another request");
}

fabric::Status Caller::await_pair(NodeId peer) {
  const Lane& lane = *lanes_[peer];
  std::uint64_t position = 0;
  {
    std::unique_lock<Mutex> lock(posting_, std::defer_lock);
    if (shared_) lock.lock();
    position = lane.posted;
  }
  const auto completed = [&] { return lane.completed.load(std::memory_order_acquire) >= position; };
  if (!completed()) manager_.wait_until(*this, completed, "a pair fence");
  return lane.qp->state() == fabric::QpState::kError ? fabric::Status::kFlushed
                                                     : fabric::Status::kSuccess;
}

Mark Caller::mark(NodeId peer, AckKey& key) {
  Lane& lane = *lanes_[peer];
  std::unique_lock<Mutex> lock(posting_, std::defer_lock);
  if (shared_) lock.lock();
  if (lane.last_write > lane.last_flush) flush(lane, key);
  return {&lane, lane.last_flush};
}

fabric::Status Caller::fence_thread() { return fence({&manager_.callers_[index_], 1}); }

fabric::Status Caller::fence_global() { return fence(manager_.callers_); }

fabric::Status Caller::fence(std::span<const std::unique_ptr<Caller>> callers) {
  AckKey key;
  const auto each_lane = [&](auto&& use) {
    for (const auto& caller : callers) {
      std::unique_lock<Mutex> lock(caller->posting_, std::defer_lock);
      if (shared_) lock.lock();
      for (const auto& lane : caller->lanes_) use(*lane);
    }
  };
  // What follows the fence must wait for the positions that the lanes have now, and for no later
  // ones: other callers go on posting.
  std::vector<std::pair<Lane*, std::uint64_t>> awaited;
  each_lane([&](Lane& lane) {
    env_.charge(Cost::kPredicate);
    const bool trusts_completions = manager_.options().bugs.fences_trust_completions();
    if (lane.last_write > lane.last_flush && !trusts_completions) flush(lane, key);
    const std::uint64_t last = trusts_completions ? lane.posted : lane.last_flush;
    if (lane.completed.load(std::memory_order_acquire) < last) awaited.emplace_back(&lane, last);
  });
  fabric::Status status = key.wait();
  for (const auto& [lane, position] : awaited) {
    const auto placed = [&, lane = lane, position = position] {
      return lane->completed.load(std::memory_order_acquire) >= position;
    };
    if (!placed()) manager_.wait_until(*this, placed, "a fence");
    if (status == fabric::Status::kSuccess && lane->qp->state() == fabric::QpState::kError) {
      status = fabric::Status::kFlushed;
    }
  }
  return status;
}

void Caller::flush(Lane& lane, AckKey& key) {
  fabric::WorkRequest request = read_of_nothing();
  post_to(lane, {&request, 1}, key);
}

void Caller::wait_until_ref(FunctionRef<bool()> ready, const char* what) {
  manager_.wait_until(*this, ready, what);
}

std::vector<NodeId> Caller::silent_peers() {
  std::vector<AckKey> keys;
  for (NodeId peer = 0; peer < manager_.nodes(); ++peer) {
    fabric::WorkRequest request = read_of_nothing();
    keys.push_back(post(peer, {&request, 1}));
  }
  const fabric::QpOptions defaults;
  const std::uint32_t attempt_us =
      std::max(manager_.options().timeout_us, env_.device().capabilities().least_timeout_us);
  // A dead peer's connection reports it by itself; this is for threads that do not get a core.
  const Time deadline =
      env_.now() + kSecond + Time{attempt_us} * kMicrosecond * (defaults.retry_count + 1);
  env_.poll_until(
      [&] {
        env_.charge(Cost::kPredicate);
        manager_.turn();
        for (const AckKey& key : keys) {
          if (!key.query()) return false;
        }
        return true;
      },
      deadline);
  std::vector<NodeId> silent;
  for (NodeId peer = 0; peer < manager_.nodes(); ++peer) {
    if (!keys[peer].query() || keys[peer].status() != fabric::Status::kSuccess)
      silent.push_back(peer);
  }
  return silent;
}

}  // namespace pyrdma::loco
