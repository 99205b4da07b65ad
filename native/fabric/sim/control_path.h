// What creating, modifying and registering objects takes: CPU time of the caller, and time of the
// NIC's control engine, which serves one call after the other.
#pragma once
#include <cstddef>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;

class ControlPath {
 public:
  explicit ControlPath(Nic& nic) : nic_(nic) {}
  /// Blocks the caller for `total_us`, of which `nic_us` pass in the NIC's control engine.
  void work(double total_us, double nic_us);
  /// Blocks the caller for the registration of `bytes` of memory.
  void register_memory(std::size_t bytes);

 private:
  Nic& nic_;
  Picos engine_free_ = 0;
};

}  // namespace pyrdma::fabric::sim
