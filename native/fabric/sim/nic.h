// A simulated NIC of a node. Each step of a request is a part with its own state and file. Nic
// holds the parts and the state that they share. README.md shows a request's way through the parts.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "env/sim/sim_env.h"
#include "env/sim/timeline.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/completer.h"
#include "fabric/sim/context_cache.h"
#include "fabric/sim/control_path.h"
#include "fabric/sim/dma.h"
#include "fabric/sim/faults.h"
#include "fabric/sim/ingress.h"
#include "fabric/sim/jitter.h"
#include "fabric/sim/key_table.h"
#include "fabric/sim/message.h"
#include "fabric/sim/network.h"
#include "fabric/sim/packet_faults.h"
#include "fabric/sim/pcie.h"
#include "fabric/sim/receiver.h"
#include "fabric/sim/remote_access.h"
#include "fabric/sim/requester.h"
#include "fabric/sim/responder.h"
#include "fabric/sim/responses.h"
#include "fabric/sim/retransmitter.h"
#include "fabric/sim/transmitter.h"
#include "fabric/sim/weak_memory.h"

namespace pyrdma::fabric::sim {

class PlacementQueue;

/// The NIC's record of a registered region.
struct Region {
  std::byte* data;
  std::uint64_t addr;
  std::uint64_t size;
  std::uint32_t key;
  std::uint32_t access;
  std::uint32_t domain;
  std::uint64_t serial;  // names the region in the translation cache
  bool on_device;

  bool covers(std::uint64_t from, std::uint64_t bytes) const {
    return from >= addr && bytes <= size && from - addr <= size - bytes;
  }
  std::byte* at(std::uint64_t address) const { return data + (address - addr); }
};

/// The profile's NIC times in picoseconds.
struct NicTimes {
  explicit NicTimes(const SimProfile& profile);
  Picos doorbell, dma_read, dma_write;
  Picos tx_latency, rx_latency, tx_packet, rx_packet;
  Picos tx_message, qp_message, qp_read;
  Picos rx_write, rx_read, rx_send, rx_atomic, rx_ack, scatter;
  Picos atomic_address, device_atomic_address;
  Picos completion, payload_fetch, qp_miss, mr_miss, request_miss, dc_message, dc_reconnect,
      device_memory_saving;
  Picos post, post_request, poll, empty_poll;
};

/// State that all NICs of a cluster share.
struct Fabric {
  Fabric(const SimOptions& options, SimScheduler& scheduler);
  ~Fabric();
  const SimProfile& profile;
  NicTimes times;
  SimScheduler& scheduler;
  Network network;
  MessagePool pool;
  std::uint32_t nodes, devices;            // devices of each node
  std::vector<std::unique_ptr<Nic>> nics;  // by port
  Nic& nic(std::uint32_t node, std::uint32_t device) const { return *nics[device * nodes + node]; }
  /// Returns the NIC of an address. Throws Error(kInvalidArgument) when there is none.
  Nic& nic_of(const QpAddress& address) const;
  FaultCounters fault_counters;
  void count_fired(Fault fault) { ++fault_counters.fired[static_cast<std::size_t>(fault)]; }
  /// Tells the trace and the timeline, as far as they are enabled, of a fault at a node. The fault
  /// happens now, or lasts until `until`. `what` is a literal.
  void mark(std::uint32_t node, const char* what, Picos until = 0) const;
  void mark(std::uint32_t node, Fault fault, Picos until) const {
    mark(node, fault_info(fault).key.data(), until);
  }
  static constexpr std::uint32_t kManyNodes = ~0U;
  std::vector<PlacementQueue*> placing;  // the queues that hold bytes back
  Reachability reachability;
  bool nic_has_failed = false;       // since the last heal()
  std::uint32_t device_regions = 0;  // number of regions in NICs' memory
  std::uint64_t next_serial = 1;
  std::uint64_t connections = 0;
  std::uint32_t next_domain = 1;
  // Destroyed queue pairs with references left. The set is used only to delete them.
  std::unordered_set<QueuePairCore*> orphans;
};

class alignas(64) Nic final {
 public:
  static constexpr std::string_view kKeys = "memory keys", kNumbers = "queue pair numbers";
  Nic(Fabric& fabric, std::uint32_t port, const SimOptions& options, SimEnv& env);
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  /// Prefetches the members that most messages touch into the CPU's cache.
  void prefetch() const {
    const auto* at = reinterpret_cast<const char*>(this);
    for (std::size_t line = 0; line < 10; ++line) __builtin_prefetch(at + line * 64);
  }
  std::uint32_t node() const { return node_; }
  std::uint32_t device() const { return port_ / fabric_.nodes; }  // number at its node
  std::uint32_t port() const { return port_; }                    // of the network
  Fabric& fabric() const { return fabric_; }
  SimEnv& env() { return env_; }
  const NicTimes& times() const { return fabric_.times; }
  NicCounters& counters() { return counters_; }
  /// Charges the calling thread for a post of `requests` requests.
  void charge_post(std::size_t requests);
  /// Notes that the NIC has written `bytes` bytes to the node's memory, for a request of
  /// `initiator`.
  void placed(std::uint64_t bytes, const Nic& initiator) {
    env_.memory().place(fabric_.scheduler.clock(), bytes, initiator.node_ == node_);
  }
  /// Wakes the pollers of the node's memory.
  void touch() { fabric_.scheduler.touch(env_.threads()); }
  /// Gives a message back to the pool.
  void release(Message& message) { fabric_.pool.give_back(message); }
  /// Adds a line to the node's trace when the trace is enabled.
  void trace(const char* what, const Message& message, Picos now) {
    if (env_.trace().enabled()) [[unlikely]]
      write_trace(what, message, now);
  }
  /// Null when no timeline is recorded.
  Timeline* timeline() const { return timeline_; }
  /// Each NIC has the pointer, because most steps of a request look at it.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }
  TimelinePlace place(TimelineRow row) const { return {row, port_}; }
  /// Records how long a stage of this NIC, or the port towards it, worked on the message.
  void record(TimelineRow row, const Message& message, Picos from, Picos to) {
    if (timeline() != nullptr) [[unlikely]]
      write_slice(row, message, from, to);
  }
  static TimelineWhat describe(const Message& message);
  /// Records that something happened to the message.
  void mark(TimelineRow row, const char* what, const Message& message, Picos now) {
    if (timeline() != nullptr) [[unlikely]]
      write_mark(row, what, message, now);
  }
  /// Counts that a fault had its effect at this NIC.
  void count_reached(Fault fault);

  bool dead() const { return dead_; }
  /// Crashes the NIC. With `torn`, the node's memory is saved, together with a part of the bytes
  /// that were on their way to the memory.
  void die(bool torn);
  /// Brings the NIC up again without registered regions and queue pairs.
  void revive();
  /// Saves the memory that is registered with the node's NICs to its disk (Crash::kHostBattery).
  void save_memory();
  /// Puts all queue pairs into the error state and loses all packets until then. The node stays up.
  void fail_until(Picos until);
  bool has_failed(Picos now) const { return failed_until_ > now; }
  /// Ends a failure, and the backlog of a NIC that was slow.
  void heal();
  /// Makes queue pair numbers and keys repeat those that `node` draws from its start.
  void reseed_numbers(std::uint32_t node);
  /// Draws the first packet sequence number of a connection.
  std::uint32_t draw_packet_number() {
    return static_cast<std::uint32_t>(packet_numbers_()) & 0xffffff;
  }
  /// Null when no fault can happen.
  NicFaults* faults() const { return faults_.get(); }
  void set_faults(std::unique_ptr<NicFaults> faults);
  /// The NIC's engines take 2^slow() times as long as at normal speed.
  std::uint32_t slow() const { return slow_; }
  void set_slow(std::uint32_t shift) { slow_ = shift; }

 private:
  [[gnu::cold]] void write_trace(const char* what, const Message& message, Picos now);
  [[gnu::cold, gnu::noinline]] void write_slice(TimelineRow row, const Message& message, Picos from,
                                                Picos to);
  [[gnu::cold, gnu::noinline]] void write_mark(TimelineRow row, const char* what,
                                               const Message& message, Picos now);
  void hear(Fault fault, bool reached);
  Fabric& fabric_;
  std::uint32_t port_, node_;
  Timeline* timeline_ = fabric_.scheduler.timeline();
  Picos failed_until_ = 0;
  std::uint32_t slow_ = 0;
  bool dead_ = false;
  SimEnv& env_;
  Rng packet_numbers_;
  std::uint64_t seed_;
  std::unique_ptr<NicFaults> faults_;
  NicCounters counters_;

 public:
  KeyTable<Region> regions;
  KeyTable<QueuePairCore> queue_pairs;
  ContextCache contexts;
  ControlPath control{*this};
  Pcie pcie;
  Jitter jitter;

  // The steps of a request, in their order.
  Requester requester{*this, fabric_.profile};
  Dma dma{*this};
  Transmitter transmitter{*this};
  PacketFaults packet_faults{*this};
  Ingress ingress{*this};
  Responder responder{*this};
  RemoteAccess remote_access{*this};
  Receiver receiver{*this};
  WeakMemory weak_memory;
  Responses responses{*this};
  Completer completer{*this};
  Retransmitter retransmitter;
};

}  // namespace pyrdma::fabric::sim
