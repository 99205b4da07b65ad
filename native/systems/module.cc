// The Python module: the part that serves all systems, then a submodule for each system.
#include "bindings/bind.h"
#include "systems/list.h"
#include "systems/system.h"

#define PYRDMA_DECLARE(NAME)            \
  namespace pyrdma::NAME {              \
  void bind(pybind11::module_& module); \
  }
PYRDMA_FOR_EACH_SYSTEM(PYRDMA_DECLARE)
#undef PYRDMA_DECLARE

PYBIND11_MODULE(_core, module) {
  module.doc() = "The native part of pyrdma: fabrics, low-level verbs, workloads, systems.";
  module.attr("__version__") = PYRDMA_VERSION;
  module.attr("source_digest") = pyrdma::bindings::source_digest();
  pyrdma::bindings::bind_errors(module);
  pyrdma::bindings::bind_fabric(module);
  pyrdma::bindings::bind_sim(module);
  pyrdma::bindings::bind_shm(module);
  pyrdma::bindings::bind_verbs(module);
  pyrdma::bindings::bind_measure(module, pyrdma::systems::workloads());
  pyrdma::bindings::bind_program(module);
  pyrdma::bindings::bind_check(module);
  pyrdma::bindings::bind_fuzz(module, pyrdma::systems::scenarios());
  module.def(
      "libraries",
      [] {
        pybind11::list found;
        for (const pyrdma::systems::System& system : pyrdma::systems::all()) {
          for (const auto& [name, package, at_build, problem] : system.libraries)
            found.append(pybind11::make_tuple(name, package, at_build, problem()));
        }
        return found;
      },
      "Return (name, Debian package, needed at the build, problem) of each system's libraries.");
#define PYRDMA_BIND(NAME)                                      \
  {                                                            \
    pybind11::module_ submodule = module.def_submodule(#NAME); \
    pyrdma::NAME::bind(submodule);                             \
  }
  PYRDMA_FOR_EACH_SYSTEM(PYRDMA_BIND)
#undef PYRDMA_BIND
}
