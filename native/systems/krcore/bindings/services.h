// The Python side of services: one object for all nodes of a cluster.
#pragma once
#include "bindings/bind.h"

namespace pyrdma::krcore::bindings {

void bind_services(pybind11::module_& module);

}  // namespace pyrdma::krcore::bindings
