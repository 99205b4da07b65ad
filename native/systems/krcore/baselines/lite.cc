// The data path of LITE.
#include "systems/krcore/baselines/lite.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "env/scope.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore {

void LiteOptions::check(NodeId nodes) const {
  const auto in_range = [](const char* option, std::uint64_t value, std::uint64_t least,
                           std::uint64_t most) {
    if (value >= least && value <= most) return;
    throw Error(ErrorCode::kInvalidArgument,
                std::string("LITE: ") + option + " is " + std::to_string(value) +
                    "; it must be from " + std::to_string(least) + " to " + std::to_string(most));
  };
  in_range("connections_per_peer", connections_per_peer, 1, 1024);
  in_range("send_entries", send_entries, 1, 1 << 15);
  in_range("completions", completions, 1, 1 << 15);
  in_range("manager", manager, 0, nodes - 1);
  in_range("builders", builders, 1, 64);
}

std::unique_ptr<fabric::MemoryRegion> Lite::allocate(std::size_t bytes) {
  return env_.device().allocate(*domain_, bytes, fabric::kAllAccess);
}

void Lite::start(fabric::Opcode opcode, const fabric::Sge& local,
                 const fabric::RemoteRegion& remote, std::uint64_t offset, LiteRequest& request) {
  fabric::WorkRequest work;
  work.sges = &local;
  work.sge_count = 1;
  work.opcode = opcode;
  work.remote_addr = remote.addr + offset;
  work.rkey = remote.rkey;
  start(work, remote.node, request);
}

// The parallel connections to a node take turns, whether or not one of them is full.
void Lite::start(fabric::WorkRequest work, NodeId node, LiteRequest& request) {
  const Scope step(env_, scope::lite_post);
  request.is_done_.store(false, std::memory_order_relaxed);
  request.connection_ = nullptr;
  if (node >= peers_.size()) return request.end(fabric::Status::kRetryExceeded);
  Peer& peer = *peers_[node];
  const std::uint32_t used = peer.used.load(std::memory_order_acquire);
  if (used == 0) return request.end(fabric::Status::kRetryExceeded);
  env_.charge(Cost::kAtomic);
  const std::uint32_t turn = peer.next.fetch_add(1, std::memory_order_relaxed);
  LiteConnection& connection = *peer.slots[turn % used].load(std::memory_order_acquire);
  request.connection_ = &connection;
  work.wr_id = reinterpret_cast<std::uintptr_t>(&request);
  work.flags = fabric::kSignaled;
  fabric::PostError error = fabric::PostError::kNone;
  env_.catch_up();  // the threads share the queue's room
  {
    const std::lock_guard<Mutex> lock(connection.post_mutex);
    if (connection.has_failed.load(std::memory_order_acquire))
      return request.end(fabric::Status::kFlushed);
    error = connection.qp->post({&work, 1}).error;
  }
  if (error == fabric::PostError::kNone && !connection.completions->overrun()) return;
  if (error == fabric::PostError::kInvalid) return request.end(fabric::Status::kLocalQpOperation);
  // LITE's code only logs a post that the full queue refuses, and its caller waits for ever.
  fail(connection);
  request.end(fabric::Status::kFlushed);
}

// A device puts the queue pairs of an overrun completion queue into the error state, and nothing of
// LITE makes them anew.
void Lite::fail(LiteConnection& connection) {
  const std::scoped_lock lock(connection.post_mutex, connection.poll_mutex);
  if (connection.has_failed.exchange(true)) return;
  env_.reached("krcore/lite_queue_pair_failed");
  Time none = 0;
  first_failure_.compare_exchange_strong(none, env_.now());
  failed_.fetch_add(1, std::memory_order_relaxed);
  connection.qp->modify(fabric::QpState::kError);
  env_.notify(connection.completions->watch());
}

// Takes one completion after another, of whichever request, until `request` has ended or none is
// left. Returns whether it has ended.
bool Lite::poll_for(LiteConnection& connection, const LiteRequest& request) {
  const Scope step(env_, scope::lite_poll);
  bool is_broken = false;
  env_.catch_up();
  {
    const std::lock_guard<Mutex> lock(connection.poll_mutex);
    if (connection.has_failed.load(std::memory_order_acquire)) return true;
    bool ends_others = false;
    do {
      fabric::Completion wc;
      if (connection.completions->poll({&wc, 1}) == 0) break;
      auto* ended = reinterpret_cast<LiteRequest*>(static_cast<std::uintptr_t>(wc.wr_id));
      ends_others |= ended != &request;
      is_broken |= wc.status != fabric::Status::kSuccess;
      ended->end(wc.status);
    } while (!request.is_done());
    if (ends_others) env_.notify(connection.completions->watch());
    is_broken |= connection.completions->overrun();
  }
  if (is_broken) fail(connection);
  return is_broken || request.is_done();
}

bool Lite::has_ended(LiteRequest& request) {
  if (request.connection_ == nullptr) return true;
  if (!poll_for(*request.connection_, request)) return false;
  if (!request.is_done()) request.end(fabric::Status::kFlushed);
  return true;
}

void Lite::finish(LiteRequest& request) {
  if (request.connection_ == nullptr) return;
  // The code polls once, even for a request that another thread has ended.
  env_.poll_until([&] { return has_ended(request); }, kForever,
                  &request.connection_->completions->watch());
}

void Lite::post(fabric::Opcode opcode, const fabric::Sge& local, const fabric::RemoteRegion& remote,
                std::uint64_t offset, LiteRequest& request) {
  env_.charge(Cost::kSystemCall);
  start(opcode, local, remote, offset, request);
}

void Lite::post(const fabric::WorkRequest& work, NodeId node, LiteRequest& request) {
  env_.charge(Cost::kSystemCall);
  start(work, node, request);
}

fabric::Status Lite::wait(std::span<LiteRequest> requests) {
  env_.charge(Cost::kSystemCall);
  fabric::Status first = fabric::Status::kSuccess;
  for (LiteRequest& request : requests) {
    finish(request);
    if (first == fabric::Status::kSuccess) first = request.status_;
  }
  return first;
}

fabric::Status Lite::run(fabric::Opcode opcode, const fabric::Sge& local,
                         const fabric::RemoteRegion& remote, std::uint64_t offset) {
  env_.charge(Cost::kSystemCall);
  LiteRequest request;
  start(opcode, local, remote, offset, request);
  finish(request);
  return request.status_;
}

std::uint64_t Lite::connections() {
  const std::lock_guard<Mutex> lock(connections_mutex_);
  return connections_.size();
}

}  // namespace pyrdma::krcore
