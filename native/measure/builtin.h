// Makers of the built-in workloads, for the registry's table.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::measure {

std::unique_ptr<Workload> make_control_path();
std::unique_ptr<Workload> make_idle();
std::unique_ptr<Workload> make_litmus();
std::unique_ptr<Workload> make_loco_barrier();
std::unique_ptr<Workload> make_loco_litmus();
std::unique_ptr<Workload> make_loco_lock();
std::unique_ptr<Workload> make_loco_power();
std::unique_ptr<Workload> make_loco_transactions();
std::unique_ptr<Workload> make_loco_ycsb();
std::unique_ptr<Workload> make_memcpy();
std::unique_ptr<Workload> make_soak();
std::unique_ptr<Workload> make_verbs_load();

}  // namespace pyrdma::measure
