// The Python side of an application that is attached to a daemon.
#pragma once
#include "bindings/bind.h"

namespace pyrdma::krcore::bindings {

void bind_attached(pybind11::module_& module);

}  // namespace pyrdma::krcore::bindings
