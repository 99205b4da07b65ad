// Env of a simulated node: virtual time, fibers, and the CPU costs of the profile.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/env.h"
#include "env/scope.h"
#include "env/sim/node_memory.h"
#include "env/sim/scheduler.h"
#include "env/sim/sim_storage.h"
#include "env/storage.h"
#include "env/trace.h"

namespace pyrdma {

inline constexpr Picos kPicosPerNano = 1000, kPicosPerMicro = 1'000'000;
inline constexpr Picos to_picos(Time ns) {
  return ns >= kNever / kPicosPerNano ? kNever : ns * kPicosPerNano;
}
inline constexpr Picos to_picos(double ns) { return static_cast<Picos>(ns * 1000.0 + 0.5); }

/// CPU costs of a simulated node, in picoseconds.
struct SimCpuCosts {
  std::array<Picos, static_cast<std::size_t>(Cost::kCount)> named{};
  SimCpu cpu;
  Picos poll_turn = 1;  // a turn of a poll loop that charges nothing itself
  Picos storage_write = 0, storage_sync = 0;
  double storage_picos_per_byte = 0;
};

/// Keeps the enabled entries in order of occurrence over all nodes, for golden traces.
class SimTrace final : public Trace {
 public:
  SimTrace(NodeId node, std::vector<std::string>& lines) : node_(node), lines_(lines) {}
  void event(Time when, std::string_view what, std::string_view details) override;

 private:
  NodeId node_;
  std::vector<std::string>& lines_;
};

class SimEnv final : public Env {
 public:
  SimEnv(SimScheduler& scheduler, NodeId node, NodeId nodes, std::uint32_t cores,
         std::uint64_t seed, const SimCpuCosts& costs, Picos context_switch, Picos timeslice,
         std::vector<std::string>& trace_lines, BranchCounts& branches);
  ~SimEnv() override;

  NodeId node() const override { return node_; }
  NodeId nodes() const override { return nodes_; }
  std::uint32_t incarnation() const override { return incarnation_; }
  Time now() override;
  bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) override;
  void notify(Watch& watch) override { scheduler_.notify(watch); }
  // On real threads a sleep ends in a spin, which hides the time of its system call.
  void sleep_until(Time t) override { scheduler_.sleep_until(to_global(to_picos(t))); }
  void work(Time duration) override { scheduler_.work(to_picos(duration)); }
  Rng rng(std::string_view purpose) override;
  std::uint32_t cores() const override { return static_cast<std::uint32_t>(threads_.cores.size()); }
  std::uint32_t core() override;
  fabric::Device& device() override { return *devices_.front(); }
  std::uint32_t devices() const override { return static_cast<std::uint32_t>(devices_.size()); }
  fabric::Device& device_at(std::uint32_t number) override { return *devices_.at(number); }
  Storage& storage() override { return *storage_; }
  Trace& trace() override { return trace_; }

  /// Sets the faults of the node's disk and of its threads.
  void set_faults(FaultStream* faults);
  void set_devices(std::vector<fabric::Device*> devices) { devices_ = std::move(devices); }
  void restarted() { ++incarnation_; }
  /// Sets the node's clock `offset` ahead of virtual time; it gains `drift` picoseconds in each
  /// microsecond.
  void skew_clock(Picos offset, Picos drift) {
    clock_offset_ = offset;
    clock_drift_ = drift;
  }
  void jump_clock(Picos by) { clock_offset_ += by; }
  SimScheduler& scheduler() { return scheduler_; }
  SimNodeThreads& threads() { return threads_; }
  SimStorage& disk() { return *storage_; }
  const SimCpuCosts& costs() const { return costs_; }
  NodeMemory& memory() { return memory_; }
  /// Charges a store to the NIC beyond its cost on the NIC's socket.
  void charge_hop() {
    if (scheduler_.running().remote) [[unlikely]]
      scheduler_.charge(static_cast<Picos>(costs_.cpu.numa_hop));
  }

 protected:
  std::unique_ptr<Thread> spawn_on(std::uint32_t core, std::string name,
                                   std::function<void()> body) override;
  void charge_model(Cost cost, std::uint64_t count) override {
    scheduler_.charge(costs_.named[static_cast<std::size_t>(cost)] * static_cast<Picos>(count));
    if (faults_ != nullptr) [[unlikely]]
      maybe_preempt();
  }
  void charge_copy_model(std::size_t bytes, const Footprint* of) override;
  void charge_walk_model(const Footprint& of, const void* at) override;
  void prefetch_model(const Footprint& of, const void* at) override;
  void catch_up_model() override { scheduler_.sync(); }
  Env* enter_model(const CpuScope& step) override;
  void footprint_model(const void* data, std::uint64_t bytes, bool exists) override;

 private:
  SimScheduler& scheduler_;
  NodeId node_, nodes_;
  std::uint64_t seed_;
  Picos to_local(Picos global) const {
    return global + clock_offset_ + global / kPicosPerMicro * clock_drift_;
  }
  Picos to_global(Picos local) const;
  void maybe_preempt();
  void charge_time(double picos) { scheduler_.charge(static_cast<Picos>(picos + 0.5)); }
  double line_from_nic();
  const SimCpuCosts& costs_;
  NodeMemory memory_;
  std::uint32_t steps_ = 0;  // taken under faults
  std::uint32_t incarnation_ = 0;
  Picos clock_offset_ = 0, clock_drift_ = 0;
  SimNodeThreads threads_;
  FaultStream* faults_ = nullptr;
  std::vector<fabric::Device*> devices_;
  std::unique_ptr<SimStorage> storage_;
  SimTrace trace_;
};

}  // namespace pyrdma
