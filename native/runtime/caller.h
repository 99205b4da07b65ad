// A calling thread of a node: its own connection to every peer, its temporary blocks, its
// operations in flight, and fences over them (LOCO, sections 5.2, 5.3, A.1).
//
// A method of a system that uses the network takes the caller as its first argument. A caller is
// used by one thread at a time.
#pragma once
#include <atomic>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "env/env.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "runtime/ack_key.h"
#include "runtime/connection.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime {

class Runtime;

/// A point in a caller's requests to one peer, for other callers of the node to wait for. Plain
/// data; the caller outlives it.
struct Mark {
  const Connection* connection = nullptr;
  std::uint64_t position = 0;
  bool reached() const {
    return connection == nullptr ||
           connection->completed.load(std::memory_order_acquire) >= position;
  }
};

/// Requests to one peer for one doorbell. Built in place: a copy of bytes that were written just
/// before waits until those stores have left the CPU, behind any that miss the cache.
class Requests : public boost::container::static_vector<fabric::WorkRequest, 9> {
 public:
  /// A request on the bytes of `sge`, which the caller keeps until the post, at `offset` of `at`.
  fabric::WorkRequest& add(fabric::Opcode opcode, const fabric::RemoteRegion& at,
                           std::uint64_t offset, const fabric::Sge& sge) {
    fabric::WorkRequest& request = emplace_back();
    request.opcode = opcode;
    request.sges = &sge;
    request.sge_count = 1;
    request.remote_addr = at.addr + offset;
    request.rkey = at.rkey;
    return request;
  }
  std::span<fabric::WorkRequest> span() { return {data(), size()}; }
};

class Caller {
 public:
  Caller(Runtime& runtime, std::uint32_t index);
  ~Caller();

  std::uint32_t index() const { return index_; }
  Runtime& runtime() { return runtime_; }
  Env& env() { return env_; }

  /// A temporary block for the input or output of requests.
  MemRef block(std::uint32_t bytes) { return blocks_.take(bytes); }

  // Asynchronous one-sided requests to `peer`, which may be this node (through its own NIC, which
  // is what makes atomics of all nodes atomic with each other). Short writes are copied at the
  // post; other buffers belong to the NIC until the key says that it is done. Blocks while too many
  // of this caller's requests are in flight. Errors are the key's; to a peer that is down they come
  // at once (Runtime::is_up).
  AckKey write(NodeId peer, const fabric::RemoteRegion& to, std::uint64_t offset,
               const fabric::Sge& from) {
    return post_one(peer, fabric::Opcode::kWrite, to.addr + offset, to.rkey, from);
  }
  /// The same; adds it to `key`.
  void write(NodeId peer, const fabric::RemoteRegion& to, std::uint64_t offset,
             const fabric::Sge& from, AckKey& key) {
    post_one(key, peer, fabric::Opcode::kWrite, to.addr + offset, to.rkey, from);
  }
  AckKey read(NodeId peer, const fabric::RemoteRegion& from, std::uint64_t offset,
              const fabric::Sge& into) {
    return post_one(peer, fabric::Opcode::kRead, from.addr + offset, from.rkey, into);
  }
  /// The word's old value lands in `old_value`, 8 bytes.
  AckKey fetch_add(NodeId peer, const fabric::RemoteRegion& at, std::uint64_t offset,
                   std::uint64_t addend, const fabric::Sge& old_value) {
    return post_one(peer, fabric::Opcode::kFetchAdd, at.addr + offset, at.rkey, old_value, addend);
  }
  AckKey compare_swap(NodeId peer, const fabric::RemoteRegion& at, std::uint64_t offset,
                      std::uint64_t expected, std::uint64_t desired, const fabric::Sge& old_value) {
    return post_one(peer, fabric::Opcode::kCompareSwap, at.addr + offset, at.rkey, old_value,
                    expected, desired);
  }
  /// Posts 1 to 64 requests to one peer with one doorbell. wr_id and the signal are set here.
  AckKey post(NodeId peer, std::span<fabric::WorkRequest> requests) {
    AckKey key;
    post(peer, requests, key);
    return key;
  }
  /// The same; adds the post to `key`.
  void post(NodeId peer, std::span<fabric::WorkRequest> requests, AckKey& key);

  // Fences: remote operations before the fence are placed and visible before any operation after
  // it. Plain reads, local or remote, need no fence to see data that a fence released.

  /// Orders this caller's operations on `peer`. Writes of one queue pair are placed in order
  /// anyway; behind a read or atomic in flight the next request is marked to wait. Never blocks.
  void fence_pair(NodeId peer) {
    std::unique_lock<Mutex> lock(posting_, std::defer_lock);
    if (shared_) lock.lock();
    Connection& connection = *connections_[peer];
    if (connection.completed.load(std::memory_order_acquire) < connection.last_flush)
      connection.fence_next = true;
  }
  /// The pair fence of the LOCO paper, which waits: blocks until this caller's operations on `peer`
  /// have completed; what follows on the same queue pair is placed behind them. Returns kFlushed
  /// when the connection is lost.
  fabric::Status await_pair(NodeId peer);
  /// A point for other callers of this node to wait for, so that this caller's operations on `peer`
  /// come before theirs: reached once these are placed. Never blocks; posts a read of no bytes,
  /// which joins `key`, when a write was last.
  Mark mark(NodeId peer, AckKey& key);
  /// Orders this caller's operations on all peers. Waits for the requests in flight; where the last
  /// request to a peer was a write, a read of no bytes places it. Blocks up to a round trip.
  /// Returns the first error of a connection with unfenced operations.
  fabric::Status fence_thread();
  /// Orders the operations of all callers of this node on all peers, as fence_thread() does for
  /// one.
  fabric::Status fence_global();

  /// Blocks until ready(), making progress; see Runtime::wait_until.
  template <class Ready>
  void wait_until(Ready&& ready, const char* what) {
    wait_until_ref(FunctionRef<bool()>(ready), what);
  }

  /// Peers that answer no read of no bytes within the retries of a connection: for reports. Blocks
  /// for so long.
  std::vector<NodeId> silent_peers();

  AckPool& ack_pool() { return acks_; }

 private:
  friend class Runtime;
  AckKey post_one(NodeId peer, fabric::Opcode opcode, std::uint64_t addr, std::uint32_t rkey,
                  const fabric::Sge& local, std::uint64_t compare_add = 0, std::uint64_t swap = 0) {
    AckKey key;
    post_one(key, peer, opcode, addr, rkey, local, compare_add, swap);
    return key;
  }
  void post_one(AckKey& key, NodeId peer, fabric::Opcode opcode, std::uint64_t addr,
                std::uint32_t rkey, const fabric::Sge& local, std::uint64_t compare_add = 0,
                std::uint64_t swap = 0) {
    fabric::WorkRequest request;
    request.sges = &local;
    request.sge_count = 1;
    request.opcode = opcode;
    request.remote_addr = addr;
    request.rkey = rkey;
    request.compare_add = compare_add;
    request.swap = swap;
    post(peer, {&request, 1}, key);
  }
  void post_to(Connection& connection, std::span<fabric::WorkRequest> requests, AckKey& key);
  [[gnu::cold]] void post_rest(Connection& connection, std::span<fabric::WorkRequest> requests,
                               fabric::PostResult result);
  void wait_for_room(std::uint64_t requests);
  void flush(Connection& connection, AckKey& key);
  fabric::Status fence(std::span<const std::unique_ptr<Caller>> callers);
  void wait_until_ref(FunctionRef<bool()> ready, const char* what);

  Runtime& runtime_;
  Env& env_;
  std::uint32_t index_;
  std::uint32_t max_inline_;
  std::uint64_t limit_;  // requests in flight
  BlockPool blocks_;     // before the keys that keep its blocks
  AckPool acks_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by peer
  Mutex posting_;  // a global fence of another caller posts too
  bool shared_;
  std::uint64_t posted_ = 0;
  std::atomic<std::uint64_t> completed_{0};  // written by the polling thread
};

}  // namespace pyrdma::runtime
