#include "bindings/columns.h"

#include <pybind11/stl.h>

#include <cstdint>

#include "check/history_json.h"
#include "fabric/fabric.h"

namespace pyrdma::bindings {

using namespace py::literals;

Notices notices_of(World& world, bool faults_only) {
  Notices found;
  for (const NodeId node : world.local_nodes()) {
    for (fabric::Notice& notice : world.env(node).device().notices()) {
      if (faults_only && !notice.is_fault) continue;
      found.nodes.push_back(node);
      found.texts.push_back(std::move(notice.text));
    }
  }
  return found;
}

py::dict to_columns(const std::map<NodeId, measure::Recorder>& recorders,
                    const Notices& of_devices) {
  Notices notices = of_devices;
  py::list metrics, units, names, encoded;
  std::vector<double> values;
  std::vector<std::int32_t> nodes, threads, histogram_nodes;
  py::list histories;
  for (const auto& [node, recorder] : recorders) {
    for (const measure::Row& row : recorder.rows()) {
      metrics.append(row.metric);
      units.append(row.unit);
      values.push_back(row.value);
      nodes.push_back(static_cast<std::int32_t>(node));
      threads.push_back(row.thread);
    }
    for (const auto& [name, histogram] : recorder.histograms()) {
      names.append(name);
      histogram_nodes.push_back(static_cast<std::int32_t>(node));
      encoded.append(py::bytes(histogram.encode()));
    }
    for (const std::string& text : recorder.notices()) {
      notices.nodes.push_back(node);
      notices.texts.push_back(text);
    }
    if (const auto history = recorder.history())
      histories.append(py::bytes(check::to_json(*history)));
  }
  // Lists, not arrays: a node process then starts without NumPy, in half the time.
  return py::dict(
      "metric"_a = metrics, "unit"_a = units, "value"_a = values, "node"_a = nodes,
      "thread"_a = threads,
      "histograms"_a =
          py::dict("metric"_a = names, "node"_a = histogram_nodes, "encoded"_a = encoded),
      "histories"_a = histories, "notices"_a = notices.texts, "noticed_by"_a = notices.nodes);
}

}  // namespace pyrdma::bindings
