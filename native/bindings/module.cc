#include "bindings/bind.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The native part of pyrdma: fabrics, low-level verbs, workloads.";
  module.attr("__version__") = PYRDMA_VERSION;
  pyrdma::bindings::bind_errors(module);
  pyrdma::bindings::bind_fabric(module);
  pyrdma::bindings::bind_sim(module);
  pyrdma::bindings::bind_shm(module);
  pyrdma::bindings::bind_verbs(module);
  pyrdma::bindings::bind_measure(module);
  pyrdma::bindings::bind_check(module);
  pyrdma::bindings::bind_fuzz(module);
  pyrdma::bindings::bind_loco(module);
}
