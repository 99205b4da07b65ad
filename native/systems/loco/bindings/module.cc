// The part of the Python module that belongs to LOCO.
#include "systems/loco/bindings/channel.h"

namespace pyrdma::loco {

void bind(pybind11::module_& module);

void bind(pybind11::module_& module) {
  namespace py = pybind11;
  using namespace bindings;
  module.doc() = "Channel objects, after the LOCO paper.";
  py::class_<Managers, std::shared_ptr<Managers>>(
      module, "Managers",
      "LOCO's manager at each node of this process, with `callers` callers each.")
      .def(py::init([](std::shared_ptr<pyrdma::bindings::Session> session, std::uint32_t callers,
                       std::uint32_t block_bytes, double wait_timeout_s) {
             ManagerOptions options;
             options.name = "python/" + std::to_string(session->next_run());
             options.callers = callers;
             options.block_bytes = block_bytes;
             options.wait_timeout = static_cast<Time>(wait_timeout_s * 1e9);
             return make_owned<Managers>(
                 std::move(session),
                 [&](Env& env) { return std::make_unique<Manager>(env, options); }, -1);
           }),
           py::arg("cluster"), py::arg("callers") = 1, py::arg("block_bytes") = 4096,
           py::arg("wait_timeout_s") = 10.0);
  // The classes of the channels, by name; pyrdma/systems/loco/channels.py documents them.
  const py::object channels = py::module_::import("types").attr("SimpleNamespace")();
  module.attr("channels") = channels;
  bind_variables(channels);
  bind_objects(channels);
}

}  // namespace pyrdma::loco
