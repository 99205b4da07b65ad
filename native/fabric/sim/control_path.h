// The cost of creating, modifying and registering objects: CPU time of the caller, and time of the
// NIC's control engine. The control engine serves one call at a time.
#pragma once
#include <cstddef>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;

class ControlPath {
 public:
  explicit ControlPath(Nic& nic) : nic_(nic) {}
  /// Blocks the caller for `total_us`. The NIC's control engine is busy for `nic_us` of that time.
  void work(double total_us, double nic_us);
  /// Blocks the caller for the time to register `bytes` of memory.
  void register_memory(std::size_t bytes);

 private:
  Nic& nic_;
  Picos engine_free_ = 0;
};

}  // namespace pyrdma::fabric::sim
