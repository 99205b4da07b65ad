// The steps of workloads that belong to no system; see env/scope.h.
#pragma once
#include "env/scope.h"

namespace pyrdma::measure::scope {

/// The call of a copy: dispatch by size, alignment, and the loop around it. Assumed, not counted;
/// the bytes themselves cost by their footprint.
inline constexpr CpuScope copy{"measure/copy", 30};

}  // namespace pyrdma::measure::scope
