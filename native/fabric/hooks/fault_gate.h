// What the decorators of one device share: the draws, the regions, and the queue pairs that hold
// datagrams back.
#pragma once
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "fabric/hooks/faulty_device.h"

namespace pyrdma::fabric::hooks {

/// The draws, for all threads of the node.
class FaultGate {
 public:
  FaultGate(Env& env, FaultStream& faults, FaultKinds kinds);

  /// The kind is handled here and may fire.
  bool on(Fault fault) const { return on_[static_cast<std::size_t>(fault)]; }
  bool fire(Fault fault) { return on(fault) && draw(fault); }
  /// Uniform below `bound`, from the kind's own stream.
  std::uint64_t below(Fault fault, std::uint64_t bound);
  Time duration(Fault fault);
  void reach(Fault fault);
  Env& env() { return env_; }

 private:
  [[gnu::noinline]] bool draw(Fault fault);
  Env& env_;
  std::array<bool, kFaults> on_{};
  bool heals_by_clock_;
  std::atomic<bool> healed_{false};
  std::mutex mutex_;
  FaultStream& faults_;
};

/// Memory that a CPU may read for a request: the node's registered regions by local key.
class RegionTable {
 public:
  void add(const MemoryRegion& region);
  void remove(const MemoryRegion& region);
  /// Copies what `sge` names; false when no region holds all of it.
  bool copy(const Sge& sge, std::byte* to) const;

 private:
  struct Entry {
    std::uint64_t addr, size;
    const std::byte* data;
  };
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Entry> regions_;
};

/// A queue pair with requests that are to be sent later.
class LateSender {
 public:
  virtual ~LateSender() = default;
  virtual void send_due(Time now) = 0;
};

class LateSenders {
 public:
  void add(LateSender& sender);
  /// Afterwards the sender is not called any more.
  void remove(LateSender& sender);
  void change(int difference) { held_.fetch_add(difference, std::memory_order_relaxed); }
  bool empty() const { return held_.load(std::memory_order_relaxed) == 0; }
  void send_due(Env& env);

 private:
  std::atomic<int> held_{0};  // requests
  std::mutex mutex_;
  std::vector<LateSender*> senders_;
};

struct HookState {
  HookState(Device& device, Env& env, FaultStream& faults, FaultKinds kinds)
      : inner(device), gate(env, faults, kinds) {}
  /// Faults of datagrams, which need copies of what they carry.
  bool copies_datagrams() const;

  Device& inner;
  FaultGate gate;
  RegionTable regions;
  LateSenders late;
};

/// How many requests of a queue pair will complete, and have.
struct SendCount {
  std::atomic<std::uint64_t> signaled{0};   // accepted, with the flag
  std::atomic<std::uint64_t> completed{0};  // polled with success
};

}  // namespace pyrdma::fabric::hooks
