// Binds the endpoints of scripts for Python; pyrdma/systems/erpc/mesh.py documents them.
#pragma once
#include <pybind11/pybind11.h>

namespace pyrdma::erpc::bindings {

void bind_endpoints(pybind11::module_& module);

}  // namespace pyrdma::erpc::bindings
