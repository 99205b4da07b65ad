// State of the faults of the simulated NICs and of the network. FaultDriver opens their windows.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "env/faults.h"
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

/// Faults of one NIC: the random draws, and the time until which each window is open.
struct NicFaults {
  NicFaults(const FaultOptions& options, std::uint64_t seed, std::uint32_t port,
            std::uint32_t ports, FaultCounters& counters, std::uint64_t* fold)
      : stream(options, seed, port, counters, fold), held_from(ports) {}
  void heal() {
    stream.heal();
    held_from.assign(held_from.size(), 0);
    lost_until = clogged_until = no_buffer_until = stormed_until = 0;
    dc_storm_until = noisy_until = flapping_until = 0;
  }
  FaultStream stream;
  std::vector<Picos> held_from;  // per sender: arriving packets are held back until then
  Picos lost_until = 0, clogged_until = 0, no_buffer_until = 0, stormed_until = 0;
  Picos dc_storm_until = 0, noisy_until = 0, flapping_until = 0;
};

/// The time until which packets from one node to another are lost. The table is empty until the
/// first block().
class Reachability {
 public:
  explicit Reachability(std::uint32_t nodes) : nodes_(nodes) {}
  void block(std::uint32_t from, std::uint32_t to, Fault why, Picos until);
  void heal() { until_.clear(); }
  bool empty() const { return until_.empty(); }
  /// Returns the fault that blocks the way from `from` to `to` now, or kCount.
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

inline constexpr Picos kFlap = 20'000'000;  // a flapping link changes its state every 20 us

}  // namespace pyrdma::fabric::sim
