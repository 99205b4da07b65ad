// A caller is a calling thread of a node. It has its own connection to every peer, its temporary
// blocks, its operations in flight, and fences over these operations (LOCO, sections 5.2, 5.3,
// A.1).
//
// A method of a system that uses the network takes the caller as its first argument. One thread
// uses a caller at a time.
#pragma once
#include <atomic>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "env/env.h"
#include "env/sync.h"
#include "fabric/fabric.h"
#include "runtime/ack_key.h"
#include "runtime/connection.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime {

class Runtime;

/// A point in the requests of a caller to one peer. Other callers of the node can wait for it.
/// Plain data; the caller outlives it.
struct Mark {
  const Connection* connection = nullptr;
  std::uint64_t position = 0;
  bool reached() const {
    return connection == nullptr ||
           connection->completed.load(std::memory_order_acquire) >= position;
  }
};

/// Requests to one peer for one doorbell. The requests are built in place: copying bytes that were
/// written just before waits until those stores have left the CPU, and earlier stores that miss the
/// cache delay them.
class Requests : public boost::container::static_vector<fabric::WorkRequest, 9> {
 public:
  /// Adds a request on the bytes of `sge` at `offset` of `at`. The caller keeps the bytes until the
  /// post.
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

/// Work that its owner has dropped before its end, such as an acquisition whose ticket must be
/// passed on. `object` is the object that it works on. If `reported`, the owner has got an error of
/// this work already, and further errors end it silently; otherwise its error goes to the caller.
class Unfinished {
 public:
  Unfinished(const void* object, bool reported) : object_(object), reported_(reported) {}
  virtual ~Unfinished() = default;
  /// Takes a step; returns true when nothing is left to do. May wait for room for a request only.
  /// After an Error(kTimeout) it is called again.
  virtual bool poll() = 0;
  /// The object is about to be destroyed, and no step is under way. Returns true if the work goes
  /// on without it; otherwise the work ends here.
  virtual bool outlive() { return false; }

 private:
  friend class Caller;
  const void* object_;  // nullptr: it is gone, and so is the work
  bool reported_;
};

/// Returns the nodes as a report lists them, such as " 3 4".
std::string text_of(std::span<const NodeId> nodes);

class Caller {
 public:
  Caller(Runtime& runtime, std::uint32_t index);
  ~Caller();

  std::uint32_t index() const { return index_; }
  Runtime& runtime() { return runtime_; }
  Env& env() { return env_; }

  /// Returns a temporary block for the input or output of requests. It must not go back while
  /// requests use it; see InFlight and AckKey::keep. Throws as go_on() does.
  MemRef block(std::uint32_t bytes) {
    go_on();
    return blocks_.take(bytes);
  }

  // Asynchronous one-sided requests to `peer`. The peer may be this node: the request then goes
  // through the node's own NIC, which makes atomics of all nodes atomic with each other. Short
  // writes are copied at the post; other buffers belong to the NIC until the key is complete. A
  // request blocks while too many requests of this caller are in flight. The key reports errors. If
  // the peer is down, the key reports the error at once (Runtime::is_up).
  AckKey write(NodeId peer, const fabric::RemoteRegion& to, std::uint64_t offset,
               const fabric::Sge& from) {
    return post_one(peer, fabric::Opcode::kWrite, to.addr + offset, to.rkey, from);
  }
  /// Posts the same request and adds it to `key`.
  void write(NodeId peer, const fabric::RemoteRegion& to, std::uint64_t offset,
             const fabric::Sge& from, AckKey& key) {
    post_one(key, peer, fabric::Opcode::kWrite, to.addr + offset, to.rkey, from);
  }
  AckKey read(NodeId peer, const fabric::RemoteRegion& from, std::uint64_t offset,
              const fabric::Sge& into) {
    return post_one(peer, fabric::Opcode::kRead, from.addr + offset, from.rkey, into);
  }
  /// The NIC writes the old value of the word to `old_value`, 8 bytes.
  AckKey fetch_add(NodeId peer, const fabric::RemoteRegion& at, std::uint64_t offset,
                   std::uint64_t addend, const fabric::Sge& old_value) {
    return post_one(peer, fabric::Opcode::kFetchAdd, at.addr + offset, at.rkey, old_value, addend);
  }
  AckKey compare_swap(NodeId peer, const fabric::RemoteRegion& at, std::uint64_t offset,
                      std::uint64_t expected, std::uint64_t desired, const fabric::Sge& old_value) {
    return post_one(peer, fabric::Opcode::kCompareSwap, at.addr + offset, at.rkey, old_value,
                    expected, desired);
  }
  /// Posts 1 to 64 requests to one peer with one doorbell. The caller object sets wr_id and the
  /// signal flag.
  AckKey post(NodeId peer, std::span<fabric::WorkRequest> requests) {
    AckKey key;
    post(peer, requests, key);
    return key;
  }
  /// Posts the same requests and adds the post to `key`.
  void post(NodeId peer, std::span<fabric::WorkRequest> requests, AckKey& key);

  // Fences: remote operations before the fence are placed and visible before any operation after
  // the fence. A plain read, local or remote, needs no fence to see data that a fence released.

  /// Orders this caller's operations on `peer`. The NIC places writes of one queue pair in order
  /// without help; after a read or an atomic in flight, the fence marks the next request to wait.
  /// Never blocks.
  void fence_pair(NodeId peer) {
    std::unique_lock<Mutex> lock(posting_, std::defer_lock);
    if (shared_) lock.lock();
    Connection& connection = *connections_[peer];
    if (connection.completed.load(std::memory_order_acquire) < connection.last_flush) {
      env_.reached("fence/pair with reads in flight");
      connection.fence_next = true;
    }
  }
  /// The pair fence of the LOCO paper, which waits. Blocks until this caller's operations on `peer`
  /// have completed; later requests of the same queue pair are placed after them. Returns kFlushed
  /// when the connection is lost.
  fabric::Status await_pair(NodeId peer);
  /// Returns a point for other callers of this node to wait for, which orders this caller's
  /// operations on `peer` before theirs. The point is reached once these operations are placed.
  /// Never blocks. If the last request was a write, posts a read of no bytes, which joins `key`.
  Mark mark(NodeId peer, AckKey& key);
  /// The same for the operations of `other`, a caller of this node, which its own thread may use
  /// meanwhile. May wait for room for a request.
  Mark mark_of(Caller& other, NodeId peer, AckKey& key);
  /// Orders this caller's operations on all peers. Waits for the requests in flight. If the last
  /// request to a peer was a write, a read of no bytes places it. Blocks up to a round trip.
  /// Returns the first error of a connection with unfenced operations.
  fabric::Status fence_thread();
  /// Orders the operations of all callers of this node on all peers, as fence_thread() does for one
  /// caller.
  fabric::Status fence_global();

  /// Blocks until ready(), and makes progress meanwhile; see Runtime::wait_until.
  template <class Ready>
  void wait_until(Ready&& ready, const char* what) {
    wait_until_ref(FunctionRef<bool()>(ready), what);
  }

  /// Returns the peers that answer no request of this caller within the retries of a connection,
  /// for reports. Blocks for that time. Asks with reads of no bytes where requests have room;
  /// otherwise the requests in flight show who answers.
  std::vector<NodeId> silent_peers();

  AckPool& ack_pool() { return acks_; }

  /// Keeps a block and the key of the requests that use it until the requests have ended.
  void keep(MemRef&& block, AckKey&& key);
  /// Takes over work that its owner has dropped. The thread of the caller goes on with it in waits,
  /// in block(), and before the node leaves.
  void finish_later(std::unique_ptr<Unfinished> work);
  /// Returns true while such work goes on.
  bool has_unfinished() const { return unfinished_count_.load(std::memory_order_acquire) != 0; }
  /// Ends the work on `object`, which is about to be destroyed, unless the work outlives it. Any
  /// thread may call.
  void forget(const void* object);
  /// Goes on with what finish_later() has taken over. Returns true when some of it has ended: a
  /// loop of Env::poll_until then begins again, so that waiting threads of this node look again
  /// too. Throws an error of such work that nobody has been told yet. Cost: a test when there is
  /// none.
  bool go_on() {
    if (!has_leftovers_) [[likely]]
      return false;
    return tidy();
  }

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
  [[gnu::cold]] bool tidy();
  std::exception_ptr step_unfinished(bool& ended);
  bool give_up_unfinished();  // returns false if nobody has been told of some of the work
  bool has_room(std::uint64_t requests) const {
    return posted_.load(std::memory_order_relaxed) + requests -
               completed_.load(std::memory_order_acquire) <=
           limit_;
  }
  void make_room(std::uint64_t requests, std::unique_lock<Mutex>& posting, Caller& waiter);
  [[gnu::cold]] void wait_for_room(std::uint64_t requests, std::unique_lock<Mutex>& posting,
                                   Caller& waiter);
  void post_to(Connection& connection, std::span<fabric::WorkRequest> requests, AckKey& key);
  [[gnu::cold]] void post_rest(Connection& connection, std::span<fabric::WorkRequest> requests,
                               fabric::PostResult result);
  void flush(Connection& connection, AckKey& key);
  fabric::Status fence(std::span<const std::unique_ptr<Caller>> callers);
  void wait_until_ref(FunctionRef<bool()> ready, const char* what);

  Runtime& runtime_;
  Env& env_;
  std::uint32_t index_;
  std::uint32_t max_inline_;
  std::uint64_t limit_;  // most requests in flight
  BlockPool blocks_;     // declared before the keys that keep its blocks
  AckPool acks_;
  struct Kept {
    MemRef block;  // declared before the key, which is destroyed first
    AckKey key;
  };
  std::vector<Kept> kept_;
  Mutex unfinished_mutex_;  // held during a step
  std::vector<std::unique_ptr<Unfinished>> unfinished_;
  std::vector<std::unique_ptr<Unfinished>> added_;  // during a step
  std::atomic<std::size_t> unfinished_count_{0};
  bool stepping_ = false, has_leftovers_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;  // by peer
  Mutex posting_;  // held too while a global fence of another caller posts
  bool shared_;
  std::atomic<std::uint64_t> posted_{0};     // written under posting_
  std::atomic<std::uint64_t> completed_{0};  // written by the polling thread
};

}  // namespace pyrdma::runtime
