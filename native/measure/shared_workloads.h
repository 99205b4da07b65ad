// Functions that make the shared workloads, for the table in registry.cc.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::measure {

std::unique_ptr<Workload> make_control_path();
std::unique_ptr<Workload> make_idle();
std::unique_ptr<Workload> make_litmus();
std::unique_ptr<Workload> make_memcpy();
std::unique_ptr<Workload> make_soak();
std::unique_ptr<Workload> make_verbs_load();

}  // namespace pyrdma::measure
