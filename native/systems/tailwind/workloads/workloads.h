// The workloads of Tailwind.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::tailwind {

std::unique_ptr<measure::Workload> make_store();

}  // namespace pyrdma::tailwind
