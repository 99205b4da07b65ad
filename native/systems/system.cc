#include "systems/system.h"

#include <algorithm>

#include "base/assert.h"
#include "systems/list.h"

#define PYRDMA_DECLARE(NAME)     \
  namespace pyrdma::NAME {       \
  systems::System description(); \
  }
PYRDMA_FOR_EACH_SYSTEM(PYRDMA_DECLARE)
#undef PYRDMA_DECLARE

namespace pyrdma::systems {

namespace {

/// Whether `name` is `system`, an underscore and more.
bool belongs(std::string_view name, std::string_view system) {
  return name.size() > system.size() + 1 && name.starts_with(system) && name[system.size()] == '_';
}

}  // namespace

const std::vector<System>& all() {
#define PYRDMA_CALL(NAME) NAME::description(),
  static const std::vector<System> systems{PYRDMA_FOR_EACH_SYSTEM(PYRDMA_CALL)};
#undef PYRDMA_CALL
  return systems;
}

const measure::Workloads& workloads() {
  static const measure::Workloads table = [] {
    measure::Workloads filled;
    filled.add(measure::shared_workloads());
    for (const System& system : all()) {
      for (const measure::NamedWorkload& row : system.workloads)
        PYRDMA_ASSERT(belongs(row.name, system.name));
      filled.add(system.workloads);
    }
    return filled;
  }();
  return table;
}

const std::vector<fuzz::Scenario>& scenarios() {
  static const std::vector<fuzz::Scenario> table = [] {
    std::vector<fuzz::Scenario> filled = fuzz::shared_scenarios();
    for (const System& system : all()) {
      for (const fuzz::Scenario& scenario : system.scenarios) {
        PYRDMA_ASSERT(scenario.name == system.name || belongs(scenario.name, system.name));
        PYRDMA_ASSERT(std::ranges::find(filled, scenario.name, &fuzz::Scenario::name) ==
                      filled.end());
        filled.push_back(scenario);
      }
    }
    return filled;
  }();
  return table;
}

}  // namespace pyrdma::systems
