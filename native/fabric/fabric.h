// The fabric: an interface in the shape of verbs with three providers (sim, shm, verbs). One
// contract suite (fabric/contract_*_test.cc) runs unchanged on all of them; fabric/README.md states
// the contract.
//
// Ownership: a Device must outlive all objects that it made. A queue pair must be destroyed before
// its completion queues and its shared receive queue, and an address handle only after the requests
// that name it have completed. Objects may otherwise be destroyed in any order, also while requests
// are under way. Each object made in a ProtectionDomain keeps the domain alive.
//
// Threads: any thread of the node may use every object. One thread at a time may use a QueuePair or
// a CompletionQueue per direction (post, post_receive, poll). Many queue pairs, posted to by
// different threads, may share a CompletionQueue.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "env/env.h"
#include "fabric/types.h"

namespace pyrdma::fabric {

/// MemoryRegion is a registered region. Keys are random and sparse. The destructor deregisters the
/// region; later access by peers fails with kRemoteAccess.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  /// Returns the first byte in this process, or nullptr for device memory.
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::uint64_t addr() const { return addr_; }
  std::uint32_t lkey() const { return lkey_; }
  std::uint32_t rkey() const { return rkey_; }
  std::uint32_t node() const { return node_; }
  /// Returns the descriptor of the sealed memory file that has this region alone, which another
  /// process may map; -1 without kOwnFile, or without
  /// Capabilities::own_files. The region owns it.
  int file() const { return file_; }
  RemoteRegion remote() const { return {addr_, size_, rkey_, node_}; }
  Sge sge(std::size_t offset, std::uint32_t length) const {
    return {addr_ + offset, length, lkey_};
  }

 protected:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t addr_ = 0;
  std::uint32_t lkey_ = 0, rkey_ = 0, node_ = kNoNode;
  int file_ = -1;
};

class ProtectionDomain {
 public:
  virtual ~ProtectionDomain() = default;
};

/// AddressHandle names the destination of a UD or DC request.
class AddressHandle {
 public:
  virtual ~AddressHandle() = default;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  /// Moves up to out.size() completions into `out`, oldest first; never blocks. The data of a
  /// polled receive completion is visible to the polling thread when poll returns (acquire).
  virtual std::size_t poll(std::span<Completion> out) = 0;
  /// Returns the number of entries asked for. A device may hold more, so an overrun may come later
  /// than at one entry too many.
  virtual std::uint32_t entries() const = 0;
  /// Returns true after an overrun: the queue is then unusable and polls return nothing more.
  virtual bool overrun() const = 0;
  virtual Watch& watch() { return watch_; }

 protected:
  Watch watch_;
};

class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  virtual PostResult post_receive(std::span<const ReceiveRequest> requests) = 0;
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual Transport transport() const = 0;
  virtual std::uint32_t qp_num() const = 0;
  virtual QpState state() const = 0;
  virtual QpAddress address() const = 0;

  /// Posts in order with one doorbell; returns how many requests were accepted. A short count with
  /// kQueueFull is back-pressure. Accepted requests on an errored queue pair complete as kFlushed.
  virtual PostResult post(std::span<const WorkRequest> requests) = 0;
  /// Returns kInvalid on a queue pair with a shared receive queue, and with several strides for a
  /// buffer of several pieces or of a length that is no multiple of the strides.
  virtual PostResult post_receive(std::span<const ReceiveRequest> requests) = 0;

  /// Takes an RC or UC queue pair through INIT and RTR to RTS, connected to `peer`. UD and DC
  /// ignore `peer`. Control path: blocks for the time that the NIC takes. Throws Error from a state
  /// other than kReset.
  void connect(const QpAddress& peer) {
    modify(QpState::kInit);
    modify(QpState::kReadyToReceive, &peer);
    modify(QpState::kReadyToSend);
  }
  /// Takes the queue pair to kError from any other state; from kReset by way of kInit.
  void fail() {
    if (state() == QpState::kError) return;
    if (state() == QpState::kReset) modify(QpState::kInit);
    modify(QpState::kError);
  }
  /// Makes one transition of the state machine (to kInit, kReadyToReceive, kReadyToSend, kError or
  /// kReset), with the checks of ibv_modify_qp. RC and UC read `peer` for kReadyToReceive. When the
  /// change to kError or kReset has returned and is_quiet(), all writes and atomics that this queue
  /// pair has accepted from its peer are visible here, and none follows.
  virtual void modify(QpState next, const QpAddress* peer = nullptr) = 0;

  /// Nothing of the peer, or of a DC target's initiators, follows the end of this queue pair. True
  /// at once where a NIC does the work. Over shm a peer's CPU may be within a request: a stopped
  /// peer keeps it false until it runs on or dies. A call costs some microseconds; a DC target
  /// looks at the queue pairs of all nodes.
  virtual bool is_quiet() const { return true; }

  // Each helper posts one signaled request and returns true when it was accepted.
  bool write(const Sge& from, const RemoteRegion& to, std::uint64_t offset, std::uint64_t wr_id = 0,
             std::uint8_t flags = kSignaled) {
    return post_one(make(Opcode::kWrite, from, to, offset, wr_id, flags));
  }
  bool read(const Sge& into, const RemoteRegion& from, std::uint64_t offset,
            std::uint64_t wr_id = 0, std::uint8_t flags = kSignaled) {
    return post_one(make(Opcode::kRead, into, from, offset, wr_id, flags));
  }
  bool fetch_add(const Sge& old_value, const RemoteRegion& at, std::uint64_t offset,
                 std::uint64_t addend, std::uint64_t wr_id = 0, std::uint8_t flags = kSignaled) {
    WorkRequest request = make(Opcode::kFetchAdd, old_value, at, offset, wr_id, flags);
    request.compare_add = addend;
    return post_one(request);
  }
  bool compare_swap(const Sge& old_value, const RemoteRegion& at, std::uint64_t offset,
                    std::uint64_t expected, std::uint64_t desired, std::uint64_t wr_id = 0,
                    std::uint8_t flags = kSignaled) {
    WorkRequest request = make(Opcode::kCompareSwap, old_value, at, offset, wr_id, flags);
    request.compare_add = expected;
    request.swap = desired;
    return post_one(request);
  }
  bool send(const Sge& from, std::uint64_t wr_id = 0, std::uint8_t flags = kSignaled) {
    return post_one(make(Opcode::kSend, from, RemoteRegion{}, 0, wr_id, flags));
  }
  bool receive(const Sge& into, std::uint64_t wr_id = 0) {
    const ReceiveRequest request{wr_id, &into, 1};
    return post_receive({&request, 1}).accepted == 1;
  }

 private:
  static WorkRequest make(Opcode opcode, const Sge& local, const RemoteRegion& remote,
                          std::uint64_t offset, std::uint64_t wr_id, std::uint8_t flags) {
    WorkRequest request;
    request.wr_id = wr_id;
    request.sges = &local;
    request.sge_count = 1;
    request.opcode = opcode;
    request.flags = flags;
    request.remote_addr = remote.addr + offset;
    request.rkey = remote.rkey;
    return request;
  }
  bool post_one(const WorkRequest& request) { return post({&request, 1}).accepted == 1; }
};

/// A wait at the rendezvous was given up: no node has published the key, and `nodes` have ended.
class NodesEnded final : public Error {
 public:
  NodesEnded(std::string_view key, const std::string& nodes)
      : Error(ErrorCode::kUnavailable, "rendezvous: no node published key '" + std::string(key) +
                                           "', and these nodes have ended: " + nodes) {}
};

/// Rendezvous is the set-up exchange between the nodes of one run: small named blobs, published
/// once and readable by every node. It stands for the TCP or UD handshake of real systems. In the
/// simulated world each await of a peer's blob costs the profile's handshake time.
class Rendezvous {
 public:
  static constexpr std::size_t kMaxKey = 120, kMaxValue = 1024;  // bytes
  virtual ~Rendezvous() = default;
  /// Throws Error(kInvalidArgument) when the key exists with another value or is too long.
  virtual void publish(std::string_view key, std::span<const std::byte> value) = 0;
  /// Returns the value of `key` if a node has published it by now. Cost: a look-up; in `sim` also a
  /// handshake when the value exists; over verbs a message to the controller and its answer. Throws
  /// Error(kUnavailable) when that controller is gone.
  virtual std::optional<std::vector<std::byte>> find(std::string_view key) = 0;
  /// Blocks until a node has published `key`. Throws Error(kTimeout), naming the key, after
  /// `deadline`, and NodesEnded a grace time after the end of any node (shm, verbs).
  virtual std::vector<std::byte> await(std::string_view key, Time deadline) = 0;

  template <class T>
  void publish_value(std::string_view key, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    publish(key, std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  T await_value(std::string_view key, Time deadline) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::vector<std::byte> bytes = await(key, deadline);
    T value{};
    if (bytes.size() == sizeof(T))
      std::memcpy(&value, bytes.data(), sizeof(T));
    else
      throw_size(key, bytes.size(), sizeof(T));
    return value;
  }

 private:
  [[noreturn]] static void throw_size(std::string_view key, std::size_t got, std::size_t wanted);
};

/// Notice tells people about a problem of a device, with the remedy.
struct Notice {
  std::string text;
  bool is_fault = false;  // requests fail because of it; else results may be worse than possible
  bool operator==(const Notice&) const = default;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const Capabilities& capabilities() const = 0;
  virtual const std::string& name() const = 0;
  /// Allocates the context, as the real world's "open" does. In sim it takes the profile's
  /// driver-initialisation time, once.
  virtual void open() = 0;
  virtual Rendezvous& rendezvous() = 0;
  /// Returns facts that affect measurements, each once. Any thread may call it.
  virtual std::vector<Notice> notices() { return {}; }

  // Control path: each function blocks for the time that the NIC and driver take, and throws Error
  // on failure.
  virtual std::unique_ptr<ProtectionDomain> create_protection_domain() = 0;
  // Memory gives peers no access unless `access`, an or of Access, grants it. Ask for what the
  // peers do, and no more.
  /// Allocates zeroed, page-aligned memory and registers it.
  virtual std::unique_ptr<MemoryRegion> allocate(ProtectionDomain& pd, std::size_t bytes,
                                                 std::uint32_t access = kLocalWrite) = 0;
  /// Registers memory of the caller, which must outlive the region. Needs
  /// Capabilities::register_own_memory.
  virtual std::unique_ptr<MemoryRegion> register_memory(ProtectionDomain& pd, void* data,
                                                        std::size_t bytes,
                                                        std::uint32_t access = kLocalWrite) = 0;
  /// Allocates memory on the NIC; only work requests reach it. Needs Capabilities::device_memory.
  virtual std::unique_ptr<MemoryRegion> allocate_device_memory(
      ProtectionDomain& pd, std::size_t bytes, std::uint32_t access = kLocalWrite) = 0;
  virtual std::unique_ptr<CompletionQueue> create_completion_queue(std::uint32_t entries) = 0;
  virtual std::unique_ptr<SharedReceiveQueue> create_shared_receive_queue(
      ProtectionDomain& pd, std::uint32_t entries, std::uint32_t max_sges = 4) = 0;
  /// `shared_receives` may be null.
  virtual std::unique_ptr<QueuePair> create_queue_pair(
      ProtectionDomain& pd, CompletionQueue& send_queue, CompletionQueue& receive_queue,
      const QpOptions& options = {}, SharedReceiveQueue* shared_receives = nullptr) = 0;
  virtual std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& pd,
                                                               const QpAddress& peer,
                                                               const PathOptions& path = {}) = 0;
};

}  // namespace pyrdma::fabric
