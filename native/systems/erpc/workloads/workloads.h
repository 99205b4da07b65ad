// Functions that make eRPC's workloads, for the table in system.cc.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::erpc {

std::unique_ptr<measure::Workload> make_baseline();
std::unique_ptr<measure::Workload> make_load();
std::unique_ptr<measure::Workload> make_raft();
std::unique_ptr<measure::Workload> make_store();

}  // namespace pyrdma::erpc
