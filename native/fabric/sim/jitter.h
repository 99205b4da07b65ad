// Seeded variance of a host, as its NIC sees it: crossings of PCIe differ, and an access that
// reaches DRAM may wait for a refresh or cross to the other socket. Without a switch
// (SimOptions::variance) nothing varies. README.md has the numbers.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/rng.h"
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
struct Message;
struct SimOptions;

class Jitter {
 public:
  Jitter(Nic& nic, const SimOptions& options, Rng stream);
  /// Returns the time of a crossing that takes `mean` on average.
  Picos crossing(Picos mean) { return on_ ? drawn_crossing(mean) : mean; }
  /// Returns the time of a request's transfer at the target. A read may find its bytes in DRAM.
  Picos access(Picos mean, const Message& message) {
    return on_ ? drawn_access(mean, message) : mean;
  }

 private:
  // A linear congruential generator (Knuth, MMIX): crossings are too many for a better one.
  Picos drawn_crossing(Picos mean) {
    crossings_ = crossings_ * 6364136223846793005U + 1442695040888963407U;
    const Picos offset = static_cast<Picos>(crossings_ >> 48) * pcie_ >> 16;
    return std::max<Picos>(0, mean + offset - pcie_ / 2);
  }
  Picos drawn_access(Picos mean, const Message& message);
  Picos drawn_wait(std::uint64_t region_bytes);
  Nic& nic_;
  bool on_;
  Picos pcie_, refresh_, numa_;
  double refresh_share_, cached_bytes_;  // the share of the time in which a bank refreshes
  Rng stream_;
  std::uint64_t crossings_;
};

}  // namespace pyrdma::fabric::sim
