// Functions that make LOCO's workloads, for the table in system.cc.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::measure {

std::unique_ptr<Workload> make_loco_barrier();
std::unique_ptr<Workload> make_loco_litmus();
std::unique_ptr<Workload> make_loco_lock();
std::unique_ptr<Workload> make_loco_power();
std::unique_ptr<Workload> make_loco_transactions();
std::unique_ptr<Workload> make_loco_ycsb();

}  // namespace pyrdma::measure
