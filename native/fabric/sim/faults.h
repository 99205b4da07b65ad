// Faults of the simulated NICs and of the network: what they know, and who opens the windows.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "env/faults.h"
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

/// What can go wrong at one NIC: its draws, and until when each window is open.
struct NicFaults {
  NicFaults(const FaultOptions& options, std::uint64_t seed, std::uint32_t node,
            std::uint32_t nodes, FaultCounters& counters, std::uint64_t* fold)
      : stream(options, seed, node, counters, fold), held_from(nodes) {}
  void heal() {
    stream.heal();
    held_from.assign(held_from.size(), 0);
    lost_until = clogged_until = no_buffer_until = stormed_until = 0;
    dc_storm_until = failed_until = noisy_until = flapping_until = 0;
  }
  FaultStream stream;
  std::vector<Picos> held_from;  // per sender: what arrives is held back until then
  Picos lost_until = 0, clogged_until = 0, no_buffer_until = 0, stormed_until = 0;
  Picos dc_storm_until = 0, failed_until = 0, noisy_until = 0, flapping_until = 0;
};

/// Until when packets of one node to another are lost. Empty until the first block().
class Reachability {
 public:
  explicit Reachability(std::uint32_t nodes) : nodes_(nodes) {}
  void block(std::uint32_t from, std::uint32_t to, Fault why, Picos until);
  void heal() { until_.clear(); }
  bool empty() const { return until_.empty(); }
  /// The fault that blocks the way now, or kCount.
  Fault blocked(std::uint32_t from, std::uint32_t to, Picos now) const {
    if (until_.empty()) [[likely]]
      return Fault::kCount;
    const Way& way = until_[from * std::size_t{nodes_} + to];
    return way.until > now ? way.why : Fault::kCount;
  }

 private:
  struct Way {
    Picos until = 0;
    Fault why = Fault::kCount;
  };
  std::uint32_t nodes_;
  std::vector<Way> until_;
};

inline constexpr Picos kFlap = 20'000'000;  // a flapping link changes every 20 us

}  // namespace pyrdma::fabric::sim
