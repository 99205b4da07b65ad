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
#include "fabric/sim/faults.h"
#include "fabric/sim/key_table.h"
#include "fabric/sim/message.h"
#include "fabric/sim/network.h"
#include "fabric/sim/placement.h"
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
  std::uint32_t domain;
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
  FaultCounters fault_counters;
  void count_fired(Fault fault) { ++fault_counters.fired[static_cast<std::size_t>(fault)]; }
  void count_reached(Fault fault) { ++fault_counters.reached[static_cast<std::size_t>(fault)]; }
  std::vector<PlacementQueue*> placing;  // those that hold something back
  Reachability reachability;
  std::uint64_t next_serial = 1;
  std::uint32_t next_domain = 1;
  std::unordered_set<QueuePairCore*>
      orphans;  // destroyed, but still referred to; only ever deleted
};

class Nic final : public SimEvent {
 public:
  static constexpr std::string_view kKeys = "memory keys", kNumbers = "queue pair numbers";
  Nic(Fabric& fabric, std::uint32_t node, const SimOptions& options, SimEnv& env);

  std::uint32_t node() const { return node_; }
  Fabric& fabric() { return fabric_; }
  SimEnv& env() { return env_; }
  const NicTimes& times() const { return fabric_.times; }
  NicCounters& counters() { return counters_; }
  bool dead() const { return dead_; }
  /// The node crashes. `torn`: its memory is saved, with some of what was on its way.
  void die(bool torn);
  /// The node is up again, with nothing registered.
  void revive();
  /// Saves all registered memory to the node's disk (Crash::kHostBattery).
  void save_memory();
  /// All queue pairs fail; the node lives on.
  void fail_all();
  /// Flow control stops this NIC's sending until then; 0: it may go on.
  void storm(Picos until);
  /// Queue pair numbers and keys are drawn as those of `node` were from the start.
  void reseed_numbers(std::uint32_t node);
  /// Writes of one connection are placed in any order.
  void place_in_any_order();
  NicFaults* faults() { return faults_.get(); }
  void set_faults(std::unique_ptr<NicFaults> faults);
  void set_slow(std::uint32_t shift) { slow_ = shift; }

  const MemoryModel& memory() const { return memory_; }
  Rng& memory_draws() { return memory_draws_; }
  bool tears_at_crash();
  void settle_atomics(const std::byte* at, std::uint64_t bytes);
  /// Wakes the pollers of the node's memory.
  void touch() { fabric_.scheduler.touch(env_.threads()); }
  std::uint32_t split_atomics = 0;  // whose write-back is not visible yet

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
  /// The responder has noticed a gap.
  void ask_again(QueuePairCore& qp, Picos now);
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
  Status check_length(const QueuePairCore& qp, std::uint64_t sequence) const;
  bool gather(Message& message, QueuePairCore& qp, std::uint64_t sequence,
              std::uint64_t mask = ~0ULL);
  void transmit(Message& message, Picos ready);
  bool gather_late(Message& message);
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
  static bool follows(QueuePairCore& qp, const Message& message);
  Status execute(Message& message, QueuePairCore& target, Picos now, bool duplicate);
  Status execute_read(Message& message, const Region& region);
  Status execute_atomic(Message& message, const Region& region, bool duplicate, Picos now);
  enum class Delivery { kDone, kNotReady, kTooLong, kBadBuffer };
  Delivery deliver(Message& message, QueuePairCore& target, bool with_data);
  void fail_receive(QueuePairCore& target, Status status);
  const Region* accessible(const Message& message, const QueuePairCore& target, std::uint64_t addr,
                           std::uint64_t bytes, std::uint32_t access) const;
  void place_write(Message& message, const Region& region, std::byte* to, Picos now) {
    if (memory_.is_weak() || faults_ != nullptr) return place_weakly(message, region, to, now);
    std::memcpy(to, message.payload(), message.length);
  }
  void place_weakly(Message& message, const Region& region, std::byte* to, Picos now);
  void drain(QueuePairCore& initiator);
  bool draws(double probability) {
    return probability > 0 && memory_draws_.uniform() < probability;
  }
  Picos sample_early(Message& message, const QueuePairCore& qp);
  Picos land_early(const QueuePairCore& qp, Message& message);

  // meddle.cc
  /// True when a fault has taken the packet off its way.
  bool meddle(Message& message, Picos now) {
    if (faults_ == nullptr && fabric_.reachability.empty()) [[likely]]
      return false;
    return meddle_with(message, now);
  }
  bool meddle_with(Message& message, Picos now);
  void arrive_again(const Message& message, Picos when);
  Fault cut_off(const Nic& sender, Picos now) const;
  void respond(Message& message, Picos at, Picos now);
  void answer(Message& message, Picos at, Picos now);
  void continue_read(Message& message, Picos now);
  void end_long_read(QueuePairCore& qp, Picos now);

  // completer.cc
  void response_arrives(Message& message, Picos now);
  void response_completes(Message& message, Picos now);
  bool acknowledge_up_to(QueuePairCore& qp, std::uint64_t sequence);
  bool answers_in_order(QueuePairCore& qp, const Message& message, Picos now);
  static void complete(QueuePairCore& qp, std::uint64_t sequence);
  bool scatter(const QueuePairCore& qp, std::uint64_t sequence, Message& message,
               std::uint64_t mask = ~0ULL);

  Fabric& fabric_;
  std::uint32_t node_;
  SimEnv& env_;
  NicCounters counters_;
  Picos engine_free_ = 0, pcie_free_ = 0, link_free_ = 0, responder_free_ = 0, control_free_ = 0;
  Picos paused_until_ = 0;
  Picos engine_due_ = kNever;
  bool dead_ = false;
  std::uint32_t slow_ = 0;  // engines take 2^slow_ times as long
  std::uint64_t seed_;
  MemoryModel memory_;
  bool orders_writes_ = true;
  Rng memory_draws_;
  std::unique_ptr<NicFaults> faults_;  // null: none can happen
  QueuePairCore* active_head_ = nullptr;
  QueuePairCore* active_tail_ = nullptr;
};

}  // namespace pyrdma::fabric::sim
