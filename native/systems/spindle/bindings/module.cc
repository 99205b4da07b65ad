// The part of the Python module that belongs to Spindle.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "systems/spindle/bindings/groups.h"
#include "systems/spindle/options.h"

namespace pyrdma::spindle {

void bind(pybind11::module_& module);

void bind(pybind11::module_& module) {
  module.doc() = "Atomic multicast, after the Spindle paper.";
  module.attr("presets") = std::vector<std::string>(kPresetNames.begin(), kPresetNames.end());
  bindings::bind_groups(module);
  bindings::bind_domains(module);
}

}  // namespace pyrdma::spindle
