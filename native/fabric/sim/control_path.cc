#include "fabric/sim/control_path.h"

#include <algorithm>

#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

void ControlPath::work(double total_us, double nic_us) {
  SimScheduler& scheduler = nic_.fabric().scheduler;
  scheduler.work(to_picos((total_us - nic_us) * 1000.0));
  if (nic_us <= 0) return;
  scheduler.sync();
  engine_free_ = std::max(engine_free_, scheduler.clock()) + to_picos(nic_us * 1000.0);
  scheduler.sleep_until(engine_free_);
}

void ControlPath::register_memory(std::size_t bytes) {
  const SimProfile& p = nic_.fabric().profile;
  const double pages = std::max(1.0, static_cast<double>(bytes) / p.nic_page_bytes);
  work(p.control_register_us + pages * p.control_register_page_us, 0);
}

}  // namespace pyrdma::fabric::sim
