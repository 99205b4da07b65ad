// The Python classes of groups and of domains.
#pragma once
#include <pybind11/pybind11.h>

namespace pyrdma::spindle::bindings {

void bind_domains(pybind11::module_& module);
void bind_groups(pybind11::module_& module);

}  // namespace pyrdma::spindle::bindings
