#include "systems/system.h"

#include <string>

#include "base/assert.h"
#include "systems/list.h"

#define PYRDMA_DECLARE(NAME)     \
  namespace pyrdma::NAME {       \
  systems::System description(); \
  }
PYRDMA_FOR_EACH_SYSTEM(PYRDMA_DECLARE)
#undef PYRDMA_DECLARE

namespace pyrdma::systems {

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
        PYRDMA_ASSERT(row.name.starts_with(std::string(system.name) + '_'));
      filled.add(system.workloads);
    }
    return filled;
  }();
  return table;
}

const std::vector<fuzz::Scenario>& scenarios() {
  static const std::vector<fuzz::Scenario> table = [] {
    std::vector<fuzz::Scenario> filled = fuzz::shared_scenarios();
    for (const System& system : all())
      filled.insert(filled.end(), system.scenarios.begin(), system.scenarios.end());
    return filled;
  }();
  return table;
}

}  // namespace pyrdma::systems
