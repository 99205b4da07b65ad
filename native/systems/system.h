// A system tells the programs around it which workloads and which fuzz scenarios it has.
#pragma once
#include <string_view>
#include <vector>

#include "fuzz/scenario.h"
#include "measure/workload.h"

namespace pyrdma::systems {

struct System {
  std::string_view name;  // of its folder
  std::string_view title;
  /// Their names begin with the system's name.
  std::vector<measure::NamedWorkload> workloads;
  std::vector<fuzz::Scenario> scenarios;
};

/// The systems of list.h, in its order.
const std::vector<System>& all();

/// The workloads of all systems and those that belong to none.
const measure::Workloads& workloads();

/// The scenarios of all systems and those that belong to none, the latter first.
const std::vector<fuzz::Scenario>& scenarios();

}  // namespace pyrdma::systems
