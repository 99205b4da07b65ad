// The workloads of Spindle.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::spindle {

std::unique_ptr<measure::Workload> make_dds();
std::unique_ptr<measure::Workload> make_multicast();
std::unique_ptr<measure::Workload> make_survivors();

}  // namespace pyrdma::spindle
