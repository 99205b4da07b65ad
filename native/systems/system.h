// A system declares its workloads and its fuzz scenarios to the programs around it.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "env/scope.h"
#include "fuzz/scenario.h"
#include "measure/workload.h"

namespace pyrdma::systems {

/// A library of the machine without which a part of a system is missing. `pyrdma doctor` lists it.
struct Library {
  std::string_view name;
  std::string_view package;            // of Debian
  bool at_build = false;               // the build needs the package, too
  std::string (*problem)() = nullptr;  // returns an empty text, or why the library cannot be used
};

struct System {
  std::string_view name;  // the name of its folder
  /// The name of each begins with the system's name and an underscore.
  std::vector<measure::NamedWorkload> workloads;
  /// The name of each is the system's name, or begins like the name of a workload.
  std::vector<fuzz::Scenario> scenarios;
  /// The steps of its scopes.h.
  std::span<const CpuScope* const> scopes;
  std::vector<Library> libraries;
};

/// Returns the systems of list.h, in its order.
const std::vector<System>& all();

/// Returns the workloads of all systems and the workloads that belong to no system.
const measure::Workloads& workloads();

/// Returns the scenarios that belong to no system, then the scenarios of all systems.
const std::vector<fuzz::Scenario>& scenarios();

}  // namespace pyrdma::systems
