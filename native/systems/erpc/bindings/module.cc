// The part of the Python module that belongs to eRPC.
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "systems/erpc/bindings/endpoints.h"
#include "systems/erpc/options.h"

namespace pyrdma::erpc {

void bind(pybind11::module_& module);

void bind(pybind11::module_& module) {
  module.doc() = "Datacenter RPCs, after the eRPC paper.";
  module.attr("presets") = std::vector<std::string>(kPresetNames.begin(), kPresetNames.end());
  bindings::bind_endpoints(module);
}

}  // namespace pyrdma::erpc
