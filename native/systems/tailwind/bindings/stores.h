// The Python side of a store: one object for all nodes of a cluster.
#pragma once
#include "bindings/bind.h"

namespace pyrdma::tailwind::bindings {

void bind_stores(pybind11::module_& module);

}  // namespace pyrdma::tailwind::bindings
