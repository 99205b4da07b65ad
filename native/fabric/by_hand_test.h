// Nodes, datagrams and a clock that move by hand, for tests that choose each step of unmodified
// protocol code (check/explore.h). Nothing happens by itself: a posted datagram is under way until
// the test delivers it, keeps it for later or drops it, in any order; time stands still until the
// test moves it; code that waits for anything else fails.
//
// A NIC reads a request's memory when it is posted. All queue pairs of a node have one number, so a
// late datagram for a dead endpoint reaches its successor.
#pragma once
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/bytes.h"
#include "env/env.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric::by_hand {

struct Datagram {
  QpAddress to;
  NodeId from = 0;
  Bytes bytes;  // without the routing header
  bool operator==(const Datagram& other) const {
    return to.node == other.to.node && to.qkey == other.to.qkey && from == other.from &&
           bytes == other.bytes;
  }
};

class Pair;

struct Network {
  Time now = 1;
  std::vector<Datagram> under_way;  // oldest first
  std::map<std::string, Bytes, std::less<>> published;
  std::map<NodeId, Pair*> pairs;

  /// Hands a datagram to the queue pair of its node. Without one, with a wrong key or without a
  /// receive it is lost.
  void deliver(const Datagram& datagram);
};

inline constexpr std::uint32_t kQpNumber = 17;

class Queue final : public CompletionQueue {
 public:
  explicit Queue(std::uint32_t entries) : entries_(entries) {}
  std::size_t poll(std::span<Completion> out) override {
    std::size_t count = 0;
    for (; count < out.size() && !done_.empty(); ++count) {
      out[count] = done_.front();
      done_.pop_front();
    }
    return count;
  }
  std::uint32_t entries() const override { return entries_; }
  bool overrun() const override { return false; }
  void add(const Completion& completion) {
    PYRDMA_ASSERT(done_.size() < entries_);
    done_.push_back(completion);
  }

 private:
  const std::uint32_t entries_;
  std::deque<Completion> done_;
};

struct Handle final : AddressHandle {
  explicit Handle(const QpAddress& to) : peer(to) {}
  QpAddress peer;
};

/// A queue pair for datagrams.
class Pair final : public QueuePair {
 public:
  Pair(Network& network, NodeId node, Queue& sends, Queue& receives, const QpOptions& options)
      : network_(network), node_(node), sends_(sends), receives_(receives), options_(options) {
    network_.pairs[node_] = this;
  }
  ~Pair() override {
    if (network_.pairs[node_] == this) network_.pairs.erase(node_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  Transport transport() const override { return Transport::kUd; }
  std::uint32_t qp_num() const override { return kQpNumber; }
  QpState state() const override { return state_; }
  QpAddress address() const override {
    QpAddress address;
    address.node = node_;
    address.qp_num = kQpNumber;
    address.qkey = options_.qkey;
    return address;
  }
  void modify(QpState next, const QpAddress* /*peer*/) override { state_ = next; }
  PostResult post(std::span<const WorkRequest> requests) override {
    for (const WorkRequest& request : requests) {
      Datagram datagram{static_cast<const Handle*>(request.address_handle)->peer, node_, {}};
      datagram.to.qkey = request.remote_qkey;
      for (std::uint32_t i = 0; i < request.sge_count; ++i) {
        const auto* from = reinterpret_cast<const std::byte*>(request.sges[i].addr);
        datagram.bytes.insert(datagram.bytes.end(), from, from + request.sges[i].length);
      }
      // A datagram with a wrong key is dropped where it arrives: the test need not see it.
      if (request.remote_qkey == options_.qkey) network_.under_way.push_back(std::move(datagram));
      if ((request.flags & kSignaled) == 0) continue;
      Completion done;
      done.wr_id = request.wr_id;
      done.opcode = request.opcode;
      sends_.add(done);
    }
    return {static_cast<std::uint32_t>(requests.size()), PostError::kNone};
  }
  PostResult post_receive(std::span<const ReceiveRequest> requests) override {
    for (const ReceiveRequest& request : requests)
      places_.emplace_back(request.wr_id, *request.sges);
    return {static_cast<std::uint32_t>(requests.size()), PostError::kNone};
  }
  void take(const Datagram& datagram) {
    if (places_.empty() || datagram.to.qkey != options_.qkey ||
        kGrhBytes + datagram.bytes.size() > places_.front().second.length)
      return;
    const auto [id, place] = places_.front();
    places_.pop_front();
    std::memcpy(reinterpret_cast<std::byte*>(place.addr) + kGrhBytes, datagram.bytes.data(),
                datagram.bytes.size());
    Completion done;
    done.wr_id = id;
    done.opcode = Opcode::kReceive;
    done.byte_count = static_cast<std::uint32_t>(kGrhBytes + datagram.bytes.size());
    done.source_qpn = kQpNumber;
    done.source_node = datagram.from;
    receives_.add(done);
  }

 private:
  Network& network_;
  const NodeId node_;
  Queue &sends_, &receives_;
  const QpOptions options_;
  QpState state_ = QpState::kReset;
  std::deque<std::pair<std::uint64_t, Sge>> places_;  // receives
};

inline void Network::deliver(const Datagram& datagram) {
  const auto found = pairs.find(datagram.to.node);
  if (found != pairs.end()) found->second->take(datagram);
}

class Region final : public MemoryRegion {
 public:
  Region(std::size_t bytes, NodeId node) : memory_(std::calloc(1, bytes), &std::free) {
    data_ = static_cast<std::byte*>(memory_.get());
    size_ = bytes;
    addr_ = reinterpret_cast<std::uint64_t>(data_);
    lkey_ = rkey_ = 1;
    node_ = node;
  }

 private:
  std::unique_ptr<void, void (*)(void*)> memory_;
};

/// A device with datagrams alone, and the run's rendezvous.
class Device final : public fabric::Device, public Rendezvous {
 public:
  Device(Network& network, NodeId node) : network_(network), node_(node) {
    capabilities_.rc = false;
    capabilities_.ud = true;
    capabilities_.max_queue_entries = capabilities_.max_completions = 4096;
    capabilities_.max_sges = 4;
    capabilities_.max_datagram = 4096;
  }
  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  void open() override {}
  Rendezvous& rendezvous() override { return *this; }
  std::unique_ptr<ProtectionDomain> create_protection_domain() override {
    return std::make_unique<ProtectionDomain>();
  }
  std::unique_ptr<MemoryRegion> allocate(ProtectionDomain& /*pd*/, std::size_t bytes,
                                         std::uint32_t /*access*/) override {
    return std::make_unique<Region>(bytes, node_);
  }
  std::unique_ptr<MemoryRegion> register_memory(ProtectionDomain& /*pd*/, void* /*data*/,
                                                std::size_t /*bytes*/,
                                                std::uint32_t /*access*/) override {
    refuse("register_memory");
  }
  std::unique_ptr<MemoryRegion> allocate_device_memory(ProtectionDomain& /*pd*/,
                                                       std::size_t /*bytes*/,
                                                       std::uint32_t /*access*/) override {
    refuse("allocate_device_memory");
  }
  std::unique_ptr<CompletionQueue> create_completion_queue(std::uint32_t entries) override {
    return std::make_unique<Queue>(entries);
  }
  std::unique_ptr<SharedReceiveQueue> create_shared_receive_queue(
      ProtectionDomain& /*pd*/, std::uint32_t /*entries*/, std::uint32_t /*max_sges*/) override {
    refuse("create_shared_receive_queue");
  }
  std::unique_ptr<QueuePair> create_queue_pair(ProtectionDomain& /*pd*/, CompletionQueue& sends,
                                               CompletionQueue& receives, const QpOptions& options,
                                               SharedReceiveQueue* /*shared_receives*/) override {
    if (options.transport != Transport::kUd) refuse("a connected queue pair");
    return std::make_unique<Pair>(network_, node_, static_cast<Queue&>(sends),
                                  static_cast<Queue&>(receives), options);
  }
  std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& /*pd*/,
                                                       const QpAddress& peer,
                                                       const PathOptions& /*path*/) override {
    return std::make_unique<Handle>(peer);
  }

  void publish(std::string_view key, std::span<const std::byte> value) override {
    network_.published.emplace(key, Bytes(value.begin(), value.end()));
  }
  std::optional<Bytes> find(std::string_view key) override {
    const auto found = network_.published.find(key);
    if (found == network_.published.end()) return std::nullopt;
    return found->second;
  }
  Bytes await(std::string_view /*key*/, Time /*deadline*/) override { refuse("await"); }

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw Error(ErrorCode::kUnavailable, std::string("a fabric by hand has no ") + what);
  }
  Network& network_;
  const NodeId node_;
  Capabilities capabilities_;
  const std::string name_ = "by hand";
};

class Node final : public Env {
 public:
  Node(Network& network, NodeId node, NodeId nodes)
      : Env(false), network_(network), node_(node), nodes_(nodes), device_(network, node) {}
  NodeId node() const override { return node_; }
  NodeId nodes() const override { return nodes_; }
  Time now() override { return network_.now; }
  // What a NIC does at once may need a second look.
  bool poll_until_ref(FunctionRef<bool()> ready, Time /*deadline*/, Watch* /*only*/) override {
    if (ready() || ready()) return true;
    refuse();
  }
  void notify(Watch& /*watch*/) override {}
  void sleep_until(Time /*t*/) override { refuse(); }
  void work(Time /*duration*/) override {}
  Rng rng(std::string_view purpose) override { return {1, node_, purpose}; }
  fabric::Device& device() override { return device_; }
  Storage& storage() override { refuse(); }
  Trace& trace() override { refuse(); }

 private:
  std::unique_ptr<Thread> spawn_on(std::uint32_t /*core*/, std::string /*name*/,
                                   std::function<void()> /*body*/) override {
    refuse();
  }
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::kUnavailable, "a node by hand neither waits nor has threads or files");
  }
  Network& network_;
  const NodeId node_, nodes_;
  Device device_;
};

}  // namespace pyrdma::fabric::by_hand
