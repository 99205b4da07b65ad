// The simulated NIC of one node: a requester engine fed by doorbells, a responder engine, a serial
// control engine, the link, and the caches. Steps of a request, a file each: requester.cc (queue to
// link), responder.cc (port to memory), completer.cc (response to completion), retransmit.cc (loss,
// receiver not ready, dead peers).
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "env/sim/sim_env.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/key_table.h"
#include "fabric/sim/message.h"
#include "fabric/sim/network.h"
#include "fabric/sim/state_cache.h"
#include "fabric/types.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;

/// A registered region, as the NIC knows it.
struct Region {
  std::byte* data;
  std::uint64_t addr;
  std::uint64_t size;
  std::uint32_t key;
  std::uint32_t access;
  const void* domain;
  std::uint64_t serial;  // names it in the translation cache
  bool on_device;
  bool synthetic;
};

/// The profile's NIC numbers in picoseconds.
struct NicTimes {
  explicit NicTimes(const SimProfile& profile);
  Picos doorbell, dma_read, dma_write;
  double pcie_picos_per_byte;
  Picos tx_latency, rx_latency, tx_message;
  Picos rx_write, rx_read, rx_send, rx_atomic, rx_ack;
  Picos completion, payload_fetch, qp_miss, mr_miss, dc_message, dc_reconnect, device_memory_saving;
  Picos post, post_request, poll, empty_poll;
};

/// What all NICs of a cluster share.
struct Fabric {
  Fabric(const SimOptions& options, SimScheduler& scheduler);
  ~Fabric();
  const SimProfile& profile;
  NicTimes times;
  SimScheduler& scheduler;
  Network network;
  MessagePool pool;
  std::vector<std::unique_ptr<Nic>> nics;
  std::uint64_t next_serial = 1;
  std::unordered_set<QueuePairCore*>
      orphans;  // destroyed, but still referred to; only ever deleted
};

class Nic final : public SimEvent {
 public:
  Nic(Fabric& fabric, std::uint32_t node, std::uint64_t seed, SimEnv& env);

  std::uint32_t node() const { return node_; }
  Fabric& fabric() { return fabric_; }
  SimEnv& env() { return env_; }
  const NicTimes& times() const { return fabric_.times; }
  NicCounters& counters() { return counters_; }
  bool dead() const { return dead_; }
  void die() { dead_ = true; }

  KeyTable<Region> regions;
  KeyTable<QueuePairCore> queue_pairs;
  StateCache cache;

  /// The CPU has posted requests that reach the NIC at `when`.
  void doorbell(QueuePairCore& qp, Picos when);
  /// A queue pair has requests that the NIC may process from `when` on.
  void activate(QueuePairCore& qp, Picos when);
  /// The requester engine's turn.
  void fire(Picos now) override;
  void on_message(Message& message, Picos now);

  /// Blocks the caller for `total_us`, of which `nic_us` pass in the NIC's serial control engine.
  void control_path(double total_us, double nic_us);
  void charge_registration(std::size_t bytes);

  // retransmit.cc
  /// A request or response of an ordered queue pair did not get through.
  void lost(Message& message, Picos now, bool later_packets_tell);
  void schedule_retry(QueuePairCore& qp, std::uint64_t from, Picos when, bool rnr);
  void retry(QueuePairCore& qp, Picos now);
  /// Completes request `sequence` with an error and flushes the rest.
  void fail(QueuePairCore& qp, std::uint64_t sequence, Status status);
  void enter_error(QueuePairCore& qp);
  void fail_pending(QueuePairCore& qp);

  /// A line in the node's trace, when it is on.
  void trace(const char* what, const Message& message, Picos now) {
    if (env_.trace().enabled()) [[unlikely]]
      write_trace(what, message, now);
  }
  /// Gives a message back to the pool.
  void release(Message& message);

 private:
  [[gnu::cold]] void write_trace(const char* what, const Message& message, Picos now);

  // requester.cc
  enum class Step { kSent, kWaits, kBlocked };
  Step send_chunk(QueuePairCore& qp, Picos now);
  bool may_start(QueuePairCore& qp) const;
  Status check_local(const QueuePairCore& qp, std::uint64_t sequence) const;
  bool gather(Message& message, QueuePairCore& qp, std::uint64_t sequence);
  void transmit(Message& message, Picos ready);
  void complete_locally(QueuePairCore& qp, std::uint64_t sequence, Picos at);
  void append_active(QueuePairCore& qp);
  void schedule_engine(Picos when);
  Picos touch_state(const QueuePairCore& qp);
  Picos touch_translation(const Region& region, std::uint64_t addr);

  // responder.cc
  struct Passage {
    bool dropped;
    Picos due;
  };
  Passage pass_port(Message& message, Picos now, Picos engine_cost, Picos not_before);
  void request_arrives(Message& message, Picos now);
  void request_executes(Message& message, Picos now);
  QueuePairCore* find_target(const Message& message) const;
  Status execute(Message& message, QueuePairCore& target, Picos now, bool duplicate);
  Status execute_read(Message& message, const Region& region);
  Status execute_atomic(Message& message, const Region& region, bool duplicate);
  enum class Delivery { kDone, kNotReady, kTooLong, kBadBuffer };
  Delivery deliver(Message& message, QueuePairCore& target, bool with_data);
  void fail_receive(QueuePairCore& target, Status status);
  const Region* accessible(const Message& message, const QueuePairCore& target, std::uint64_t addr,
                           std::uint64_t bytes, std::uint32_t access) const;
  /// The moment at which payload reaches this node's memory: the seam for weak memory.
  static void place(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  void respond(Message& message, Picos at, Picos now);
  void continue_read(Message& message, Picos now);

  // completer.cc
  void response_arrives(Message& message, Picos now);
  void response_completes(Message& message, Picos now);
  bool scatter(const QueuePairCore& qp, std::uint64_t sequence, Message& message);

  Fabric& fabric_;
  std::uint32_t node_;
  SimEnv& env_;
  NicCounters counters_;
  Picos engine_free_ = 0, pcie_free_ = 0, link_free_ = 0, responder_free_ = 0, control_free_ = 0;
  Picos paused_until_ = 0;
  Picos engine_due_ = kNever;
  bool dead_ = false;
  QueuePairCore* active_head_ = nullptr;
  QueuePairCore* active_tail_ = nullptr;
};

}  // namespace pyrdma::fabric::sim
