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
#include <map>
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
#include "runtime/dropped_work.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime {

class Runtime;

/// A point in the requests of a caller to one peer. Other callers of the node can wait for it.
/// Plain data; the caller outlives it.
struct Mark {
  const Connection* connection = nullptr;
  std::uint64_t position = 0;
  std::uint64_t change = 0;    // position of the last write or atomic before it that may be placed
  std::uint32_t failures = 0;  // of the connection, before the mark
  fabric::Status lost = fabric::Status::kSuccess;  // known when the mark was made
  bool reached() const {
    return connection == nullptr ||
           connection->completed.load(std::memory_order_acquire) >= position;
  }
  /// Returns why writes or atomics before the mark are lost, those that an earlier mark or fence of
  /// the same thread has reported excepted; kSuccess if all of them are placed. Requires reached().
  /// When the connection has failed twice since the mark, nobody knows any more what the first time
  /// took: then all of it counts as lost.
  fabric::Status status() const {
    if (connection == nullptr || !connection->losses.any()) [[likely]]
      return lost;
    const std::uint32_t since = connection->losses.failures() - failures;
    if (lost != fabric::Status::kSuccess || since == 0 || change == 0) return lost;
    if (since == 1 && !connection->losses.includes(change)) return lost;
    return connection->losses.why();
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
  /// requests use it; see InFlight and AckKey::keep.
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
  //
  // A write or an atomic that fails is never placed, and its key may be gone. So a fence fails if
  // one has been lost since the last report, whatever has been posted and ended since, and though
  // the connection may have been made again. Each caller gets each loss once, from its first fence
  // over that connection after the loss; then it may go on without the peer. A fence that throws
  // reports nothing, and neither do marks: they are for those who wait for them. A lost read is no
  // loss: its key is the only way to its value. Cost: a load per connection that has never failed.

  /// Orders this caller's operations on `peer`. The NIC places writes of one queue pair in order
  /// without help; after a read or an atomic in flight, the fence marks the next request to wait.
  /// Never blocks. If operations before it fail later, so do those after it, until the connection
  /// is made again.
  [[nodiscard]] fabric::Status fence_pair(NodeId peer) {
    std::unique_lock<Mutex> lock(posting_, std::defer_lock);
    if (shared_) lock.lock();
    Connection& connection = *connections_[peer];
    fence_next(connection);
    return lost_by(connection);
  }
  /// The same for reads, whose keys tell of errors: a loss is left to the next fence.
  void order_pair(NodeId peer) {
    std::unique_lock<Mutex> lock(posting_, std::defer_lock);
    if (shared_) lock.lock();
    fence_next(*connections_[peer]);
  }
  /// The pair fence of the LOCO paper, which waits. Blocks until this caller's operations on `peer`
  /// have completed; later requests of the same queue pair are placed after them. Returns kFlushed
  /// while the connection is lost.
  [[nodiscard]] fabric::Status await_pair(NodeId peer);
  /// Returns a point for other callers of this node to wait for, which orders this caller's
  /// operations on `peer` before theirs. The point is reached once these operations are placed, or
  /// some of them are lost (Mark::status).
  /// Never blocks. If the last request was a write, posts a read of no bytes, which joins `key`.
  [[nodiscard]] Mark mark(NodeId peer, AckKey& key);
  /// The same for the operations of `other`, a caller of this node, which its own thread may use
  /// meanwhile. May wait for room for a request.
  [[nodiscard]] Mark mark_of(Caller& other, NodeId peer, AckKey& key);
  /// Orders this caller's operations on all peers. Waits for the requests in flight. If the last
  /// request to a peer was a write, a read of no bytes places it. Blocks up to a round trip.
  /// Returns the first error of a connection that has lost some of them, or reads in flight.
  [[nodiscard]] fabric::Status fence_thread();
  /// Orders the operations of all callers of this node on all peers, as fence_thread() does for one
  /// caller.
  [[nodiscard]] fabric::Status fence_global();

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
  bool has_unfinished() const { return dropped_.any(); }
  /// Ends the work on `object`, which is about to be destroyed, unless the work outlives it. Any
  /// thread may call.
  void forget(const void* object) { dropped_.forget(object); }
  /// Throws an error of such work on `object` that nobody has been told yet. An object whose work
  /// may be dropped calls it where another of its operations begins, before it changes anything.
  /// The other errors come from Runtime::drain() and leave(). Cost: a test.
  void report_dropped(const void* object) {
    if (dropped_.has_errors()) [[unlikely]]
      dropped_.report(object);
  }
  /// Goes on with what finish_later() has taken over. Returns true when some of it has ended: a
  /// loop of Env::poll_until then begins again, so that waiting threads of this node look again
  /// too. Cost: a test when there is none.
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
  void fence_next(Connection& connection) {
    if (connection.completed.load(std::memory_order_acquire) < connection.last_flush) {
      env_.reached("fence/pair with reads in flight");
      connection.fence_next = true;
    }
  }
  fabric::Status lost_by(const Connection& connection) {
    if (!connection.losses.any()) [[likely]]
      return fabric::Status::kSuccess;
    return hear_of_loss(connection);
  }
  [[gnu::cold]] fabric::Status hear_of_loss(const Connection& connection);
  [[gnu::cold]] void tell(Mark& mark);
  [[gnu::cold]] fabric::Status hear_of_losses(
      std::span<const std::unique_ptr<Connection>> connections);
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
  /// The newest loss of a connection that this thread's fences have reported, and its marks.
  struct Heard {
    std::uint64_t by_fence = 0, by_mark = 0;
  };
  std::map<const Connection*, Heard> heard_;
  DroppedWork dropped_;
  bool has_leftovers_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;  // by peer
  Mutex posting_;  // held too while a global fence of another caller posts
  bool shared_;
  std::atomic<std::uint64_t> posted_{0};     // written under posting_
  std::atomic<std::uint64_t> completed_{0};  // written by the polling thread
};

}  // namespace pyrdma::runtime
