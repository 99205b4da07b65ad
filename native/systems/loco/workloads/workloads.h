// Functions that make LOCO's workloads, for the table in system.cc.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::loco {

std::unique_ptr<measure::Workload> make_barrier();
std::unique_ptr<measure::Workload> make_litmus();
std::unique_ptr<measure::Workload> make_lock();
std::unique_ptr<measure::Workload> make_power();
std::unique_ptr<measure::Workload> make_transactions();
std::unique_ptr<measure::Workload> make_ycsb();

}  // namespace pyrdma::loco
