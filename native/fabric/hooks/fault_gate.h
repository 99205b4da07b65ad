// The decorators of one device share the draws, the regions, and the queue pairs that hold
// datagrams back.
#pragma once
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "fabric/hooks/faulty_device.h"

namespace pyrdma::fabric::hooks {

/// FaultGate draws faults for all threads of the node.
class FaultGate {
 public:
  FaultGate(Env& env, FaultStream& faults, FaultKinds kinds);

  /// Returns whether the decorators handle the kind and it may fire.
  bool on(Fault fault) const { return on_[static_cast<std::size_t>(fault)]; }
  bool fire(Fault fault) { return on(fault) && draw(fault); }
  /// Draws uniformly below `bound` from the kind's own stream.
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

/// RegionTable holds the node's registered regions by local key, so that a CPU may read their
/// memory for a request.
class RegionTable {
 public:
  void add(const MemoryRegion& region);
  void remove(const MemoryRegion& region);
  /// Copies the bytes that `sge` names; returns false when no region holds all of them.
  bool copy(const Sge& sge, std::byte* to) const;

 private:
  struct Entry {
    std::uint64_t addr, size;
    const std::byte* data;
  };
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Entry> regions_;
};

/// LateSender is a queue pair with requests to send later.
class LateSender {
 public:
  virtual ~LateSender() = default;
  virtual void send_due(Time now) = 0;
};

class LateSenders {
 public:
  void add(LateSender& sender);
  /// The sender is not called afterwards.
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
  /// Returns whether datagram faults are on; they need copies of the payload.
  bool copies_datagrams() const;

  Device& inner;
  FaultGate gate;
  RegionTable regions;
  LateSenders late;
};

/// SendCount counts the signaled requests of a queue pair and their completions.
struct SendCount {
  std::atomic<std::uint64_t> signaled{0};   // accepted requests with the flag
  std::atomic<std::uint64_t> completed{0};  // completions polled with success
};

}  // namespace pyrdma::fabric::hooks
