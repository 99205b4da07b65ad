#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>

#include "bindings/argument.h"
#include "bindings/bind.h"
#include "bindings/columns.h"
#include "bindings/session.h"
#include "fabric/fabric.h"
#include "measure/cpu_ops/cpu_ops.h"
#include "measure/workload.h"
#include "measure/zipf.h"

namespace pyrdma::bindings {

namespace {

using measure::Histogram;
using namespace py::literals;

std::span<const std::byte> bytes_of(const std::string_view& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

measure::ParamMap read_params(const py::dict& given) {
  measure::ParamMap params;
  for (const auto& [key, value] : given) {
    const auto name = py::str(key).cast<std::string>();
    if (py::isinstance<py::bool_>(value))
      params[name] = std::int64_t{value.cast<bool>()};
    else if (py::isinstance<py::int_>(value))
      params[name] = read_argument<std::int64_t>(name.c_str(), value);
    else if (py::isinstance<py::float_>(value))
      params[name] = value.cast<double>();
    else if (py::isinstance<py::str>(value))
      params[name] = value.cast<std::string>();
    else if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value))
      params[name] = read_argument<std::vector<std::int64_t>>(name.c_str(), value);
    else
      throw Error(ErrorCode::kInvalidArgument,
                  name + " is " + py::repr(value).cast<std::string>() +
                      "; give a number, text or a list of whole numbers");
  }
  return params;
}

/// Adds the devices' notices to the error: a port that went down explains it.
Error with_notices(const Error& error, World& world) {
  const Notices notices = notices_of(world, true);
  std::string what = error.what();
  for (std::size_t i = 0; i < notices.texts.size(); ++i)
    what += "; at node " + std::to_string(notices.nodes[i]) + ": " + notices.texts[i];
  return {error.code(), what, error.definite()};
}

py::dict run_workload(const measure::Workloads& table, Session& session, const std::string& name,
                      const py::dict& given) {
  const measure::ParamMap values = read_params(given);
  const auto probe = table.make(name);
  measure::ParamMap with_run = values;
  with_run.try_emplace("run", session.next_run());
  const measure::Params params = measure::Params::resolve(probe->parameters(), with_run, name);
  std::map<NodeId, measure::Recorder> recorders;
  std::map<NodeId, std::unique_ptr<measure::Workload>> workloads;
  Notices notices;
  session.run_interruptibly([&](World& world) {
    for (const NodeId node : world.local_nodes()) {
      recorders[node];
      workloads[node] = table.make(name);
    }
    try {
      world.run(
          [&](Env& env) { workloads.at(env.node())->run(env, params, recorders.at(env.node())); });
    } catch (const Error& error) {
      throw with_notices(error, world);
    }
    notices = notices_of(world, false);
  });
  return to_columns(recorders, notices);
}

py::object to_python(const measure::ParamValue& value) {
  return std::visit([](const auto& v) -> py::object { return py::cast(v); }, value);
}

py::list list_workloads(const measure::Workloads& table) {
  py::list all;
  for (const measure::NamedWorkload& row : table.rows())
    all.append(py::dict("name"_a = std::string(row.name), "about"_a = std::string(row.about),
                        "survives"_a = row.survives));
  return all;
}

void check_parameters(const measure::Workloads& table, const std::string& name,
                      const py::dict& given) {
  measure::Params::resolve(table.make(name)->parameters(), read_params(given), name);
}

py::list parameters_of(const measure::Workloads& table, const std::string& name) {
  const auto workload = table.make(name);
  py::list all;
  for (const measure::ParameterSpec& spec : workload->parameters()) {
    all.append(py::dict("name"_a = spec.name, "default"_a = to_python(spec.fallback),
                        "unit"_a = spec.unit, "description"_a = spec.description,
                        "min"_a = spec.min, "max"_a = spec.max, "choices"_a = spec.choices,
                        "system"_a = spec.system));
  }
  return all;
}

py::array_t<std::uint64_t> zipf_sample(std::uint64_t elements, double exponent, std::size_t count,
                                       std::uint64_t seed) {
  const measure::Zipf zipf(elements, exponent);
  py::array_t<std::uint64_t> sample(static_cast<py::ssize_t>(count));
  Rng rng(seed, -1, "zipf");
  std::uint64_t* out = sample.mutable_data();
  const py::gil_scoped_release release;
  for (std::size_t i = 0; i < count; ++i) out[i] = zipf(rng);
  return sample;
}

void record_array(
    Histogram& self,
    const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>& values) {
  const std::int64_t* data = values.data();
  for (py::ssize_t i = 0; i < values.size(); ++i) self.record(data[i]);
}

void bind_histogram(py::module_& module) {
  py::class_<Histogram>(module, "Histogram",
                        "Latencies in ns: 1 ns to 1 h, three significant digits.")
      .def(py::init<>())
      .def(
          "record",
          [](Histogram& self, Time value, std::uint64_t times) { self.record(value, times); },
          py::arg("value"), py::arg("times") = 1, "Record a value, or the same one several times.")
      .def("record_array", &record_array, py::arg("values"), "Record every element.")
      .def("merge", &Histogram::merge, py::arg("other"), "Add the values of another histogram.")
      .def_property_readonly("total", &Histogram::total, "Values recorded.")
      .def_property_readonly("min", &Histogram::min, "The least value (ns); 0 if there is none.")
      .def_property_readonly("max", &Histogram::max, "The largest value (ns); 0 if there is none.")
      .def("mean", &Histogram::mean, "Mean of the values (ns); 0 if there is none.")
      .def("percentile", &Histogram::percentile, py::arg("percent"),
           "Value (ns) that `percent` of the values do not exceed.")
      .def(
          "encode", [](const Histogram& self) { return py::bytes(self.encode()); },
          "HdrHistogram V2 encoding, not compressed.")
      .def_static(
          "decode",
          [](const py::bytes& encoded) {
            return Histogram::decode(bytes_of(std::string_view(encoded)));
          },
          py::arg("encoded"), "Decode what `encode` returned.");
}

}  // namespace

void bind_measure(py::module_& module, const measure::Workloads& workloads) {
  py::module_ measure_module =
      module.def_submodule("measure", "Workloads, histograms, distributions.");
  bind_histogram(measure_module);
  measure_module.def(
      "run_workload", with_first(&run_workload, workloads), py::arg("cluster"), py::arg("name"),
      py::arg("params"),
      "Run a workload on every node of the cluster in this process and return its columns.");
  measure_module.def("workloads", with_first(&list_workloads, workloads),
                     "Every workload: name, docstring, whether it survives kills.");
  measure_module.def("check_parameters", with_first(&check_parameters, workloads), py::arg("name"),
                     py::arg("params"), "Raise InvalidArgument for a wrong parameter.");
  measure_module.def("workload_parameters", with_first(&parameters_of, workloads), py::arg("name"),
                     "Parameters of a workload.");
  measure_module.def("cpu_operation_ns", &measure::cpu_operation_ns, py::arg("kind"),
                     py::arg("footprint"), py::arg("duration_ns"),
                     py::call_guard<py::gil_scoped_release>(),
                     "Mean time of one operation of this machine's CPU; see "
                     "native/measure/cpu_ops/cpu_ops.h.");
  measure_module.def("code_instructions", &measure::code_instructions,
                     py::call_guard<py::gil_scoped_release>(),
                     "Instructions of one operation of the kind `code`.");
  measure_module.def(
      "zipf_sample", &zipf_sample, py::arg("elements"), py::arg("exponent"), py::arg("count"),
      py::arg("seed") = 1,
      "Ranks (0 is the most frequent) with probability proportional to 1/(rank+1)^exponent.");
}

}  // namespace pyrdma::bindings
