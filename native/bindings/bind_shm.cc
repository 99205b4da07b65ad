#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/faults.h"
#include "bindings/worlds.h"
#include "fabric/shm/cluster.h"

namespace pyrdma::bindings {

namespace {

namespace shm = fabric::shm;

class ShmWorld final : public ClusterWorld<shm::ShmCluster> {
 public:
  explicit ShmWorld(const shm::ShmOptions& options) : ClusterWorld("shm", false, options) {}
  FaultCounters fault_counters() const {
    FaultCounters sum;
    for (NodeId node = 0; node < cluster.nodes(); ++node) {
      const FaultCounters& counters = cluster.fault_counters(node);
      for (std::size_t i = 0; i < kFaults; ++i) {
        sum.fired[i] += counters.fired[i];
        sum.reached[i] += counters.reached[i];
      }
    }
    return sum;
  }
};

class ShmNodeWorld final : public NodeWorld<shm::ShmNode> {
 public:
  using NodeWorld::NodeWorld;
  const FaultCounters& fault_counters() const { return native.fault_counters(); }
};

template <class Kind>
class FaultySession final : public Session {
 public:
  using Session::Session;
  FaultCounters fault_counters() {
    return call([this] { return static_cast<Kind&>(world()).fault_counters(); });
  }
};
using ShmClusterSession = FaultySession<ShmWorld>;
using ShmNodeSession = FaultySession<ShmNodeWorld>;
using FaultValues = std::map<std::string, double>;

}  // namespace

void bind_shm(py::module_& module) {
  py::module_ shm_module =
      module.def_submodule("shm", "Clusters over memory shared on this machine.");
  py::class_<ShmClusterSession, Session, std::shared_ptr<ShmClusterSession>>(
      shm_module, "Cluster", "A cluster whose nodes are threads of this process.")
      .def(py::init([](std::uint32_t nodes, std::uint64_t seed, const FaultValues& faults) {
             const py::gil_scoped_release release;
             return std::make_shared<ShmClusterSession>(std::make_unique<ShmWorld>(
                 shm::ShmOptions{nodes, seed, faults_of_cluster(faults)}));
           }),
           py::arg("nodes"), py::arg("seed") = 1, py::arg("faults") = FaultValues{})
      .def(
          "fault_counters", [](ShmClusterSession& s) { return fault_dict(s.fault_counters()); },
          "How often each fault fired, and had its effect. Not while a run is on.");
  py::class_<ShmNodeSession, Session, std::shared_ptr<ShmNodeSession>>(
      shm_module, "Node", "A session in which this process is one node.")
      .def(py::init([](const std::string& session, NodeId node, std::uint32_t nodes,
                       const std::string& token, const FaultValues& faults) {
             const py::gil_scoped_release release;
             return std::make_shared<ShmNodeSession>(std::make_unique<ShmNodeWorld>(
                 "shm", session, node, nodes, token, faults_of_cluster(faults)));
           }),
           py::arg("session"), py::arg("node"), py::arg("nodes"), py::arg("token"),
           py::arg("faults") = FaultValues{})
      .def(
          "fault_counters", [](ShmNodeSession& s) { return fault_dict(s.fault_counters()); },
          "How often each fault fired, and had its effect. Not while a run is on.");
  bind_controller<shm::Session>(shm_module)
      .def(py::init([](std::uint32_t nodes, std::uint64_t seed) {
             return shm::create_session(nodes, seed);
           }),
           py::arg("nodes"), py::arg("seed") = 1);
}

}  // namespace pyrdma::bindings
