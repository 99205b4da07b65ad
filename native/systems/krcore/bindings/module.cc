// The part of the Python module that belongs to KRCore.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "systems/krcore/bindings/attached.h"
#include "systems/krcore/bindings/services.h"
#include "systems/krcore/meta/meta_server.h"

namespace pyrdma::krcore {

void bind(pybind11::module_& module);

void bind(pybind11::module_& module) {
  module.doc() = "A microsecond control plane for RDMA, after the KRCore paper.";
  module.attr("rc_policies") = std::vector<std::string>{"never", "sampled", "at_once"};
  module.attr("dct_meta_bytes") = sizeof(DctMeta);
  module.def("meta_table_bytes", &meta_table_bytes,
             "Return the bytes of a meta server's table for so many nodes.");
  bindings::bind_attached(module);
  bindings::bind_services(module);
}

}  // namespace pyrdma::krcore
