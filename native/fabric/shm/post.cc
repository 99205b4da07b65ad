// The data path: the requester's CPU does for a request what both NICs would do.
#include <algorithm>

#include "fabric/post_rules.h"
#include "fabric/shm/batch.h"
#include "fabric/shm/copy.h"
#include "fabric/shm/queue_pair.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint32_t kSimple = bit(Opcode::kWrite) | kReturning;

}  // namespace

// Polls make room.
bool ShmQueuePair::finds_room() {
  const std::uint32_t polled = device_.released(qp_num_);
  const std::uint32_t released = is_later(polled, reset_at_) ? polled : reset_at_;
  const auto used = static_cast<std::int32_t>(posted_ - released);
  const auto entries = static_cast<std::int32_t>(options_.send_entries);
  room_ = static_cast<std::uint32_t>(std::clamp(entries - used, 0, entries));
  return room_ != 0;
}

bool ShmQueuePair::may_post(const WorkRequest& request) const {
  return is_postable(request, options_, allowed_) &&
         (!is_addressed(options_.transport) ||
          static_cast<const ShmAddressHandle*>(request.address_handle)->pd == pd_);
}

// Returns the path to the target of a DC request, if a recent request named the same.
inline Path* ShmQueuePair::known_target(const WorkRequest& request) {
  if (request.address_handle == nullptr) [[unlikely]]
    return nullptr;
  const auto& handle = static_cast<const ShmAddressHandle&>(*request.address_handle);
  note_target(handle.node, request.remote_qpn);
  if (last_target_ == nullptr || !last_target_->aims_at(handle.node, request.remote_qpn)) {
    last_target_ = target_paths_[slot_of(handle.node, request.remote_qpn)].get();
    if (last_target_ == nullptr || !last_target_->aims_at(handle.node, request.remote_qpn)) {
      return nullptr;
    }
  }
  return handle.pd == pd_ && last_target_->qkey() == request.remote_qkey ? last_target_ : nullptr;
}

// Returns the old value. Earlier stores of the thread take effect first.
inline std::uint64_t execute_atomic(const WorkRequest& request, std::byte* at) {
  auto* word = reinterpret_cast<std::uint64_t*>(at);
  if (request.opcode == Opcode::kFetchAdd) {
    return __atomic_fetch_add(word, request.compare_add, __ATOMIC_SEQ_CST);
  }
  std::uint64_t old = request.compare_add;
  __atomic_compare_exchange_n(word, &old, request.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
  return old;
}

// Executes a write, read or atomic of one buffer through recently used regions: most requests are
// such. Refuses any other or faulty request.
template <bool kLooksBefore>
inline ShmQueuePair::Simple ShmQueuePair::execute_simple(const WorkRequest& request, Path& path) {
  if (!is_one_of(request.opcode, kSimple & allowed_) || request.sge_count != 1 ||
      request.sges == nullptr || (kLooksBefore && !is_known(path))) [[unlikely]] {
    return Simple::kNot;
  }
  const Sge& sge = *request.sges;
  const Translation* remote = path.known_region(request.rkey);
  if (remote == nullptr) [[unlikely]]
    return Simple::kNot;
  const bool is_write = request.opcode == Opcode::kWrite;
  const bool is_read = request.opcode == Opcode::kRead;
  const std::uint32_t right = is_write ? kRemoteWrite : is_read ? kRemoteRead : kRemoteAtomic;
  std::byte* there = remote->find(request.remote_addr, sge.length, right);
  std::byte* here = nullptr;
  if ((request.flags & kInline) != 0) {
    if (!is_write || sge.length > options_.max_inline) [[unlikely]]
      return Simple::kNot;
    here = reinterpret_cast<std::byte*>(sge.addr);
  } else if (const Translation* local = local_regions_.find(sge.lkey)) [[likely]] {
    here = local->find(sge.addr, sge.length, is_write ? kMayGather : kMayGather | kLocalWrite);
  }
  if (here == nullptr || there == nullptr || sge.length > kMaxMessage) [[unlikely]]
    return Simple::kNot;
  if (is_write) {
    copy_out(there, here, sge.length);
    stores_drained_ = false;
  } else if (is_read) {
    drain_stores();
    copy_in(here, there, sge.length);
  } else {
    if (sge.length != 8 || request.remote_addr % 8 != 0) [[unlikely]]
      return Simple::kNot;
    const std::uint64_t old = execute_atomic(request, there);
    copy_out(here, reinterpret_cast<const std::byte*>(&old), sizeof old);
#if defined(__x86_64__)
    stores_drained_ = true;  // the locked instruction drained them
#endif
  }
  return is_settled(path) ? Simple::kDone : Simple::kLate;
}

// Decides about a request that has been executed while an epoch changed: it failed if one of its
// regions is gone, because the bytes may be zeros of a file without an owner. It is not executed
// again: the peer may have seen it already.
Outcome ShmQueuePair::settle(const WorkRequest& request, Path& path, Batch& batch) {
  if (!has_local_regions(request)) return Outcome::kLocalProtection;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  if (bytes == 0 || path.has_region(request.rkey)) return Outcome::kDone;
  return remote_fault(Outcome::kRemoteAccess, path, batch);
}

bool ShmQueuePair::has_local_regions(const WorkRequest& request) const {
  if ((request.flags & kInline) != 0) return true;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const Sge& sge = request.sges[i];
    if (sge.length != 0 && !node_.own_peer().has_region(sge.lkey)) return false;
  }
  return true;
}

// A read must take effect after this thread's stores before its post, and after earlier writes. A
// NIC learns of a request through memory, after those stores. A load of the CPU would pass them
// (x86-TSO, store buffering).
inline void ShmQueuePair::drain_stores() {
  if (stores_drained_) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  stores_drained_ = true;
}

PostResult ShmQueuePair::post(std::span<const WorkRequest> requests) {
  if (is_waiting_.load(std::memory_order_acquire) || state() != QpState::kReadyToSend)
      [[unlikely]] {
    return post_slow(requests);
  }
  stores_drained_ = false;  // only now: while a request waits, the monitor may be executing
  if (is_addressed(options_.transport)) {
    return options_.transport == Transport::kUd ? post_now(requests, 0)
                                                : post_simple<true>(requests);
  }
  return post_simple<false>(requests);
}

// Executes requests as long as they are simple and owe no completion but that of the last.
template <bool kIsDynamic>
inline PostResult ShmQueuePair::post_simple(std::span<const WorkRequest> requests) {
  const AtWork at_work(entry_);
  std::uint32_t done = 0;
  // Of a connection, the look at the epochs after a request serves the next one, too.
  if (!kIsDynamic && !is_known(path_)) [[unlikely]]
    return post_now(requests, 0);
  for (const WorkRequest& request : requests) {
    const bool signaled = (request.flags & kSignaled) != 0;
    if ((signaled && done + 1 != requests.size()) || !has_room()) return post_now(requests, done);
    Path* path = &path_;
    if constexpr (kIsDynamic) path = known_target(request);
    const Simple simple =
        path == nullptr ? Simple::kNot : execute_simple<kIsDynamic>(request, *path);
    if (simple != Simple::kDone) [[unlikely]]
      return post_now(requests, done, simple == Simple::kLate);
    use_room();
    ++done;
    if (signaled) complete_last(request);
  }
  return {done, PostError::kNone};
}

// Most posts owe one completion, for their last request.
inline void ShmQueuePair::complete_last(const WorkRequest& request) {
  const SendCompletion done{request.wr_id, posted_, request.opcode, Status::kSuccess};
  if (!send_queue_.push(&done, 1, qp_num_)) [[unlikely]]
    lose_completion(false);
}

PostResult ShmQueuePair::post_now(std::span<const WorkRequest> requests, std::uint32_t begin,
                                  bool is_first_late) {
  Batch batch(*this, Batch::Of::kPost);
  const bool is_datagram = options_.transport == Transport::kUd;
  const bool is_dynamic = options_.transport == Transport::kDc;
  for (std::uint32_t i = begin; i < requests.size(); ++i) {
    if (is_datagram) {
      i += send_datagrams(requests.subspan(i), batch);
      if (i == requests.size()) break;
    }
    const WorkRequest& request = requests[i];
    if (!has_room()) [[unlikely]]
      return {i, PostError::kQueueFull};
    Path* const path = is_dynamic ? known_target(request) : is_datagram ? nullptr : &path_;
    Simple simple = Simple::kNot;
    if (is_first_late && i == begin) [[unlikely]]
      simple = Simple::kLate;
    else if (path != nullptr)
      simple = execute_simple<true>(request, *path);
    if (simple == Simple::kDone) {
      use_room();
    } else {
      if (!may_post(request)) [[unlikely]]
        return {i, PostError::kInvalid};
      use_room();
      const Outcome outcome =
          simple == Simple::kLate ? settle(request, *path, batch) : execute(request, batch);
      if (outcome != Outcome::kDone) [[unlikely]]
        return post_broken(requests, i, outcome, batch);
    }
    if ((request.flags & kSignaled) != 0) batch.complete(request, posted_);
  }
  return {static_cast<std::uint32_t>(requests.size()), PostError::kNone};
}

PostResult ShmQueuePair::post_broken(std::span<const WorkRequest> requests, std::uint32_t at,
                                     Outcome outcome, Batch& batch) {
  batch.finish();
  const WaitingLock lock(*this);
  wait_reason_ = Outcome::kDone;  // of a request that waited before
  if (must_wait(outcome) && !wait_over(outcome, node_.env().now())) {
    keep(requests[at], posted_);
    begin_waiting();
  } else {
    fail(requests[at].wr_id, outcome, posted_);
  }
  return append(requests, at + 1);
}

// Accepts requests that cannot start now: those after waiting requests, or on a queue pair in
// error.
PostResult ShmQueuePair::append(std::span<const WorkRequest> requests, std::uint32_t accepted) {
  for (; accepted < requests.size(); ++accepted) {
    const WorkRequest& request = requests[accepted];
    if (!has_room()) return {accepted, PostError::kQueueFull};
    if (!may_post(request)) return {accepted, PostError::kInvalid};
    use_room();
    if (waiting_.empty())
      complete({request.wr_id, posted_, request.opcode, Status::kFlushed});
    else
      keep(request, posted_);
  }
  return {accepted, PostError::kNone};
}

// Finds the local addresses of a request's buffers, with the checks that a NIC makes when it
// fetches.
Outcome ShmQueuePair::gather(const WorkRequest& request, std::uint32_t rights, Pieces& pieces) {
  std::uint64_t bytes = 0;
  std::uint32_t count = 0;
  const bool is_inline = (request.flags & kInline) != 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const Sge sge = request.sges[i];
    if (sge.length == 0) continue;
    std::byte* data = reinterpret_cast<std::byte*>(sge.addr);
    if (!is_inline) {
      const Translation* region = local_regions_.find(sge.lkey);
      if (region == nullptr) [[unlikely]]
        region = find_local(sge.lkey);
      data = region == nullptr ? nullptr : region->find(sge.addr, sge.length, rights);
      if (data == nullptr) [[unlikely]]
        return Outcome::kLocalProtection;
    }
    pieces.at[count++] = {data, sge.length};
    bytes += sge.length;
  }
  pieces.count = count;
  pieces.bytes = bytes;
  return bytes <= kMaxMessage ? Outcome::kDone : Outcome::kLocalLength;
}

const Translation* ShmQueuePair::find_local(std::uint32_t key) {
  FoundRegion found;
  if (!node_.own_peer().find_region(key, found) || found.pd != pd_) return nullptr;
  found.translation.rights |= kMayGather;
  return local_regions_.insert(found);
}

Outcome ShmQueuePair::execute(const WorkRequest& request, Batch& batch) {
  stores_drained_ = false;
  if (const std::uint64_t epoch = epoch_.load(std::memory_order_acquire); epoch != local_epoch_)
      [[unlikely]] {
    local_regions_.clear();
    local_epoch_ = epoch;
  }
  Pieces pieces;
  const bool returning = is_one_of(request.opcode, kReturning);
  const Outcome local = gather(request, returning ? kMayGather | kLocalWrite : kMayGather, pieces);
  if (local != Outcome::kDone) [[unlikely]]
    return local;
  if (is_one_of(request.opcode, kAtomics) && pieces.bytes != 8) [[unlikely]]
    return Outcome::kLocalLength;
  if (options_.transport == Transport::kUd) return execute_datagram(request, pieces, batch);

  const bool is_dynamic = options_.transport == Transport::kDc;
  const auto [path, reached] =
      is_dynamic ? find_target(request, batch) : Target{path_, reach(path_)};
  if (reached != Reach::kReady) [[unlikely]] {
    if (options_.transport == Transport::kUc) return Outcome::kDone;  // lost without a report
    return reached == Reach::kGone ? Outcome::kUnreachable : Outcome::kSilent;
  }
  switch (request.opcode) {
    case Opcode::kWrite: {
      if (pieces.bytes == 0) return Outcome::kDone;  // a NIC does not check an empty write
      std::byte* to = path.find(request.rkey, request.remote_addr, pieces.bytes, kRemoteWrite);
      if (to == nullptr) [[unlikely]]
        return remote_fault(Outcome::kRemoteAccess, path, batch);
      for (std::uint32_t i = 0; i < pieces.count; to += pieces.at[i++].length) {
        copy_out(to, pieces.at[i].data, pieces.at[i].length);
      }
      break;
    }
    case Opcode::kRead: {
      if (pieces.bytes == 0) return Outcome::kDone;
      const std::byte* from =
          path.find(request.rkey, request.remote_addr, pieces.bytes, kRemoteRead);
      if (from == nullptr) [[unlikely]]
        return remote_fault(Outcome::kRemoteAccess, path, batch);
      std::atomic_thread_fence(std::memory_order_seq_cst);  // see drain_stores
      for (std::uint32_t i = 0; i < pieces.count; from += pieces.at[i++].length) {
        copy_in(pieces.at[i].data, from, pieces.at[i].length);
      }
      break;
    }
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd: {
      if (request.remote_addr % 8 != 0) [[unlikely]]
        return remote_fault(Outcome::kRemoteInvalidRequest, path, batch);
      std::byte* word = path.find(request.rkey, request.remote_addr, 8, kRemoteAtomic);
      if (word == nullptr) [[unlikely]]
        return remote_fault(Outcome::kRemoteAccess, path, batch);
      const std::uint64_t old = execute_atomic(request, word);
      const auto* from = reinterpret_cast<const std::byte*>(&old);
      for (std::uint32_t i = 0; i < pieces.count; from += pieces.at[i++].length) {
        copy_out(pieces.at[i].data, from, pieces.at[i].length);
      }
      break;
    }
    default:
      return deliver(request, pieces, path, batch);
  }
  return is_settled(path) ? Outcome::kDone : settle(request, path, batch);
}

// Handles a failed check at the responder: RC reports it to both sides, DC to the initiator only,
// and UC drops the request.
Outcome ShmQueuePair::remote_fault(Outcome fault, Path& path, Batch& batch) {
  has_taken_ = false;
  if (!is_reliable(options_.transport)) return Outcome::kDone;
  if (!path.may_answer()) return Outcome::kUnreachable;  // its regions went with it
  if (options_.transport == Transport::kRc) fail_responder(path, batch);
  return fault;
}

void ShmQueuePair::fail_responder(Path& path, Batch& batch) {
  batch.close();
  path.fail_responder(node_.holder(), node_.session());
}

}  // namespace pyrdma::fabric::shm
